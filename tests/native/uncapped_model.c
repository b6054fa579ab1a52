/* The sampling of uncapped launches under simulated time: a program of a given pattern, one GPU
 * that runs launches in order, and pairs of events that measure them exactly. Prints what the GPU
 * did, what the estimate says of it, and what the sampling cost. */
#include "compute/cap/uncapped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/cap/gate.h"
#include "compute/measure/timing.h"
#include "compute/measure/utilisation.h"
#include "driver/capture.h"
#include "slice/region.h"
#include "slice/waiting.h"

#define LAUNCH_NS 4000 /* what a launch costs the program */
#define RUN_NS 60000000000
#define US 1000

static int64_t clock_ns, gpu_free_ns, true_ns, last_ns;
static uint64_t true_launches, pairs, gated;
static bool is_gate_shut = true;
static struct vgpu_usage_slot_device counters;
static struct vgpu_usage_device shared;
static int64_t ends_ns[TIMING_BATCHES], took_ns[TIMING_BATCHES];

/* ---- what uncapped.c stands on --------------------------------------------------------------- */

int64_t waiting_now_ns(void)
{
    return clock_ns;
}

bool capture_is_active(CUstream stream)
{
    return false;
}

bool region_claim(void)
{
    return true;
}

uint32_t region_device_count(void)
{
    return 1;
}

void *region_usage(void)
{
    return NULL;
}

struct vgpu_usage_device *region_shared(uint32_t device)
{
    return &shared;
}

struct vgpu_usage_slot_device *region_counters(uint32_t device)
{
    return &counters;
}

void utilisation_sample(void *usage, uint32_t device, uint64_t now_ns)
{
}

void gate_shut(void)
{
    is_gate_shut = true;
}

bool timing_open(struct timing *timing, CUstream stream, int64_t now_ns)
{
    if (timing->is_open || timing->count == TIMING_BATCHES)
        return false;
    timing->ring[timing->count] = (struct batch){.opened_ns = now_ns};
    timing->count++;
    return timing->is_open = true;
}

struct batch *timing_open_batch(struct timing *timing)
{
    return timing->is_open ? &timing->ring[timing->count - 1] : NULL;
}

void batch_count(struct batch *batch, uint64_t key, int64_t price_ns, int64_t launches)
{
    batch->kinds[0].key = key;
}

void timing_drop_open(struct timing *timing)
{
    timing->count -= timing->is_open;
    timing->is_open = false;
}

bool timing_close(struct timing *timing, int64_t now_ns)
{
    timing->is_open = false;
    ends_ns[timing->count - 1] = gpu_free_ns;
    took_ns[timing->count - 1] = last_ns;
    pairs++;
    return true;
}

int timing_harvest(struct timing *timing, struct batch *batch, int64_t *gpu_ns)
{
    if (timing->count == 0 || ends_ns[timing->count - 1] > clock_ns)
        return 0;
    timing->count--;
    *batch = timing->ring[timing->count];
    *gpu_ns = took_ns[timing->count];
    return 1;
}

bool timing_take_of_context(struct timing *timing, CUcontext context, struct batch *batch)
{
    return false;
}

void timing_forget_context(struct timing *timing, CUcontext context)
{
}

/* ---- the program ----------------------------------------------------------------------------- */

static void launch(int64_t gpu_ns)
{
    struct launch own = {0};
    if (is_gate_shut) {
        gated++;
        is_gate_shut = uncapped_is_sampling();
        uncapped_before(&own);
    }
    clock_ns += LAUNCH_NS;
    gpu_free_ns = (gpu_free_ns > clock_ns ? gpu_free_ns : clock_ns) + gpu_ns;
    last_ns = gpu_ns;
    true_ns += gpu_ns;
    true_launches++;
    if (own.pairing != 0)
        uncapped_after(&own);
}

static void wait(void)
{
    clock_ns = (gpu_free_ns > clock_ns ? gpu_free_ns : clock_ns) + LAUNCH_NS;
    uncapped_after_wait();
}

static void step(const char *pattern, uint64_t number)
{
    int count = strcmp(pattern, "huge") == 0 ? 100000 : 500;
    if (strcmp(pattern, "one") == 0) {
        launch(200 * US);
    } else if (strcmp(pattern, "turns") == 0) {
        launch(number % 4 == 0 ? 200 * US : 4000 * US);
    } else if (strcmp(pattern, "twice") == 0) { /* every other wait finds nothing to wait for */
        launch(300 * US);
        wait();
    } else if (strcmp(pattern, "idle") == 0) {
        launch(1000 * US);
        clock_ns += 9000 * US;
    } else if (strcmp(pattern, "phases") == 0) { /* ten seconds each of this and that */
        launch(clock_ns / 10000000000 % 2 == 0 ? 100 * US : 20000 * US);
        clock_ns += 2000 * US;
    } else { /* "many", "huge": another kernel in each part of a round */
        for (int i = 0; i < count; i++)
            launch(i < count / 5 ? 5 * US : i < count / 2 ? 20 * US : 60 * US);
    }
    wait();
}

int main(int argc, char **argv)
{
    clock_ns = 1000000000 + strtoll(argv[2], NULL, 10) * 777777;
    int64_t begin_ns = clock_ns;
    for (uint64_t number = 0; clock_ns < begin_ns + RUN_NS; number++)
        step(argv[1], number);
    printf("%lld %llu %llu %llu %llu %llu %lld\n", (long long)true_ns,
           (unsigned long long)true_launches, (unsigned long long)counters.gpu_time_ns,
           (unsigned long long)counters.launches, (unsigned long long)pairs,
           (unsigned long long)gated, (long long)(clock_ns - begin_ns));
    return 0;
}
