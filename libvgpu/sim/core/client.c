/* This process as a client of a device: attaching, memory. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "machine.h"

static int attach_client(struct sim_device *device, struct sim_state *state, void *argument)
{
    const struct sim_client_options *options = argument;
    uint32_t slot = device->machine->slot;
    uint32_t mps_clients = 0;
    for (uint32_t i = 0; i < state->client_limit; i++)
        mps_clients += (state->clients[i].flags & (SIM_CLIENT_ATTACHED | SIM_CLIENT_MPS)) ==
                       (SIM_CLIENT_ATTACHED | SIM_CLIENT_MPS);
    if (options->percentage && options->client_limit && mps_clients >= options->client_limit)
        return -EUSERS;
    if (slot >= state->client_limit) {
        memset(&state->clients[state->client_limit], 0,
               (slot + 1 - state->client_limit) * sizeof(struct sim_client));
        state->client_limit = slot + 1;
    }
    struct sim_queue *queue = sim_layout_queue(device->header, slot);
    state->clients[slot] = (struct sim_client){
        .head = __atomic_load_n(&queue->tail, __ATOMIC_ACQUIRE), /* counted on by whoever is next */
        .flags = SIM_CLIENT_ATTACHED | SIM_CLIENT_USED | (options->percentage ? SIM_CLIENT_MPS : 0),
        .pid = (uint32_t)getpid(),
        .uid = (uint32_t)getuid(),
        .percentage = options->percentage,
    };
    return 0;
}

int sim_client_attach(struct sim_device *device, const struct sim_client_options *options)
{
    pthread_mutex_lock(&device->mutex);
    int error = 0;
    if (!device->attached) {
        error = sim_device_transact_locked(device, attach_client, (void *)options, true);
        if (!error) {
            device->done = __atomic_load_n(
                &sim_layout_queue(device->header, device->machine->slot)->tail, __ATOMIC_RELAXED);
            device->attached = true;
            device->failed = false;
        }
    }
    pthread_mutex_unlock(&device->mutex);
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
    if (wanted->bytes > total_bytes - state->used_bytes ||
        (wanted->cap_bytes && (client->memory_bytes > wanted->cap_bytes ||
                               wanted->bytes > wanted->cap_bytes - client->memory_bytes)))
        return -ENOMEM;
    state->used_bytes += wanted->bytes;
    client->memory_bytes += wanted->bytes;
    return 0;
}

int sim_client_reserve(struct sim_device *device, uint64_t bytes, uint64_t cap_bytes)
{
    struct reservation wanted = {bytes, cap_bytes};
    int error = sim_device_transact(device, reserve_memory, &wanted, false);
    if (error == -ENOMEM) /* unless somebody's death freed some that nobody noticed yet */
        error = sim_device_transact(device, reserve_memory, &wanted, true);
    return error;
}

static int release_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    uint64_t bytes = *(const uint64_t *)argument;
    struct sim_client *client = &state->clients[device->machine->slot];
    if (bytes > client->memory_bytes)
        return -EINVAL;
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
    int error = sim_device_transact(device, read_memory, bytes, true);
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
        uint32_t buffer = __atomic_load_n(&header->active, __ATOMIC_ACQUIRE) & 0xffff;
        bytes += __atomic_load_n(&sim_layout_state(header, buffer)->backed_bytes, __ATOMIC_RELAXED);
    }
    return bytes;
}

int sim_client_back(struct sim_device *device, uint64_t bytes)
{
    uint64_t cap_bytes = device->machine->header->backing_bytes;
    if (bytes > cap_bytes || backed_on_machine(device->machine) > cap_bytes - bytes) {
        sim_device_transact(device, NULL, NULL, true); /* the dead may have left some */
        if (bytes > cap_bytes || backed_on_machine(device->machine) > cap_bytes - bytes)
            return -ENOSPC;
    }
    return sim_device_transact(device, back_memory, &bytes, false);
}

static int unback_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    uint64_t bytes = *(const uint64_t *)argument;
    struct sim_client *client = &state->clients[device->machine->slot];
    if (bytes > client->backed_bytes)
        return -EINVAL;
    state->backed_bytes -= bytes;
    client->backed_bytes -= bytes;
    return 0;
}

int sim_client_unback(struct sim_device *device, uint64_t bytes)
{
    return sim_device_transact(device, unback_memory, &bytes, false);
}
