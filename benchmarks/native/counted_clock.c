/* A clock of reads: preloaded, it is one microsecond later each time somebody asks, whatever the host
 * does meanwhile. So a library that looks at the clock does the same work in every run, and its
 * instructions can be counted. For programs of one thread. */
#include <time.h>

#define STEP_NS 1000
#define SECOND_NS 1000000000

static struct timespec shown = {.tv_sec = 1000};

int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    shown.tv_nsec += STEP_NS;
    if (shown.tv_nsec == SECOND_NS)
        shown = (struct timespec){.tv_sec = shown.tv_sec + 1};
    *now = shown;
    return 0;
}
