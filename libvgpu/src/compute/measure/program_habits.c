#include "compute/measure/program_habits.h"

#define AVERAGE_OVER 16

void stream_habits_launch(struct stream_habits *habits, CUstream stream, bool is_dependent)
{
    habits->changes -= habits->changes / AVERAGE_OVER;
    habits->changes += stream != habits->last ? STREAM_HABITS_ALWAYS / AVERAGE_OVER : 0;
    habits->endings -= habits->endings / AVERAGE_OVER;
    habits->dependents -= habits->dependents / AVERAGE_OVER;
    habits->dependents += is_dependent ? STREAM_HABITS_ALWAYS / AVERAGE_OVER : 0;
    habits->last = stream;
}

void stream_habits_end(struct stream_habits *habits)
{
    /* Prepaid launches are not seen, and their streams' ends are: it must not grow without end. */
    habits->endings += (STREAM_HABITS_ALWAYS - habits->endings) / AVERAGE_OVER;
}

bool stream_habits_are_short(const struct stream_habits *habits)
{
    return habits->endings > STREAM_HABITS_ALWAYS / AVERAGE_OVER;
}

bool stream_habits_are_chains(const struct stream_habits *habits)
{
    return habits->dependents > STREAM_HABITS_ALWAYS / 4 / AVERAGE_OVER;
}

bool stream_habits_overlap(const struct stream_habits *habits)
{
    return habits->changes > STREAM_HABITS_ALWAYS / 4;
}

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
