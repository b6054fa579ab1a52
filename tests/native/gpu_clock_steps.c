/* The GPU's clock by the host's, with a driver that is made up: an event is a moment of the GPU's clock,
 * whose rate and first value are arguments. Prints for each question how far off the answer is, in ns,
 * or "unknown"; then the events that are left and those that were lost.
 *
 *   gpu_clock_steps PARTS_PER_MILLION WORD…
 *     a700    the GPU comes to an event at 700 ms by the host's clock, which sets the clock by it
 *     l700    the same, and the host is told 30 us late
 *     q700    a question for an event of 700 ms
 *     x700    the context ends, and the next one begins
 */
#include "compute/measure/gpu_clock.h"

#include <stdio.h>
#include <stdlib.h>

#include "driver/real.h"

#define MOST_EVENTS 64
#define LATE_NS 30000
#define GPU_FIRST_NS 5e9 /* its clock began at another moment */

struct real real;

static struct event {
    double gpu_ns;
    int is_there;
} events[MOST_EVENTS];
static int made, destroyed, misused;

static struct event *event_of(CUevent event)
{
    struct event *found = (struct event *)(void *)event;
    misused += !found->is_there;
    return found;
}

static CUresult create(CUevent *event, unsigned int flags)
{
    (void)flags;
    events[made].is_there = 1;
    *event = (CUevent)(void *)&events[made++];
    return CUDA_SUCCESS;
}

static CUresult destroy(CUevent event)
{
    event_of(event)->is_there = 0;
    destroyed++;
    return CUDA_SUCCESS;
}

static CUresult elapsed(float *ms, CUevent from, CUevent to)
{
    *ms = (float)((event_of(to)->gpu_ns - event_of(from)->gpu_ns) / 1e6);
    return CUDA_SUCCESS;
}

int main(int count, char **words)
{
    struct gpu_clock clock = {0};
    double rate = 1 + strtod(words[1], NULL) / 1e6;
    char contexts[MOST_EVENTS], *context = contexts;
    CUevent event;
    real.cuEventCreate = create;
    real.cuEventDestroy_v2 = destroy;
    real.cuEventElapsedTime = elapsed;
    create(&event, 0);
    for (int i = 2; i < count; i++) {
        int64_t host_ns = (int64_t)(strtod(words[i] + 1, NULL) * 1e6), told_ns = 0;
        event_of(event)->gpu_ns = GPU_FIRST_NS + (double)host_ns / rate;
        if (words[i][0] == 'x')
            gpu_clock_forget(&clock, (CUcontext)(void *)context++);
        else if (words[i][0] != 'q')
            gpu_clock_set(&clock, (CUcontext)(void *)context, &event,
                          host_ns + (words[i][0] == 'l' ? LATE_NS : 0));
        else if (gpu_clock_at(&clock, (CUcontext)(void *)context, event, &told_ns))
            printf("%lld\n", (long long)(told_ns - host_ns));
        else
            printf("unknown\n");
    }
    printf("%d %d\n", made - destroyed, misused);
    return 0;
}
