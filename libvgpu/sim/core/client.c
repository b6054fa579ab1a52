/* This process as a client of a device: attaching, lanes, memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "machine.h"
#include "state.h"

#define COMPUTE_MODE_PROHIBITED 2
#define COMPUTE_MODE_EXCLUSIVE_PROCESS 3

/* Whether the compute mode and the MPS server let one more process in. All clients of MPS together
 * count as one process. */
static int admit(const struct sim_state *state, const struct sim_client_options *options)
{
    uint32_t mps_clients = 0, others = 0;
    for (uint32_t i = 0; i < state->client_limit; i++) {
        if (!(state->clients[i].flags & SIM_CLIENT_ATTACHED))
            continue;
        if (state->clients[i].flags & SIM_CLIENT_MPS)
            mps_clients++;
        else
            others++;
    }
    REFUSE_IF(state->compute_mode == COMPUTE_MODE_PROHIBITED, -EACCES);
    REFUSE_IF(state->compute_mode == COMPUTE_MODE_EXCLUSIVE_PROCESS &&
                  (others || ((mps_clients || options->served) && !options->percentage)),
              -EBUSY);
    REFUSE_IF(options->percentage && options->client_limit && mps_clients >= options->client_limit,
              -EUSERS);
    return 0;
}

static uint64_t own_pid_namespace(void)
{
    struct stat status;
    return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

struct attachment {
    const struct sim_client_options *options;
    struct sim_client client; /* as it began */
    uint64_t pid_namespace;
};

static int attach_client(struct sim_device *device, struct sim_state *state, void *argument)
{
    struct attachment *attachment = argument;
    const struct sim_client_options *options = attachment->options;
    uint32_t slot = device->machine->slot;
    REFUSE_IF(state->closed || state->generation != device->generation, -ENODEV);
    int error = admit(state, options);
    if (error)
        return error;
    if (slot >= state->client_limit) {
        memset(&state->clients[state->client_limit], 0,
               (slot + 1 - state->client_limit) * sizeof(struct sim_client));
        state->client_limit = slot + 1;
    }
    struct sim_client client = {
        .flags = SIM_CLIENT_ATTACHED | SIM_CLIENT_USED | (options->percentage ? SIM_CLIENT_MPS : 0),
        .pid = (uint32_t)getpid(),
        .pid_namespace = attachment->pid_namespace,
        .uid = (uint32_t)getuid(),
        .percentage = options->percentage,
        .lanes_open = state->clients[slot].lanes_open | 1u,
    };
    for (uint32_t lane = 0; lane < SIM_LANES; lane++)
        if (client.lanes_open >> lane & 1) /* counted on by whoever is next */
            client.lanes[lane].head = __atomic_load_n(
                &sim_layout_queue(device->header, slot, lane)->tail, __ATOMIC_ACQUIRE);
    state->clients[slot] = attachment->client = client;
    return 0;
}

static int allocate_lane(struct sim_device *device, uint32_t lane)
{
    return sim_machine_allocate(device->machine,
                                sim_layout_queue(device->header, device->machine->slot, lane),
                                SIM_QUEUE_STRIDE);
}

static int attach_locked(struct sim_device *device, const struct sim_client_options *options)
{
    struct attachment attachment = {.options = options, .pid_namespace = own_pid_namespace()};
    int error = allocate_lane(device, 0);
    if (error)
        return error;
    if (!device->notes)
        device->notes = calloc(SIM_LANES * SIM_QUEUE_DEPTH, sizeof *device->notes);
    REFUSE_IF(!device->notes, -ENOMEM);
    error = sim_device_transact_locked(device, attach_client, &attachment, true);
    if (error)
        return error;
    device->lanes_open = attachment.client.lanes_open;
    for (uint32_t lane = 0; lane < SIM_LANES; lane++)
        device->done[lane] = attachment.client.lanes[lane].head;
    device->attached = true;
    __atomic_store_n(&device->failed, false, __ATOMIC_RELAXED);
    return 0;
}

int sim_client_attach(struct sim_device *device, const struct sim_client_options *options)
{
    pthread_mutex_lock(&device->mutex);
    int error = device->attached ? 0 : attach_locked(device, options);
    pthread_mutex_unlock(&device->mutex);
    return error;
}

static int detach_idle(struct sim_device *device, struct sim_state *state, void *argument)
{
    struct sim_client *client = &state->clients[device->machine->slot];
    (void)argument;
    REFUSE_IF(client->memory_bytes, -EBUSY);
    for (uint32_t lane = 0; lane < SIM_LANES; lane++)
        REFUSE_IF(client->lanes_open >> lane & 1 &&
                      client->lanes[lane].head !=
                          __atomic_load_n(
                              &sim_layout_queue(device->header, device->machine->slot, lane)->tail,
                              __ATOMIC_ACQUIRE),
                  -EBUSY);
    client->flags &= ~SIM_CLIENT_ATTACHED;
    return 0;
}

void sim_client_detach_idle(struct sim_device *device)
{
    pthread_mutex_lock(&device->mutex);
    if (device->attached && sim_device_transact_locked(device, detach_idle, NULL, false) == 0)
        device->attached = false;
    pthread_mutex_unlock(&device->mutex);
}

static int open_lane(struct sim_device *device, struct sim_state *state, void *argument)
{
    state->clients[device->machine->slot].lanes_open |= 1u << *(const uint32_t *)argument;
    return 0;
}

int sim_queue_open_locked(struct sim_device *device, uint32_t lane)
{
    if (device->lanes_open >> lane & 1)
        return 0;
    int error = allocate_lane(device, lane);
    if (!error)
        error = sim_device_transact_locked(device, open_lane, &lane, false);
    if (!error)
        device->lanes_open |= 1u << lane;
    return error;
}

struct reservation {
    uint64_t bytes;
    uint64_t cap_bytes;
};

static int reserve_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    const struct reservation *wanted = argument;
    struct sim_client *client = &state->clients[device->machine->slot];
    uint64_t total_bytes = device->header->identity.profile.memory_bytes;
    REFUSE_IF(!(client->flags & SIM_CLIENT_ATTACHED),
              -ESRCH); /* detached by another thread meanwhile */
    REFUSE_IF(wanted->bytes > total_bytes - state->used_bytes ||
                  (wanted->cap_bytes && (client->memory_bytes > wanted->cap_bytes ||
                                         wanted->bytes > wanted->cap_bytes - client->memory_bytes)),
              -ENOMEM);
    state->used_bytes += wanted->bytes;
    if (state->used_bytes > state->peak_bytes)
        state->peak_bytes = state->used_bytes;
    client->memory_bytes += wanted->bytes;
    return 0;
}

int sim_client_reserve(struct sim_device *device, uint64_t bytes, uint64_t cap_bytes)
{
    struct reservation wanted = {bytes, cap_bytes};
    sim_device_await_nvml(device);
    int error = sim_device_transact(device, reserve_memory, &wanted, false);
    if (error == -ENOMEM) /* unless somebody's death freed some that nobody noticed yet */
        error = sim_device_transact(device, reserve_memory, &wanted, true);
    return error;
}

static int release_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    uint64_t bytes = *(const uint64_t *)argument;
    struct sim_client *client = &state->clients[device->machine->slot];
    REFUSE_IF(bytes > client->memory_bytes, -EINVAL);
    state->used_bytes -= bytes;
    client->memory_bytes -= bytes;
    return 0;
}

int sim_client_release(struct sim_device *device, uint64_t bytes)
{
    return sim_device_transact(device, release_memory, &bytes, false);
}

static int read_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    uint64_t *bytes = argument;
    uint32_t slot = device->machine->slot;
    bytes[0] = state->used_bytes;
    bytes[1] = slot < state->client_limit ? state->clients[slot].memory_bytes : 0;
    return 0;
}

int sim_client_memory(struct sim_device *device, uint64_t *used_bytes, uint64_t *own_bytes)
{
    uint64_t bytes[2];
    int error = sim_device_read(device, read_memory, bytes);
    if (!error) {
        *used_bytes = bytes[0];
        *own_bytes = bytes[1];
    }
    return error;
}

/* ---- host memory behind device bytes --------------------------------------------------------- */

static int back_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    uint64_t bytes = *(const uint64_t *)argument;
    state->backed_bytes += bytes;
    state->clients[device->machine->slot].backed_bytes += bytes;
    return 0;
}

/* What all devices say now; another process may add meanwhile, so the cap is kept to about the size
 * of one copy. */
static uint64_t backed_on_machine(const struct sim_machine *machine)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < machine->header->device_count; i++) {
        struct sim_device_header *header = sim_layout_device(machine->header, i);
        uint64_t active, backed;
        do { /* a buffer that was replaced meanwhile may be half of the next state */
            active = __atomic_load_n(&header->active, __ATOMIC_ACQUIRE);
            backed = __atomic_load_n(&sim_layout_state(header, active & 0xffff)->backed_bytes,
                                     __ATOMIC_ACQUIRE);
        } while (__atomic_load_n(&header->active, __ATOMIC_RELAXED) != active);
        bytes += backed;
    }
    return bytes;
}

int sim_client_back(struct sim_device *device, uint64_t bytes)
{
    uint64_t cap_bytes = device->machine->header->backing_bytes;
    if (bytes > cap_bytes || backed_on_machine(device->machine) > cap_bytes - bytes) {
        sim_device_transact(device, NULL, NULL, true); /* the dead may have left some */
        REFUSE_IF(bytes > cap_bytes || backed_on_machine(device->machine) > cap_bytes - bytes,
                  -ENOSPC);
    }
    return sim_device_transact(device, back_memory, &bytes, false);
}

static int unback_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    uint64_t bytes = *(const uint64_t *)argument;
    struct sim_client *client = &state->clients[device->machine->slot];
    REFUSE_IF(bytes > client->backed_bytes, -EINVAL);
    state->backed_bytes -= bytes;
    client->backed_bytes -= bytes;
    return 0;
}

int sim_client_unback(struct sim_device *device, uint64_t bytes)
{
    return sim_device_transact(device, unback_memory, &bytes, false);
}
