/* Launches kernels of several kinds in turn, one in a period at most, as a launch-bound program
 * does. Arguments: kinds, GPU time of each in ns, period in ns, and the ns beyond which a launch is
 * counted as slow. Says "ready" once the first ones have run; then each line of stdin is answered
 * by one:
 *   kind NUMBER NS   that kind lasts so long from now on
 *   period NS        0: as fast as they go
 *   gap NS           of host work after each launch, whatever that took; 0 at first
 *   blocks NUMBER    of each launch from now on, 1 at first
 *   tell             how many launches, how many of them slow, and how much GPU time was asked for
 * and the end of stdin ends it. Linked with libcuda. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spin_kernel.h"

#define MOST_KINDS 64
#define WARM_UP_ROUNDS 20
#define SECOND_NS 1000000000

static int64_t lengths_ns[MOST_KINDS], period_ns, gap_ns,
    blocks = 1;                          /* atomic; stdin's thread writes them */
static int64_t launches, slow, asked_ns; /* atomic; the first thread writes them */

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

static int64_t get(const int64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void set(int64_t *word, int64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* There where time is not the machine's own (virtual_time), and sleeping is exact. */
extern const char sim_sleeps_are_exact __attribute__((weak));

static void pass_time(int64_t until_ns)
{
    struct timespec until = {until_ns / SECOND_NS, until_ns % SECOND_NS};
    if (&sim_sleeps_are_exact)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    else
        __builtin_ia32_pause();
}

/* Not by stdio, whose waits are nobody's to take over (virtual_time). */
static bool read_line(char *line, size_t size)
{
    size_t length = 0;
    while (length < size - 1 && read(0, line + length, 1) == 1)
        if (line[length++] == '\n') {
            line[length] = '\0';
            return true;
        }
    return false;
}

static void *listen(void *kinds)
{
    char line[80];
    long number, ns;
    while (read_line(line, sizeof line)) {
        if (sscanf(line, "kind %ld %ld", &number, &ns) == 2 && number < *(int *)kinds)
            set(&lengths_ns[number], ns);
        else if (sscanf(line, "period %ld", &ns) == 1)
            set(&period_ns, ns);
        else if (sscanf(line, "gap %ld", &ns) == 1)
            set(&gap_ns, ns);
        else if (sscanf(line, "blocks %ld", &number) == 1)
            set(&blocks, number);
        printf("%lld %lld %lld\n", (long long)get(&launches), (long long)get(&slow),
               (long long)get(&asked_ns));
        fflush(stdout);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUstream stream;
    CUfunction functions[MOST_KINDS];
    int kinds = argc > 4 ? atoi(argv[1]) : 0;
    if (kinds < 1 || kinds > MOST_KINDS)
        return 2;
    set(&period_ns, atoll(argv[3]));
    int64_t slow_ns = atoll(argv[4]);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int kind = 0; kind < kinds; kind++) { /* a function of its own for each */
        functions[kind] = load_spin_kernel();
        lengths_ns[kind] = atoll(argv[2]);
    }
    pthread_t listener;
    for (int64_t number = 0;; number++) {
        int64_t length_ns = get(&lengths_ns[number % kinds]);
        void *parameters[] = {&length_ns};
        int64_t begun_ns = now_ns();
        MUST(cuLaunchKernel(functions[number % kinds], (unsigned int)get(&blocks), 1, 1, 1, 1, 1, 0,
                            stream, parameters, NULL));
        int64_t done_ns = now_ns();
        set(&launches, get(&launches) + 1);
        set(&slow, get(&slow) + (done_ns - begun_ns > slow_ns));
        set(&asked_ns, get(&asked_ns) + length_ns);
        int64_t next_ns = begun_ns + get(&period_ns);
        next_ns = next_ns > done_ns + get(&gap_ns) ? next_ns : done_ns + get(&gap_ns);
        while (now_ns() < next_ns)
            pass_time(next_ns);
        if (number != WARM_UP_ROUNDS * kinds)
            continue;
        printf("ready\n");
        fflush(stdout);
        if (pthread_create(&listener, NULL, listen, &kinds) != 0)
            return 1;
    }
}
