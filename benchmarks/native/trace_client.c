/*
 * Plays a real program back: makes the same driver calls in the same order, without end, with as
 * many kernels as it had, each launch as long on the GPU as it was there, and the same pauses of
 * the host between calls. A pause is counted from the end of the call before, so a program that is
 * held up does not catch up.
 *
 * Arguments are word=value: script (a file; trace_script.h has its form), rounds_per_ms (of the
 * GPU, as client.h tells), warm_up and seconds (of the measured time), own_time=1 (where the program's time is
 * its own: pauses are slept). It says "ready" once it could begin, begins when stdin says "go", plays for
 * the warm-up, waits for the GPU, measures, waits for the GPU again and prints one line of JSON:
 * steps a second, how long a step took the host (50 and 99 of 100 at most), launches (with memsets,
 * copies and graphs) a second, GPU time of kernels that a step asks for, and the part of the time
 * that the host's other programs kept it from a processor. Without a "go" it ends at once.
 *
 * Entry points come from cuGetProcAddress, as cudart's do. On a real GPU the first block of a
 * kernel works, the others end at once; a simulated one goes by the kernel's name. One thread does
 * everything.
 */
#include <string.h>

#include "client.h"
#include "trace_driver.h"

static struct trace_script script;
static uint64_t launches;
static bool has_own_time;

/* Returns the first moment from then on. A sleep comes too late, but not where time is the program's own. */
static uint64_t pass_until(uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / SECOND_NS), (long)(until_ns % SECOND_NS)};
    uint64_t now = until_ns;
    if (has_own_time)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    else
        while ((now = now_ns()) < until_ns)
            continue;
    return now;
}

/* Plays one step; returns when it was over. */
static uint64_t play_step(const struct trace_rows *step)
{
    uint64_t now = 0;
    for (unsigned i = 0; i < step->count; i++) {
        struct trace_row *row = &step->rows[i];
        trace_driver_call(row);
        launches += row->call >= TRACE_LAUNCH && row->call <= TRACE_COPY_WITHIN;
        now = pass_until(now_ns() + row->gap_ns);
    }
    return now;
}

/* How long this process's first thread, which plays, has waited for a processor; 0: not known. */
static uint64_t cpu_wait_ns(void)
{
    unsigned long long run_ns, wait_ns;
    FILE *file = has_own_time ? NULL : fopen("/proc/self/schedstat", "re");
    int found = file != NULL && fscanf(file, "%llu %llu", &run_ns, &wait_ns) == 2;
    if (file != NULL)
        fclose(file);
    return found ? wait_ns : 0;
}

struct played {
    uint64_t steps, ns, cpu_wait_ns;
    uint64_t *step_ns; /* of each step */
};

/* Plays whole steps for at least so long, from the first one on, and waits for the GPU. */
static struct played play(double seconds)
{
    struct played played = {0};
    uint64_t begin = now_ns(), last = begin, room = 0;
    uint64_t waited_ns = cpu_wait_ns(), end = begin + (uint64_t)(seconds * (double)SECOND_NS);
    while (last < end) {
        uint64_t now = play_step(&script.step[played.steps % script.steps]);
        if (script.sync_steps != 0 && (played.steps + 1) % script.sync_steps == 0) {
            trace_driver_wait();
            now = now_ns();
        }
        if (played.steps == room) {
            room = 2 * room + 1024;
            played.step_ns = realloc(played.step_ns, room * sizeof *played.step_ns);
            if (played.step_ns == NULL) {
                fprintf(stderr, "no memory for the times of %llu steps\n",
                        (unsigned long long)room);
                exit(1);
            }
        }
        played.step_ns[played.steps++] = now - last;
        last = now;
    }
    trace_driver_wait();
    played.ns = now_ns() - begin;
    played.cpu_wait_ns = cpu_wait_ns() - waited_ns;
    return played;
}

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* GPU time of kernels that a step asks for, on average. */
static double asked_ns(void)
{
    uint64_t whole = 0, of_graph = 0;
    for (unsigned i = 0; i < script.graph.count; i++)
        of_graph += script.graph.rows[i].blocks != 0 ? script.graph.rows[i].gpu_ns : 0;
    for (unsigned step = 0; step < script.steps; step++)
        for (unsigned i = 0; i < script.step[step].count; i++) {
            const struct trace_row *row = &script.step[step].rows[i];
            whole += row->call == TRACE_LAUNCH_GRAPH ? of_graph : 0;
            whole += row->blocks != 0 ? row->gpu_ns : 0;
        }
    return (double)whole / script.steps;
}

static void tell(struct played played)
{
    double seconds = (double)played.ns / (double)SECOND_NS;
    qsort(played.step_ns, played.steps, sizeof *played.step_ns, compare);
    printf("{\"steps\": %llu, \"seconds\": %.6f, \"steps_per_second\": %.4f, "
           "\"step_p50_ms\": %.6f, \"step_p99_ms\": %.6f, \"launches_per_second\": %.1f, "
           "\"gpu_ms_per_step\": %.6f, \"cpu_wait_percent\": %.3f}\n",
           (unsigned long long)played.steps, seconds, (double)played.steps / seconds,
           (double)played.step_ns[(played.steps - 1) / 2] / 1e6,
           (double)played.step_ns[(played.steps - 1) * 99 / 100] / 1e6, (double)launches / seconds,
           asked_ns() / 1e6, 100 * (double)played.cpu_wait_ns / (double)played.ns);
    fflush(stdout);
}

static uint64_t read_rate(const char *value, const char *argument)
{
    char *end;
    uint64_t rate = strtoull(value, &end, 10);
    if (rate == 0 || *end != '\0') {
        fprintf(stderr, "argument '%s': must be a number from 1 on\n", argument);
        exit(2);
    }
    return rate;
}

static double read_seconds(const char *value, const char *argument)
{
    char *end;
    double seconds = strtod(value, &end);
    if (*value == '\0' || *end != '\0' || !(seconds >= 0 && seconds <= 1e6)) {
        fprintf(stderr, "argument '%s': must be a number of seconds up to a million\n", argument);
        exit(2);
    }
    return seconds;
}

int main(int count, char **arguments)
{
    const char *path = NULL;
    double warm_up = 1, seconds = 10;
    uint64_t rounds_per_ms = 0;
    for (int i = 1; i < count; i++) {
        const char *argument = arguments[i];
        if (strncmp(argument, "script=", 7) == 0) {
            path = argument + 7;
        } else if (strncmp(argument, "warm_up=", 8) == 0) {
            warm_up = read_seconds(argument + 8, argument);
        } else if (strncmp(argument, "seconds=", 8) == 0) {
            seconds = read_seconds(argument + 8, argument);
        } else if (strncmp(argument, "rounds_per_ms=", 14) == 0) {
            rounds_per_ms = read_rate(argument + 14, argument);
        } else if (strcmp(argument, "own_time=1") == 0) {
            has_own_time = true;
        } else {
            fprintf(stderr,
                    "argument '%s' is not known; there are script=, rounds_per_ms=, warm_up=, "
                    "seconds= and own_time=1\n",
                    argument);
            return 2;
        }
    }
    if (path == NULL) {
        fprintf(stderr, "no script: give script=FILE\n");
        return 2;
    }
    script = trace_script_read(path);
    trace_driver_prepare(&script, rounds_per_ms);
    if (!client_may_go())
        return 0;
    free(play(warm_up).step_ns);
    launches = 0;
    struct played played = play(seconds);
    if (played.steps == 0) {
        fprintf(stderr, "nothing was played in %g s\n", seconds);
        return 1;
    }
    tell(played);
    return 0;
}
