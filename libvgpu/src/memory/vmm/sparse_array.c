#include "memory/vmm/sparse_array.h"

#include <stdbool.h>
#include <stddef.h>

#include "driver/real.h"
#include "memory/ledger/charge.h"
#include "memory/vmm/vmm.h"
#include "slice/locks.h"
#include "slice/region.h"
#include "vgpu/contract.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sparse_array_after_fork(void)
{
    lock_reset(&lock);
}

static void on_end(struct charge_owner *owner, const struct allocation *allocation)
{
    (void)owner;
    vmm_array_ended(allocation->bytes);
}

static struct charge_owner owner = {.release = on_end};

/* It takes no bytes itself: their place holds the number of its life. An ordinary array that has
 * that handle keeps its entry, and its charge: 0 then, as for no array at all. */
static uint64_t keep(uint64_t array, CUcontext context)
{
    struct allocation former = {0};
    struct allocation allocation = {.address = array,
                                    .bytes = vmm_new_number(),
                                    .context = charge_context(context),
                                    .owner = &owner,
                                    .kind = VGPU_KIND_VMM,
                                    .space = SPACE_ARRAY};
    if (array == 0 || !allocation_map_insert(&allocation, &former))
        return 0;
    if (former.address != 0 && former.owner != &owner) {
        allocation_map_insert(&former, &allocation);
        return 0;
    }
    if (former.address != 0)
        vmm_array_ended(former.bytes); /* in a way nobody told us */
    return allocation.bytes;
}

void sparse_array_made(uint64_t array)
{
    CUcontext context = NULL;
    if (region_open() != REGION_MAPPED)
        return;
    if (real.cuCtxGetCurrent != NULL)
        real.cuCtxGetCurrent(&context);
    keep(array, context);
}

uint64_t sparse_array_life(uint64_t array)
{
    struct allocation found;
    lock_take(&lock, LOCK_SPARSE_ARRAYS);
    uint64_t life = 0;
    if (!allocation_map_find(SPACE_ARRAY, array, &found))
        life = keep(array, NULL);
    else if (found.owner == &owner)
        life = found.bytes;
    lock_give_back(&lock);
    return life;
}
