/* Device memory that several processes hold, as machine.h tells. All of it is part of the device's
 * state, so that a holder's death is seen with everything else of it. */
#include <errno.h>
#include <string.h>

#include "machine.h"
#include "shared.h"

#define BITS 64

static bool holds(const struct sim_shared *shared, uint32_t slot)
{
    return shared->holders[slot / BITS] >> slot % BITS & 1;
}

static uint32_t first_holder(const struct sim_shared *shared)
{
    for (uint32_t word = 0; word < SIM_PROCESS_SLOTS / BITS; word++)
        if (shared->holders[word])
            return word * BITS + (uint32_t)__builtin_ctzll(shared->holders[word]);
    return SIM_NOBODY;
}

static void drop_holder(struct sim_state *state, struct sim_shared *shared, uint32_t slot)
{
    shared->holders[slot / BITS] &= ~(1ull << slot % BITS);
    if (shared->owner != slot)
        return;
    state->clients[slot].memory_bytes -= shared->bytes;
    uint32_t heir = first_holder(shared);
    if (heir == SIM_NOBODY) {
        state->used_bytes -= shared->bytes;
        shared->identifier = 0;
    } else {
        shared->owner = heir;
        state->clients[heir].memory_bytes += shared->bytes;
    }
}

void shared_drop_all(struct sim_state *state, uint32_t slot)
{
    for (uint32_t i = 0; i < state->shared_limit && i < SIM_SHARED_SLOTS; i++)
        if (state->shared[i].identifier && holds(&state->shared[i], slot))
            drop_holder(state, &state->shared[i], slot);
}

static struct sim_shared *find_shared(struct sim_state *state, uint64_t identifier)
{
    for (uint32_t i = 0; i < state->shared_limit && i < SIM_SHARED_SLOTS; i++)
        if (state->shared[i].identifier == identifier)
            return &state->shared[i];
    return NULL;
}

struct sharing {
    uint64_t identifier;
    uint64_t bytes;
};

static int export_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    struct sharing *sharing = argument;
    uint32_t slot = device->machine->slot;
    REFUSE_IF(sharing->bytes > state->clients[slot].memory_bytes, -EINVAL);
    struct sim_shared *shared = find_shared(state, 0);
    if (!shared) {
        REFUSE_IF(state->shared_limit >= SIM_SHARED_SLOTS, -ENOSPC);
        shared = &state->shared[state->shared_limit++];
    }
    *shared = (struct sim_shared){
        .identifier = ++state->next_shared, .bytes = sharing->bytes, .owner = slot};
    shared->holders[slot / BITS] = 1ull << slot % BITS;
    sharing->identifier = shared->identifier;
    return 0;
}

int sim_shared_export(struct sim_device *device, uint64_t bytes, uint64_t *identifier)
{
    struct sharing sharing = {.bytes = bytes};
    int error = sim_device_transact(device, export_memory, &sharing, false);
    if (!error)
        *identifier = sharing.identifier;
    return error;
}

static int hold_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    struct sharing *sharing = argument;
    uint32_t slot = device->machine->slot;
    struct sim_shared *shared = find_shared(state, sharing->identifier);
    REFUSE_IF(!shared || !sharing->identifier, -ENOENT);
    shared->holders[slot / BITS] |= 1ull << slot % BITS;
    sharing->bytes = shared->bytes;
    return 0;
}

int sim_shared_hold(struct sim_device *device, uint64_t identifier, uint64_t *bytes)
{
    struct sharing sharing = {.identifier = identifier};
    int error = sim_device_transact(device, hold_memory, &sharing, true);
    if (!error && bytes)
        *bytes = sharing.bytes;
    return error;
}

static int drop_memory(struct sim_device *device, struct sim_state *state, void *argument)
{
    struct sim_shared *shared = find_shared(state, *(const uint64_t *)argument);
    uint32_t slot = device->machine->slot;
    REFUSE_IF(!shared || !shared->identifier || !holds(shared, slot), -ENOENT);
    drop_holder(state, shared, slot);
    return 0;
}

int sim_shared_drop(struct sim_device *device, uint64_t identifier)
{
    return sim_device_transact(device, drop_memory, &identifier, false);
}
