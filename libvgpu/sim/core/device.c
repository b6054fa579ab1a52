/* Changes to a device's shared state, as layout.h tells: copy, change, publish by compare-and-swap.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "machine.h"
#include "share.h"
#include "timeline.h"

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#endif

#define BUFFER_BITS 16
#define BUFFER_MASK ((1u << BUFFER_BITS) - 1)

static uint32_t bounded(uint32_t limit, uint32_t most)
{
    return limit < most ? limit : most; /* torn; the version check throws the copy away */
}

static void copy_state(struct sim_state *target, const struct sim_state *source)
{
    uint32_t clients = bounded(source->client_limit, SIM_PROCESS_SLOTS);
    uint32_t shared = bounded(source->shared_limit, SIM_SHARED_SLOTS);
    memcpy(target, source,
           offsetof(struct sim_state, clients) + clients * sizeof(struct sim_client));
    memcpy(target->shared, source->shared, shared * sizeof(struct sim_shared));
}

static bool byte_is_locked(const struct sim_machine *machine, long long at)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    /* in doubt alive: a process must not lose its memory over a failed question */
    return fcntl(machine->file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static bool slot_is_alive(const struct sim_machine *machine, uint32_t slot)
{
    return byte_is_locked(machine, SIM_LIFE_BASE + slot);
}

/* The MPS server of this client has ended: what it had queued is lost with it, and every further
 * call fails. Its memory stays until it gives up its contexts or dies. */
static void fail_client(struct sim_device *device, struct sim_state *state, uint32_t slot)
{
    state->clients[slot].flags |= SIM_CLIENT_FAILED;
}

/* Takes everything from the client in `slot`; its books stay. */
static void drop_client(struct sim_device *device, struct sim_state *state, uint32_t slot)
{
    struct sim_client *client = &state->clients[slot];
    struct sim_queue *queue = sim_layout_queue(device->header, slot);
    share_drop_all(state, slot);
    state->used_bytes -= client->memory_bytes;
    client->memory_bytes = 0;
    state->backed_bytes -= client->backed_bytes;
    client->backed_bytes = 0;
    client->head = __atomic_load_n(&queue->tail, __ATOMIC_ACQUIRE);
    client->remaining_ns = 0;
    client->flags &= ~(SIM_CLIENT_ATTACHED | SIM_CLIENT_STARTED);
}

static void reap_dead(struct sim_device *device, struct sim_state *state)
{
    bool served = byte_is_locked(device->machine, SIM_MPS_BASE + device->index);
    for (uint32_t slot = 0; slot < state->client_limit; slot++) {
        struct sim_client *client = &state->clients[slot];
        if (!(client->flags & SIM_CLIENT_ATTACHED))
            continue;
        if (client->flags & SIM_CLIENT_MPS && !served)
            fail_client(device, state, slot);
        if (slot != device->machine->slot && !slot_is_alive(device->machine, slot))
            drop_client(device, state, slot);
    }
    state->reaped_ns = state->clock_ns;
}

static void call_notes(struct sim_device *device, uint64_t head)
{
    struct sim_queue *queue = sim_layout_queue(device->header, device->machine->slot);
    const uint64_t time_mask = (1ull << SIM_STAMP_TAG_SHIFT) - 1;
    for (; device->done < head; device->done++) {
        uint32_t place = device->done % SIM_QUEUE_DEPTH;
        void *note = device->notes[place];
        device->notes[place] = NULL;
        if (note)
            device->on_done(note,
                            __atomic_load_n(&queue->operations[place].stamp, __ATOMIC_ACQUIRE) &
                                time_mask);
    }
}

int sim_device_transact_locked(struct sim_device *device, sim_change change, void *argument,
                               bool reap)
{
    struct sim_device_header *header = device->header;
    uint32_t own = 2 * device->machine->slot;
    for (;;) {
        uint64_t active = __atomic_load_n(&header->active, __ATOMIC_ACQUIRE);
        uint32_t source = active & BUFFER_MASK;
        uint32_t target = source == own ? own + 1 : own;
        struct sim_state *state = sim_layout_state(header, target);
        const struct sim_state *current = sim_layout_state(header, source);
        copy_state(state, current);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&header->active, __ATOMIC_RELAXED) != active)
            continue;
        /* Clients beyond the limit are whatever this buffer held before: made clean when the limit
         * grows (attach_client). */
        struct sim_timeline timeline = {.state = state, .device = header, .stamping = true};
        uint64_t now_ns = sim_now_ns();
        if (reap || now_ns - state->reaped_ns > SIM_REAP_NS)
            reap_dead(device, state);
        sim_timeline_advance(&timeline, now_ns);
        int error = change ? change(device, state, argument) : 0;
        if (error)
            return error;
        uint64_t next = ((active >> BUFFER_BITS) + 1) << BUFFER_BITS | target;
        if (!__atomic_compare_exchange_n(&header->active, &active, next, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        device->settled_ns = state->clock_ns;
        if (device->attached) {
            device->failed = state->clients[device->machine->slot].flags & SIM_CLIENT_FAILED;
            call_notes(device, state->clients[device->machine->slot].head);
        }
        return 0;
    }
}

int sim_device_transact(struct sim_device *device, sim_change change, void *argument, bool reap)
{
    pthread_mutex_lock(&device->mutex);
    int error = sim_device_transact_locked(device, change, argument, reap);
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

int sim_device_detach_slot(struct sim_device *device)
{
    return sim_device_transact(device, detach_slot, NULL, false);
}

/* ---- books ----------------------------------------------------------------------------------- */

static int copy_books(struct sim_device *device, struct sim_state *state, void *argument)
{
    struct sim_device_books *books = argument;
    (void)device;
    *books = (struct sim_device_books){
        .memory_used_bytes = state->used_bytes,
        .backed_bytes = state->backed_bytes,
        .busy_ns = state->busy_ns,
        .window_busy_ns = state->last_window_busy_ns,
        .window_ns = SIM_WINDOW_NS,
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
        };
    }
    return 0;
}

int sim_machine_books(struct sim_machine *machine, uint32_t index, struct sim_device_books *books)
{
    struct sim_device *device = sim_machine_device(machine, index);
    return device ? sim_device_transact(device, copy_books, books, true) : -EINVAL;
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
