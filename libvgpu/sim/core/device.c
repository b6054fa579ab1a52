/* Changes to a device's shared state, see layout.h: copy, change, publish by compare-and-swap. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "machine.h"
#include "shared.h"
#include "slice/life.h"
#include "state.h"
#include "timeline.h"

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#endif

#define BUFFER_BITS 16
#define BUFFER_MASK ((1u << BUFFER_BITS) - 1)
#define REAPING_READS 2

static uint32_t bounded(uint32_t limit, uint32_t most)
{
    return limit < most ? limit : most; /* torn; the version check throws the copy away */
}

void sim_state_copy(struct sim_state *target, const struct sim_state *source)
{
    uint32_t clients = bounded(source->client_limit, SIM_PROCESS_SLOTS);
    uint32_t shared = bounded(source->shared_limit, SIM_SHARED_SLOTS);
    memcpy(target, source,
           offsetof(struct sim_state, clients) + clients * sizeof(struct sim_client));
    memcpy(target->shared, source->shared, shared * sizeof(struct sim_shared));
}

static bool byte_is_locked(int file, long long at)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    /* in doubt alive: a process must not lose its memory over a failed question */
    return fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static void drop_work(struct sim_device *device, struct sim_client *client, uint32_t slot)
{
    for (uint32_t lane = 0; lane < SIM_LANES; lane++)
        if (client->lanes_open >> lane & 1)
            client->lanes[lane] = (struct sim_lane){
                .head = __atomic_load_n(&sim_layout_queue(device->header, slot, lane)->tail,
                                        __ATOMIC_ACQUIRE)};
    client->started = 0;
}

/* Takes everything from the client in `slot`; its books stay. */
static void drop_client(struct sim_device *device, struct sim_state *state, uint32_t slot)
{
    struct sim_client *client = &state->clients[slot];
    shared_drop_all(state, slot);
    state->used_bytes -= client->memory_bytes;
    client->memory_bytes = 0;
    state->backed_bytes -= client->backed_bytes;
    client->backed_bytes = 0;
    drop_work(device, client, slot);
    client->flags &= ~SIM_CLIENT_ATTACHED;
}

bool sim_device_is_served(struct sim_device *device)
{
    int file = sim_machine_file(device->machine);
    return file >= 0 && byte_is_locked(file, SIM_MPS_BASE + device->index);
}

static void fail_client(struct sim_device *device, struct sim_client *client, uint32_t slot)
{
    client->flags |= SIM_CLIENT_FAILED;
    drop_work(device, client, slot);
}

static int fail_own(struct sim_device *device, struct sim_state *state, void *argument)
{
    uint32_t slot = device->machine->slot;
    (void)argument;
    if (device->attached)
        fail_client(device, &state->clients[slot], slot);
    return 0;
}

void sim_client_fail(struct sim_device *device)
{
    sim_device_transact(device, fail_own, NULL, false);
}

/* The dead lose everything. A process whose MPS server has ended loses what it had queued, and
 * every further call of it fails; its memory stays until it gives up its contexts or dies. */
static void reap_dead(struct sim_device *device, struct sim_state *state)
{
    int file = sim_machine_file(device->machine);
    state->reaped_ns = state->clock_ns;
    if (file < 0)
        return;
    bool served = byte_is_locked(file, SIM_MPS_BASE + device->index);
    for (uint32_t slot = 0; slot < state->client_limit; slot++) {
        struct sim_client *client = &state->clients[slot];
        if (!(client->flags & SIM_CLIENT_ATTACHED))
            continue;
        if (client->flags & SIM_CLIENT_MPS && !served)
            fail_client(device, client, slot);
        if (slot != device->machine->slot && !life_is_held(file, SIM_LIFE_BASE + slot))
            drop_client(device, state, slot);
    }
}

static void call_notes(struct sim_device *device, const struct sim_client *client)
{
    const uint64_t time_mask = (1ull << SIM_STAMP_TAG_SHIFT) - 1;
    for (uint32_t lane = 0; lane < SIM_LANES; lane++) {
        uint64_t head = client->lanes[lane].head;
        if (device->done[lane] >= head)
            continue;
        struct sim_queue *queue = sim_layout_queue(device->header, device->machine->slot, lane);
        for (uint64_t done = device->done[lane]; done < head; done++) {
            uint32_t index = done % SIM_QUEUE_DEPTH;
            void **note = &device->notes[lane * SIM_QUEUE_DEPTH + index];
            if (*note)
                device->on_done(*note, sim_place(lane, done),
                                __atomic_load_n(&queue->operations[index].stamp, __ATOMIC_ACQUIRE) &
                                    time_mask);
            *note = NULL;
        }
        __atomic_store_n(&device->done[lane], head, __ATOMIC_RELEASE);
    }
}

/* Copies the published state and settles the copy up to now. False: it was replaced meanwhile. */
static bool settle_copy(struct sim_device *device, struct sim_state *copy, uint64_t active,
                        bool stamping, bool reap)
{
    struct sim_device_header *header = device->header;
    sim_state_copy(copy, sim_layout_state(header, active & BUFFER_MASK));
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(&header->active, __ATOMIC_RELAXED) != active)
        return false;
    /* Clients beyond the limit are whatever this buffer held before: made clean when the limit
     * grows (attach_client). */
    struct sim_timeline timeline = {
        .state = copy, .device = header, .workers = device->workers, .stamping = stamping};
    uint64_t now_ns = sim_now_ns();
    if (reap || now_ns - copy->reaped_ns > SIM_REAP_NS)
        reap_dead(device, copy);
    sim_timeline_advance(&timeline, now_ns);
    return true;
}

static int allocate_buffers(struct sim_device *device)
{
    for (uint32_t i = 0; i < 2 && !device->allocated; i++) {
        int error = sim_machine_allocate(
            device->machine, sim_layout_state(device->header, 2 * device->machine->slot + i),
            SIM_STATE_STRIDE);
        if (error)
            return error;
    }
    device->allocated = true;
    return 0;
}

int sim_device_transact_locked(struct sim_device *device, sim_change change, void *argument,
                               bool reap)
{
    struct sim_device_header *header = device->header;
    uint32_t own = 2 * device->machine->slot;
    int error = allocate_buffers(device);
    while (!error) {
        uint64_t active = __atomic_load_n(&header->active, __ATOMIC_ACQUIRE);
        uint32_t target = (active & BUFFER_MASK) == own ? own + 1 : own;
        struct sim_state *state = sim_layout_state(header, target);
        if (!settle_copy(device, state, active, true, reap))
            continue;
        error = change ? change(device, state, argument) : 0;
        if (error)
            break;
        uint64_t next = ((active >> BUFFER_BITS) + 1) << BUFFER_BITS | target;
        if (!__atomic_compare_exchange_n(&header->active, &active, next, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        device->settled_ns = state->clock_ns;
        if (device->attached) {
            const struct sim_client *client = &state->clients[device->machine->slot];
            __atomic_store_n(&device->failed, (client->flags & SIM_CLIENT_FAILED) != 0,
                             __ATOMIC_RELAXED);
            call_notes(device, client);
        }
        break;
    }
    return error;
}

int sim_device_transact(struct sim_device *device, sim_change change, void *argument, bool reap)
{
    pthread_mutex_lock(&device->mutex);
    int error = sim_device_transact_locked(device, change, argument, reap);
    pthread_mutex_unlock(&device->mutex);
    return error;
}

int sim_device_read(struct sim_device *device, sim_change reader, void *argument)
{
    pthread_mutex_lock(&device->mutex);
    uint64_t active;
    int tries = 0;
    do { /* the queues may have been reused under the copy if it is not the active one any more */
        active = __atomic_load_n(&device->header->active, __ATOMIC_ACQUIRE);
        /* to look for the dead takes long, and where others change the state all the time they do */
    } while (!settle_copy(device, device->scratch, active, false, tries++ < REAPING_READS) ||
             __atomic_load_n(&device->header->active, __ATOMIC_ACQUIRE) != active);
    int error = reader(device, device->scratch, argument);
    pthread_mutex_unlock(&device->mutex);
    return error;
}

static int detach_slot(struct sim_device *device, struct sim_state *state, void *argument)
{
    uint32_t slot = device->machine->slot;
    (void)argument;
    if (slot < state->client_limit && (state->clients[slot].flags & SIM_CLIENT_ATTACHED))
        drop_client(device, state, slot);
    return 0;
}

static int is_attached(struct sim_device *device, struct sim_state *state, void *argument)
{
    uint32_t slot = device->machine->slot;
    device->generation = state->generation;
    *(bool *)argument =
        slot < state->client_limit && (state->clients[slot].flags & SIM_CLIENT_ATTACHED);
    return 0;
}

int sim_device_detach_slot(struct sim_device *device)
{
    bool attached = false;
    sim_device_read(device, is_attached, &attached);
    return attached ? sim_device_transact(device, detach_slot, NULL, false) : 0;
}

/* ---- books ----------------------------------------------------------------------------------- */

static int copy_books(struct sim_device *device, struct sim_state *state, void *argument)
{
    struct sim_device_books *books = argument;
    (void)device;
    *books = (struct sim_device_books){
        .memory_used_bytes = state->used_bytes,
        .memory_peak_bytes = state->peak_bytes,
        .backed_bytes = state->backed_bytes,
        .busy_ns = state->busy_ns,
        .window_busy_ns = state->last_window_busy_ns,
        .window_ns = SIM_WINDOW_NS,
        .window_end_ns = state->window_started_ns,
        .clock_ns = state->clock_ns,
        .compute_mode = state->compute_mode,
    };
    for (uint32_t slot = 0; slot < state->client_limit; slot++) {
        const struct sim_client *client = &state->clients[slot];
        if (!(client->flags & SIM_CLIENT_USED))
            continue;
        books->clients[books->client_count++] = (struct sim_client_books){
            .pid = client->pid,
            .alive = (client->flags & SIM_CLIENT_ATTACHED) != 0,
            .mps = (client->flags & SIM_CLIENT_MPS) != 0,
            .percentage = client->percentage,
            .memory_bytes = client->memory_bytes,
            .busy_ns = client->busy_ns,
            .window_busy_ns = client->last_window_busy_ns,
            .launches = client->launches,
            .uid = client->uid,
            .failed = (client->flags & SIM_CLIENT_FAILED) != 0,
            .pid_namespace = client->pid_namespace,
        };
    }
    return 0;
}

int sim_machine_books(struct sim_machine *machine, uint32_t index, struct sim_device_books *books)
{
    struct sim_device *device = sim_machine_device(machine, index);
    return device ? sim_device_read(device, copy_books, books) : -EINVAL;
}

static int set_compute_mode(struct sim_device *device, struct sim_state *state, void *argument)
{
    (void)device;
    state->compute_mode = *(uint32_t *)argument;
    return 0;
}

int sim_machine_set_compute_mode(struct sim_machine *machine, uint32_t index, uint32_t mode)
{
    struct sim_device *device = sim_machine_device(machine, index);
    return device ? sim_device_transact(device, set_compute_mode, &mode, false) : -EINVAL;
}
