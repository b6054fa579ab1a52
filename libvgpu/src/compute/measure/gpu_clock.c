#include "compute/measure/gpu_clock.h"

#include "driver/real.h"

#define UNRATED_NS 20000000 /* in which two clocks differ by less than an anchor may be late */
#define MOST_SPAN_NS \
    4000000000 /* the driver tells more than that to no better than half a microsecond */
#define MOST_RATE_OFF 0.001 /* no clock is so far off: then an anchor was not one */

static bool elapsed_ns(CUevent from, CUevent to, double *ns)
{
    float ms = 0;
    if (real.cuEventElapsedTime(&ms, from, to) != CUDA_SUCCESS)
        return false;
    *ns = (double)ms * GPU_CLOCK_NS_PER_MS;
    return true;
}

static void drop(struct gpu_clock *clock)
{
    if (clock->latest != NULL)
        real.cuEventDestroy_v2(clock->latest);
    if (clock->base != NULL)
        real.cuEventDestroy_v2(clock->base);
    *clock = (struct gpu_clock){0};
}

/* Takes the rate from the base to an event, unless a longer span has told it. Returns the span. */
static double rate_by_base(struct gpu_clock *clock, CUevent event, int64_t host_ns)
{
    double span_ns = 0;
    if (clock->base == NULL || !elapsed_ns(clock->base, event, &span_ns) || span_ns < UNRATED_NS ||
        span_ns < clock->span_ns / 2)
        return span_ns;
    double off = (double)(host_ns - clock->base_ns) / span_ns - 1;
    if (off > -MOST_RATE_OFF && off < MOST_RATE_OFF) {
        clock->rate_off = off;
        clock->span_ns = span_ns;
    }
    return span_ns;
}

static void move_base(struct gpu_clock *clock)
{
    clock->base = clock->latest;
    clock->base_ns = clock->latest_ns;
    clock->latest = NULL;
}

void gpu_clock_set(struct gpu_clock *clock, CUcontext context, CUevent *event, int64_t host_ns)
{
    if (clock->context != context)
        drop(clock);
    clock->context = context;
    if (clock->base == NULL)
        move_base(clock);
    bool is_far = rate_by_base(clock, *event, host_ns) > MOST_SPAN_NS;
    CUevent spare = clock->latest;
    if (clock->latest != NULL && is_far) {
        spare = clock->base;
        move_base(clock);
    }
    clock->latest = NULL;
    if (spare == NULL && real.cuEventCreate(&spare, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return;
    clock->latest = *event;
    clock->latest_ns = host_ns;
    *event = spare;
}

bool gpu_clock_at(const struct gpu_clock *clock, CUcontext context, CUevent event, int64_t *host_ns)
{
    double gpu_ns = 0;
    double most_ns = clock->span_ns > UNRATED_NS ? clock->span_ns : UNRATED_NS;
    if (clock->latest == NULL || clock->context != context ||
        !elapsed_ns(clock->latest, event, &gpu_ns) || gpu_ns > most_ns || gpu_ns > MOST_SPAN_NS)
        return false;
    *host_ns = clock->latest_ns + (int64_t)(gpu_ns * (1 + clock->rate_off));
    return true;
}

void gpu_clock_forget(struct gpu_clock *clock, CUcontext context)
{
    if (clock->context == context)
        *clock = (struct gpu_clock){0};
}
