/* Locks taken as named: in order, out of order, two leaves, one twice, one given back that is not
 * held. Built with VGPU_CHECK_LOCKS.
 *
 *   lock_order HOW */
#include <stdio.h>
#include <string.h>

#include "slice/locks.h"

static pthread_mutex_t first, second;

static void both(enum lock_level level, enum lock_level under)
{
    lock_take(&first, under);
    lock_take(&second, level);
    lock_give_back(&second);
    lock_give_back(&first);
}

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "";
    if (strcmp(how, "in order") == 0)
        both(LOCK_STREAM_POOL, LOCK_CONTEXTS);
    else if (strcmp(how, "several graph pools") == 0)
        both(LOCK_GRAPH_POOL, LOCK_GRAPH_POOL);
    else if (strcmp(how, "out of order") == 0)
        both(LOCK_CONTEXTS, LOCK_STREAM_POOL);
    else if (strcmp(how, "two stream pools") == 0)
        both(LOCK_STREAM_POOL, LOCK_STREAM_POOL);
    else if (strcmp(how, "two leaves") == 0)
        both(LOCK_ALLOCATION_MAP, LOCK_HANDLES);
    else if (strcmp(how, "not held") == 0)
        lock_give_back(&first);
    else
        return 2;
    puts("done");
    return 0;
}
