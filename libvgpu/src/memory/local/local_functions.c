#include "memory/local/local_functions.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "compute/cap/gate.h"
#include "driver/log.h"

#define FIRST_PLACES 256 /* a power of two, as all sizes are */
#define ENDED 1          /* handle of a place that may be used again; 0: the search ends here */

struct table {
    size_t count;
    size_t used; /* places that are not 0: never more than three quarters */
    struct local_function places[];
};

static struct table *table; /* atomic */
static struct table *spare; /* of another table's time: the same size is filled again and again */
static uint32_t pending;    /* atomic */

void local_functions_after_fork(void)
{
    table = spare = NULL;
    pending = 0;
}

static struct local_function *place_at(struct table *of, uintptr_t handle, size_t step)
{
    uint64_t home = (handle ^ handle >> 32) * 0x9e3779b97f4a7c15u >> 32;
    return &of->places[(home + step) & (of->count - 1)];
}

struct local_function *local_functions_find(const void *function)
{
    struct table *now = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
    uintptr_t handle = (uintptr_t)function;
    if (now == NULL || handle <= ENDED)
        return NULL;
    for (size_t step = 0;; step++) {
        struct local_function *place = place_at(now, handle, step);
        uintptr_t found = __atomic_load_n(&place->handle, __ATOMIC_ACQUIRE);
        if (found == handle)
            return place;
        if (found == 0)
            return NULL;
    }
}

void local_functions_each(void (*visit)(struct local_function *function))
{
    for (size_t i = 0; table != NULL && i < table->count; i++)
        if (table->places[i].handle > ENDED)
            visit(&table->places[i]);
}

/* ---- notes ---- */

static struct table *make_table(size_t count)
{
    size_t bytes = sizeof(struct table) + count * sizeof(struct local_function);
    struct table *made = spare;
    if (made == NULL || made->count != count)
        made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else
        memset(made, 0, bytes);
    if (made == MAP_FAILED)
        return NULL;
    made->count = count;
    return made;
}

static struct local_function *spare_place(struct table *of, uintptr_t handle)
{
    size_t step = 0;
    while (place_at(of, handle, step)->handle > ENDED)
        step++;
    return place_at(of, handle, step);
}

static bool has_room(void)
{
    size_t live = 0, count = table != NULL ? table->count : FIRST_PLACES;
    if (table != NULL && 4 * (table->used + 1) <= 3 * count)
        return true;
    for (size_t i = 0; table != NULL && i < count; i++)
        live += table->places[i].handle > ENDED;
    struct table *before = table, *made = make_table(2 * live >= count ? 2 * count : count);
    if (made == NULL)
        return false;
    for (size_t i = 0; before != NULL && i < count; i++)
        if (before->places[i].handle > ENDED)
            *spare_place(made, before->places[i].handle) = before->places[i];
    made->used = live;
    __atomic_store_n(&table, made, __ATOMIC_RELEASE);
    spare = before;
    return true;
}

struct local_function *local_functions_note(const void *function, const void *owner,
                                            CUcontext context)
{
    struct local_function *place = local_functions_find(function);
    if (place != NULL && place->owner == owner && place->context == context)
        return place;    /* handed out once more */
    if (place != NULL) { /* another one's handle that ended unseen */
        local_functions_set_pending(place, false);
        *place = (struct local_function){place->handle, .owner = owner, .context = context};
        return place;
    }
    if (!has_room()) {
        log_line(LOG_ERROR, "out of host memory: local memory will not be charged ahead");
        return NULL;
    }
    place = spare_place(table, (uintptr_t)function);
    table->used += place->handle == 0;
    *place = (struct local_function){place->handle, .owner = owner, .context = context};
    __atomic_store_n(&place->handle, (uintptr_t)function, __ATOMIC_RELEASE);
    return place;
}

void local_functions_forget(const void *owner, CUcontext context)
{
    for (size_t i = 0; table != NULL && i < table->count; i++) {
        struct local_function *place = &table->places[i];
        if (place->handle <= ENDED || ((owner == NULL || place->owner != owner) &&
                                       (context == NULL || place->context != context)))
            continue;
        local_functions_set_pending(place, false);
        __atomic_store_n(&place->handle, ENDED, __ATOMIC_RELEASE);
    }
}

/* ---- which are pending ---- */

void local_functions_set_pending(struct local_function *function, bool is_pending)
{
    if (function->is_pending == is_pending)
        return;
    __atomic_store_n(&function->is_pending, is_pending, __ATOMIC_RELEASE);
    uint32_t left = __atomic_add_fetch(&pending, is_pending ? 1u : UINT32_MAX, __ATOMIC_SEQ_CST);
    if (is_pending || left == 0)
        gate_shut(); /* until a launch has looked how it is to be now */
}

bool local_functions_any_pending(void)
{
    return __atomic_load_n(&pending, __ATOMIC_SEQ_CST) != 0;
}

bool local_functions_is_pending(const void *function)
{
    if (__builtin_expect(!local_functions_any_pending(), 1))
        return false;
    const struct local_function *place = local_functions_find(function);
    return place != NULL && __atomic_load_n(&place->is_pending, __ATOMIC_ACQUIRE);
}
