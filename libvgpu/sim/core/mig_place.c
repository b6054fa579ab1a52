/*
 * Where the driver places GPU instances. NVIDIA documents no rule; this one gives what every example
 * of its MIG user guide ("Instance Geometry") shows for the A100, also the order in which 3g.20gb
 * finds no room any more: of the places that are free, the one that takes away the fewest places of
 * all profiles, and of several the first.
 *
 * The driver's ids are those of a tree: 0 is all slices of memory, 1 and 2 are the halves, 3 to 6
 * the quarters, 7 to 14 the slices (in that guide: 13 begins at slice 6, 5 is 4:2, 1 is 0:4).
 */
#include <errno.h>

#include "mig.h"

uint32_t mig_instance_id(uint32_t start, uint32_t size)
{
    return SIM_MIG_SLICES / size - 1 + start / size;
}

static bool fits(const struct sim_mig_profile *profile, uint32_t start, uint32_t occupied)
{
    return profile->starts >> start & 1 && !(mig_mask(start, profile->size) & occupied);
}

/* How many places that are free now would not be any more. */
static uint32_t places_taken_by(const struct sim_mig_profile *profiles, uint32_t count,
                                uint32_t occupied, uint32_t mask)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t start = 0; start < SIM_MIG_SLICES; start++)
            if (fits(&profiles[i], start, occupied) && mig_mask(start, profiles[i].size) & mask)
                taken++;
    return taken;
}

int sim_mig_place(const struct sim_mig_profile *profiles, uint32_t count, uint32_t occupied,
                  uint32_t existing, uint32_t wanted)
{
    const struct sim_mig_profile *profile = &profiles[wanted];
    int best = -ENOSPC;
    uint32_t fewest = UINT32_MAX;
    REFUSE_IF(existing >= profile->instances, -ENOSPC);
    for (uint32_t start = 0; start < SIM_MIG_SLICES; start++) {
        if (!fits(profile, start, occupied))
            continue;
        uint32_t taken = places_taken_by(profiles, count, occupied, mig_mask(start, profile->size));
        if (taken < fewest) {
            fewest = taken;
            best = (int)start;
        }
    }
    return best;
}
