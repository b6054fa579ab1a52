#include "compute/measure/interlock.h"

void interlock_release(struct interlock *interlock, int64_t now_ns)
{
    interlock->released_ns = now_ns;
}

int64_t interlock_return(struct interlock *interlock, int64_t now_ns)
{
    int64_t since_ns = now_ns - interlock->released_ns;
    bool was_waited_for = interlock->released_ns != 0 && since_ns < INTERLOCK_SOON_NS;
    interlock->released_ns = 0;
    if (!was_waited_for)
        return -1;
    if (interlock_is_on(interlock, now_ns)) /* holds are short now, so this may be by chance */
        return since_ns;
    interlock->span_ns = interlock->span_ns == 0                  ? INTERLOCK_FIRST_NS
                         : interlock->span_ns < INTERLOCK_MOST_NS ? 2 * interlock->span_ns
                                                                  : INTERLOCK_MOST_NS;
    interlock->until_ns = now_ns + interlock->span_ns;
    return since_ns;
}

bool interlock_is_on(const struct interlock *interlock, int64_t now_ns)
{
    return now_ns < interlock->until_ns;
}
