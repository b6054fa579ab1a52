/* The part of vmm.h about tiles of sparse arrays. A region is known by its exact place: what is
 * mapped as one region and unmapped in others stays until its array ends. */
#include <stddef.h>

#include "memory/vmm/vmm_books.h"

void vmm_tile_leaves(struct vmm_place place, uint64_t before, uint64_t stream)
{
    struct vmm_ending ending = vmm_enter();
    uint64_t at = vmm_ranges_first(&place);
    for (struct vmm_range *range; (range = vmm_ranges_at(at)) != NULL; at++) {
        if (!vmm_same_space(&range->place, &place) || range->place.address != place.address)
            break;
        if (range->place.bytes != place.bytes || range->confirmed == 0 ||
            range->confirmed > before || range->is_leaving)
            continue;
        range->stream = stream;
        range->confirmed = vmm_next_moment();
        vmm_range_leaves(range);
    }
    vmm_leave(&ending);
}

void vmm_stream_done(uint64_t stream, uint64_t before)
{
    struct vmm_ending ending = vmm_enter();
    if (vmm_any_leaves()) {
        uint64_t from = vmm_ranges_first(&(struct vmm_place){.kind = VMM_TILE});
        uint64_t at = from;
        struct vmm_range *range;
        for (; (range = vmm_ranges_at(at)) != NULL && range->place.kind == VMM_TILE; at++)
            if (range->is_leaving && range->stream == stream && range->confirmed <= before)
                vmm_end_range(&ending, range);
        vmm_ranges_sweep(from, at);
    }
    vmm_leave(&ending);
}

void vmm_array_ended(uint64_t array)
{
    struct vmm_ending ending = vmm_enter();
    vmm_drop_space(&ending, VMM_TILE, array);
    vmm_leave(&ending);
}
