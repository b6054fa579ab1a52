/* What a fork does to the shim, for all its modules in one place.
 *
 * Before: the fork guard is taken, so that no child inherits the descriptor of a claim, nor a
 * half-made slot. In the parent it is given back. The child has none of the threads that held locks
 * or were in the middle of a change, none of the GPU's memory and no slot: every module forgets
 * what it knew and makes its locks usable again. The child claims a slot when it first needs one.
 *
 * A module with something to forget has a function for it, named `…_after_fork`, in its header and
 * in the list below. */
#include <pthread.h>
#include <stddef.h>

#include "compute/cap/collective.h"
#include "compute/cap/throttle.h"
#include "compute/cap/uncapped.h"
#include "hooks/hook_context.h"
#include "hooks/hook_external.h"
#include "hooks/hook_ipc.h"
#include "memory/contexts/context_charge.h"
#include "memory/contexts/context_cost.h"
#include "memory/contexts/reconcile.h"
#include "memory/graphs/graph_memory.h"
#include "memory/ledger/allocation_map.h"
#include "memory/ledger/deferred_free.h"
#include "memory/ledger/slabs.h"
#include "memory/local/local_memory.h"
#include "memory/pools/pool_state.h"
#include "memory/shared/shared_memory.h"
#include "memory/vmm/sparse_array.h"
#include "memory/vmm/vmm_books.h"
#include "slice/locks.h"
#include "slice/region.h"

/* In the order of the locks that they reset (locks.h), but the slot before everything: from then on
 * nothing is charged to the parent. */
static void (*const child_resets[])(void) = {
    region_after_fork, /* LOCK_FORK_GUARD, the slot */
    context_charge_after_fork,
    context_cost_after_fork,
    contexts_after_fork,      /* LOCK_CONTEXTS */
    local_memory_after_fork,  /* of LOCK_CONTEXTS */
    ipc_after_fork,           /* LOCK_OPENS */
    deferred_free_after_fork, /* LOCK_DEFERRED_FREES */
    shared_memory_after_fork, /* LOCK_SHARED_MEMORY */
    pool_after_fork,          /* LOCK_GRAPH_POOL, LOCK_STREAM_POOL, LOCK_POOLS */
    sparse_array_after_fork,  /* LOCK_SPARSE_ARRAYS */
    reconcile_after_fork,     /* LOCK_RECONCILE */
    throttle_after_fork,      /* LOCK_THROTTLE */
    uncapped_after_fork,      /* LOCK_SAMPLES */
    slabs_after_fork,         /* LOCK_SLABS */
    collective_after_fork,    /* LOCK_COLLECTIVES */
    vmm_after_fork,           /* LOCK_HANDLES */
    graph_memory_after_fork,  /* LOCK_GRAPHS */
    external_after_fork,      /* LOCK_EXTERNAL */
    allocation_map_after_fork /* LOCK_ALLOCATION_MAP */
};

static void in_child(void)
{
    locks_forget();
    for (size_t i = 0; i < sizeof child_resets / sizeof *child_resets; i++)
        child_resets[i]();
}

bool fork_watch(void)
{
    return pthread_atfork(region_before_fork, region_after_fork_in_parent, in_child) == 0;
}
