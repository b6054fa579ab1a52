#include "compute/cap/collective.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "driver/capture.h"
#include "driver/log.h"
#include "driver/real.h"
#include "slice/locks.h"

/* In the lowest bits of a word, above them the handle: an address of 57 bits at most. */
enum { NOT_ASKED, IS_NONE, IS_COLLECTIVE };
#define STATE_BITS 2
#define STATES 3u        /* those bits */
#define FIRST_COUNT 1024 /* a power of two, as all are */

struct table {
    size_t count, used;
    uint64_t words[]; /* atomic; 0: free */
};

static pthread_mutex_t table_lock;
static struct table
    *table; /* atomic; one that was replaced stays mapped, since some may still read it */

void collective_after_fork(void)
{
    lock_reset(&table_lock);
}

/* The word of a handle, or the free one where the search for it ends. */
static uint64_t *place_of(struct table *of, uint64_t handle)
{
    uint64_t home = (handle ^ handle >> 32) * 0x9e3779b97f4a7c15u >> 32;
    for (;; home++) {
        uint64_t *place = &of->words[home & (of->count - 1)];
        uint64_t word = __atomic_load_n(place, __ATOMIC_RELAXED);
        if (word == 0 || word >> STATE_BITS == handle)
            return place;
    }
}

/* Makes room for one more. When the table is nearly full, all answers but "it is a collective" are dropped: the driver
 * tells the names again. A function whose name the driver did not tell is no collective. */
static bool make_room(void)
{
    size_t kept = 0, count = table == NULL ? 0 : table->count;
    if (table != NULL && 4 * (table->used + 1) <= 3 * count)
        return true;
    for (size_t i = 0; i < count; i++)
        kept += (table->words[i] & STATES) == IS_COLLECTIVE;
    size_t larger = count == 0 ? FIRST_COUNT : 4 * kept >= count ? 2 * count : count;
    struct table *made = mmap(NULL, sizeof *made + larger * sizeof *made->words,
                              PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return false;
    made->count = larger;
    made->used = kept;
    for (size_t i = 0; i < count; i++)
        if ((table->words[i] & STATES) == IS_COLLECTIVE)
            *place_of(made, table->words[i] >> STATE_BITS) = table->words[i];
    __atomic_store_n(&table, made, __ATOMIC_RELEASE);
    return true;
}

static void keep(const void *handle, uint64_t state)
{
    uint64_t number = (uint64_t)(uintptr_t)handle;
    if (handle == NULL)
        return;
    lock_take(&table_lock, LOCK_COLLECTIVES);
    if (make_room()) {
        uint64_t *place = place_of(table, number);
        table->used += *place == 0;
        __atomic_store_n(place, number << STATE_BITS | state, __ATOMIC_RELAXED);
    } else {
        log_line(LOG_ERROR, "out of host memory: a collective may be held like other launches");
    }
    lock_give_back(&table_lock);
}

static uint64_t state_of(const void *handle)
{
    struct table *now = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
    return now == NULL || handle == NULL
               ? NOT_ASKED
               : __atomic_load_n(place_of(now, (uint64_t)(uintptr_t)handle), __ATOMIC_RELAXED) &
                     STATES;
}

void collective_named(const void *function, const char *name)
{
    keep(function, name == NULL ? NOT_ASKED : collective_is_name(name) ? IS_COLLECTIVE : IS_NONE);
}

void collective_keep(const void *handle, bool is_collective)
{
    if (is_collective || state_of(handle) != NOT_ASKED)
        keep(handle, is_collective ? IS_COLLECTIVE : IS_NONE);
}

static bool ask_driver(CUfunction function)
{
    const char *name = NULL;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    struct capture_pause pause = capture_pause();
    if (real.cuFuncGetName != NULL)
        result = real.cuFuncGetName(&name, function);
    if (result != CUDA_SUCCESS && real.cuKernelGetName != NULL)
        result = real.cuKernelGetName(&name, (CUkernel)function);
    capture_resume(pause);
    return result == CUDA_SUCCESS && collective_is_name(name);
}

bool collective_is_known(const void *handle)
{
    return state_of(handle) == IS_COLLECTIVE;
}

bool collective_is_function(CUfunction function)
{
    uint64_t state = state_of(function);
    if (state == NOT_ASKED && function != NULL) {
        state = ask_driver(function) ? IS_COLLECTIVE : IS_NONE;
        keep(function, state);
    }
    return state == IS_COLLECTIVE;
}
