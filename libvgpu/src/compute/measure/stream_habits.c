#include "compute/measure/stream_habits.h"

#define AVERAGE_OVER 16

void stream_habits_launch(struct stream_habits *habits, CUstream stream)
{
    habits->changes -= habits->changes / AVERAGE_OVER;
    habits->changes += stream != habits->last ? STREAM_HABITS_ALWAYS / AVERAGE_OVER : 0;
    habits->endings -= habits->endings / AVERAGE_OVER;
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

bool stream_habits_overlap(const struct stream_habits *habits)
{
    return habits->changes > STREAM_HABITS_ALWAYS / 4;
}
