/*
 * Tells how long the GPU works for this process until another one has its turn; for the figure
 * `silicon`, on a simulated and a real GPU.
 *
 * Arguments are word=value: kernel_ns (100 us at most), rounds_per_ms (of the GPU, as client.h
 * tells), warm_up_ms and ms (of the measured time). It says "ready", begins when stdin says "go", and launches kernels as deep into the queue as the
 * driver lets it, an event after each. From one event to the next passes what a kernel and an event
 * take, but for those that were under way when the turn ended: there it is over a millisecond more.
 * It prints "turns COUNT turn_ns NS period_ns NS": how many whole turns there were, what the GPU
 * worked in one, and what passed from one to the next. Without a "go" it ends at once.
 */
#include <string.h>

#include "client.h"

#define MS_NS 1000000ull
#define AWAY_NS (1.0 * MS_NS)
#define MOST_KERNEL_NS (MS_NS / 10)
#define MOST_EVENTS (1u << 17)

static const char ptx[] = CLIENT_PTX_BEGIN CLIENT_PTX_SPIN;
static unsigned long long kernel_ns = 20000, rounds_per_ms, warm_up_ms = 200, measured_ms = 1000;
static CUevent events[MOST_EVENTS];
static double intervals_ns[MOST_EVENTS], sorted_ns[MOST_EVENTS];

static void read_option(const char *argument)
{
    static const struct {
        const char *word;
        unsigned long long *value, most;
    } options[] = {{"kernel_ns=", &kernel_ns, MOST_KERNEL_NS},
                   {"rounds_per_ms=", &rounds_per_ms, UINT32_MAX},
                   {"warm_up_ms=", &warm_up_ms, 60000},
                   {"ms=", &measured_ms, 60000}};
    for (unsigned i = 0; i < sizeof options / sizeof *options; i++) {
        size_t length = strlen(options[i].word);
        if (strncmp(argument, options[i].word, length) != 0)
            continue;
        char *end;
        unsigned long long number = strtoull(argument + length, &end, 10);
        if (argument[length] == '\0' || *end != '\0' || number == 0 || number > options[i].most)
            break;
        *options[i].value = number;
        return;
    }
    fprintf(
        stderr,
        "argument '%s' is not kernel_ns (1 to 100000), rounds_per_ms (from 1 on), warm_up_ms or "
        "ms (1 to 60000) with a number\n",
        argument);
    exit(2);
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Prints what the times between `count` events say. */
static void tell(unsigned count)
{
    unsigned first = 0, last = 0, turns = 0;
    double passed_ns = 0, since_last_ns = 0;
    memcpy(sorted_ns, intervals_ns, count * sizeof *sorted_ns);
    qsort(sorted_ns, count, sizeof *sorted_ns, compare);
    double each_ns = sorted_ns[count / 2]; /* most pass within a turn */
    for (unsigned i = 0; i < count; i++) {
        since_last_ns += intervals_ns[i];
        if (intervals_ns[i] < each_ns + AWAY_NS)
            continue;
        if (turns++ == 0)
            first = i;
        else
            passed_ns += since_last_ns;
        last = i;
        since_last_ns = 0;
    }
    if (turns < 2) {
        printf("turns 0 turn_ns 0 period_ns 0\n");
        return;
    }
    turns--; /* whole ones, each from the return of one turn to that of the next */
    printf("turns %u turn_ns %.0f period_ns %.0f\n", turns, (last - first) * each_ns / turns,
           passed_ns / turns);
}

int main(int count, char **arguments)
{
    CUfunction spin;
    CUstream stream;
    for (int i = 1; i < count; i++)
        read_option(arguments[i]);
    struct client_spin work = client_spin(kernel_ns, rounds_per_ms, 1, 1);
    void *params[] = CLIENT_SPIN_PARAMS(work);
    MUST(cuModuleGetFunction(&spin, client_load(ptx), "spin_ns"));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    unsigned most = (unsigned)(2 * measured_ms * MS_NS / kernel_ns + 2);
    if (most > MOST_EVENTS)
        most = MOST_EVENTS;
    for (unsigned i = 0; i < most; i++)
        MUST(cuEventCreate(&events[i], CU_EVENT_DEFAULT));
    if (!client_may_go())
        return 0;
    uint64_t begin_ns = now_ns() + warm_up_ms * MS_NS, end_ns = begin_ns + measured_ms * MS_NS;
    unsigned recorded = 0;
    for (uint64_t at_ns = now_ns(); at_ns < end_ns && recorded < most; at_ns = now_ns()) {
        MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
        /* One is recorded in the warm-up, too, so that the row is the same. */
        MUST(cuEventRecord(events[recorded], stream));
        recorded += at_ns >= begin_ns;
    }
    MUST(cuStreamSynchronize(stream));
    if (recorded < 2) {
        fprintf(stderr, "no two kernels were launched within %llu ms\n", measured_ms);
        return 1;
    }
    for (unsigned i = 0; i + 1 < recorded; i++) {
        float ms;
        MUST(cuEventElapsedTime(&ms, events[i], events[i + 1]));
        intervals_ns[i] = (double)ms * 1e6;
    }
    tell(recorded - 1);
    return 0;
}
