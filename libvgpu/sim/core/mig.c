/* What a GPU is cut into: read from the one word that says it (mig.h). */
#include "mig.h"

#include <errno.h>

_Static_assert(SIM_MAX_DEVICES == SIM_MAX_GPUS * (1 + SIM_MIG_SLOTS), "room for all instances");
_Static_assert(SIM_MIG_SLOTS < 8 && SIM_MIG_PROFILES < 15, "a layout fits into a word");

const struct sim_device_identity *mig_identity(const struct sim_machine *machine, uint32_t gpu)
{
    return &machine->devices[gpu].header->identity;
}

uint64_t mig_word(const struct sim_machine *machine, uint32_t gpu)
{
    return __atomic_load_n(&machine->devices[gpu].header->mig, __ATOMIC_ACQUIRE);
}

uint32_t mig_room(const struct sim_machine *machine, uint32_t gpu, uint32_t slot)
{
    uint32_t room = machine->header->gpu_count;
    for (uint32_t i = 0; i < gpu; i++)
        room += mig_identity(machine, i)->mig_profile_count ? SIM_MIG_SLOTS : 0;
    return room + slot;
}

static bool has_mig(const struct sim_machine *machine, uint32_t gpu)
{
    return gpu < machine->header->gpu_count && mig_identity(machine, gpu)->mig_profile_count;
}

int sim_mig_mode(const struct sim_machine *machine, uint32_t gpu)
{
    return has_mig(machine, gpu) ? (mig_word(machine, gpu) & MIG_ON) != 0 : -ENOTSUP;
}

int sim_mig_pending_mode(const struct sim_machine *machine, uint32_t gpu)
{
    return has_mig(machine, gpu) ? (mig_word(machine, gpu) & MIG_ON_PENDING) != 0 : -ENOTSUP;
}

int sim_mig_is_there(const struct sim_machine *machine, uint32_t device)
{
    if (device < machine->header->gpu_count)
        return true;
    if (device >= machine->header->device_count)
        return false;
    uint32_t gpu = machine->devices[device].header->identity.gpu - 1;
    uint32_t slot = device - mig_room(machine, gpu, 0);
    return (mig_byte(mig_word(machine, gpu), slot) & MIG_COMPUTE) != 0;
}

uint32_t sim_mig_instances(const struct sim_machine *machine, uint32_t gpu,
                           struct sim_mig_instance instances[SIM_MIG_SLOTS])
{
    uint32_t count = 0;
    if (!has_mig(machine, gpu))
        return 0;
    uint64_t word = mig_word(machine, gpu);
    for (uint32_t slot = 0; slot < SIM_MIG_SLOTS; slot++) {
        uint32_t byte = mig_byte(word, slot);
        if (!mig_is_used(byte))
            continue;
        uint32_t size = mig_identity(machine, gpu)->mig_profiles[mig_profile_at(byte)].size;
        struct sim_mig_instance found = {.slot = slot,
                                         .device = mig_room(machine, gpu, slot),
                                         .profile = mig_profile_at(byte),
                                         .start = mig_start(byte),
                                         .id = mig_instance_id(mig_start(byte), size),
                                         .has_compute = (byte & MIG_COMPUTE) != 0};
        uint32_t at = count++;
        for (; at > 0 && instances[at - 1].id > found.id; at--)
            instances[at] = instances[at - 1];
        instances[at] = found;
    }
    return count;
}

uint32_t mig_occupied(const struct sim_machine *machine, uint32_t gpu, uint64_t word)
{
    const struct sim_mig_profile *profiles = mig_identity(machine, gpu)->mig_profiles;
    uint32_t occupied = 0;
    for (uint32_t slot = 0; slot < SIM_MIG_SLOTS; slot++) {
        uint32_t byte = mig_byte(word, slot);
        if (mig_is_used(byte))
            occupied |= mig_mask(mig_start(byte), profiles[mig_profile_at(byte)].size);
    }
    return occupied;
}

uint32_t mig_existing(uint64_t word, uint32_t profile)
{
    uint32_t existing = 0;
    for (uint32_t slot = 0; slot < SIM_MIG_SLOTS; slot++) {
        uint32_t byte = mig_byte(word, slot);
        existing += mig_is_used(byte) && mig_profile_at(byte) == profile;
    }
    return existing;
}

uint32_t sim_mig_capacity(const struct sim_machine *machine, uint32_t gpu, uint32_t profile)
{
    const struct sim_device_identity *identity = mig_identity(machine, gpu);
    uint64_t word = mig_word(machine, gpu);
    uint32_t occupied = mig_occupied(machine, gpu, word), more = 0;
    for (;;) {
        int start = sim_mig_place(identity->mig_profiles, identity->mig_profile_count, occupied,
                                  mig_existing(word, profile) + more, profile);
        if (start < 0)
            return more;
        occupied |= mig_mask((uint32_t)start, identity->mig_profiles[profile].size);
        more++;
    }
}
