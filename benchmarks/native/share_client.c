/*
 * A tenant of the figures `share` and `share-contended`: a program that launches without end, as
 * deep into the driver's queue as the driver lets it.
 *
 * Arguments are word=value: form (kernel, cooperative, graph, memset), kernel_ns (of one kernel, or
 * of one node of a graph), blocks (of a launch), threads (of a block), waves (how many blocks come
 * after each other where no more fit on the GPU at once), rounds_per_ms (of the GPU, as client.h
 * tells), sync (wait after every so many launches, 0: never), poll (1: such a wait asks the first
 * stream until it is done), streams (used in turn; a wait is for all of them), nodes (of a graph), bytes (of a memset), count_every (launches between those that
 * are counted as they are done, 0: none is), seconds (its longest life, should nobody end it).
 *
 * It says "ready" once it could launch, and does what stdin says: "go" begins, "mark" forgets the
 * delays so far, "tell" prints "progress COUNT NS", so many launches done at that time of the GPU
 * since it began, and the end of stdin ends it. Then it prints "launched COUNT p99_ns NS", NS being what
 * one launch in a hundred took the caller at least, waits for what it launched, and prints
 * "completed COUNT". Without a "go" it ends at once.
 *
 * stdin is read by a thread of its own, so that the launching one calls nothing but the driver and
 * the clock. What both touch are the two atomic flags.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "client.h"

#define MAX_STREAMS 64
/* Delays are counted in eighths of powers of two: 12 % apart at most. */
#define EIGHTHS 8
#define BUCKETS (64 * EIGHTHS)

static const char ptx[] = CLIENT_PTX_BEGIN CLIENT_PTX_SPIN;

enum form { FORM_KERNEL, FORM_COOPERATIVE, FORM_GRAPH, FORM_MEMSET };
static const char *const form_words[] = {"kernel", "cooperative", "graph", "memset"};

static struct {
    enum form form;
    unsigned long long kernel_ns, rounds_per_ms;
    unsigned blocks, threads, waves, sync, poll, streams, nodes;
    size_t bytes;
    unsigned count_every, seconds;
} options = {FORM_KERNEL, 1000000, 0, 132, 1, 1, 0, 0, 1, 20, 0, 0, 600};

static CUfunction spin;
static CUgraphExec graph;
static CUdeviceptr memory;
static CUstream streams[MAX_STREAMS];
static struct client_spin work;
static void *params[] = CLIENT_SPIN_PARAMS(work);
static uint64_t delays[BUCKETS], delay_count;
static atomic_bool stopping, marking, telling;

/* Launches that are counted as they are done; more of them under way than this are passed over. */
#define COUNTED 2048 /* the driver's queue holds 1024 launches */
static struct counted {
    CUevent event;
    uint64_t launched;
} counted[COUNTED];
static CUevent beginning;
static uint64_t counted_first, counted_next, done, done_ns;

static void refuse(const char *argument)
{
    fprintf(stderr,
            "argument '%s' is not form=kernel|cooperative|graph|memset, or one of kernel_ns, "
            "rounds_per_ms, blocks, threads, waves (from 1 on), sync, poll, streams (1 to %d), "
            "nodes, bytes, count_every and seconds with a number\n",
            argument, MAX_STREAMS);
    exit(2);
}

static void read_option(const char *argument)
{
    const char *value = strchr(argument, '=');
    if (value == NULL)
        refuse(argument);
    size_t length = (size_t)(value++ - argument);
    char *end;
    unsigned long long number = strtoull(value, &end, 10);
    int is_number = *value != '\0' && *end == '\0';
#define IS(word) (length == sizeof(word) - 1 && memcmp(argument, word, length) == 0)
    if (IS("form")) {
        for (unsigned form = 0; form < sizeof form_words / sizeof *form_words; form++)
            if (strcmp(value, form_words[form]) == 0) {
                options.form = (enum form)form;
                return;
            }
        refuse(argument);
    }
    if (!is_number)
        refuse(argument);
    if (IS("kernel_ns"))
        options.kernel_ns = number;
    else if (IS("rounds_per_ms"))
        options.rounds_per_ms = number;
    else if (IS("waves") && number >= 1)
        options.waves = (unsigned)number;
    else if (IS("blocks"))
        options.blocks = (unsigned)number;
    else if (IS("threads"))
        options.threads = (unsigned)number;
    else if (IS("sync"))
        options.sync = (unsigned)number;
    else if (IS("poll"))
        options.poll = (unsigned)number;
    else if (IS("streams") && number >= 1 && number <= MAX_STREAMS)
        options.streams = (unsigned)number;
    else if (IS("nodes"))
        options.nodes = (unsigned)number;
    else if (IS("bytes"))
        options.bytes = number;
    else if (IS("count_every"))
        options.count_every = (unsigned)number;
    else if (IS("seconds"))
        options.seconds = (unsigned)number;
    else
        refuse(argument);
#undef IS
}

static void launch(CUstream stream)
{
    switch (options.form) {
    case FORM_KERNEL:
        MUST(cuLaunchKernel(spin, options.blocks, 1, 1, options.threads, 1, 1, 0, stream, params,
                            NULL));
        break;
    case FORM_COOPERATIVE:
        MUST(cuLaunchCooperativeKernel(spin, options.blocks, 1, 1, options.threads, 1, 1, 0, stream,
                                       params));
        break;
    case FORM_GRAPH:
        MUST(cuGraphLaunch(graph, stream));
        break;
    case FORM_MEMSET:
        MUST(cuMemsetD8Async(memory, 0, options.bytes, stream));
        break;
    }
}

static void prepare(void)
{
    work = client_spin(options.kernel_ns, options.rounds_per_ms, options.blocks, options.waves);
    MUST(cuModuleGetFunction(&spin, client_load(ptx), "spin_ns"));
    for (unsigned i = 0; i < options.streams; i++)
        MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    if (options.count_every != 0) {
        MUST(cuEventCreate(&beginning, CU_EVENT_DEFAULT));
        for (unsigned i = 0; i < COUNTED; i++)
            MUST(cuEventCreate(&counted[i].event, CU_EVENT_DEFAULT));
    }
    if (options.form == FORM_MEMSET)
        MUST(cuMemAlloc_v2(&memory, options.bytes));
    if (options.form == FORM_GRAPH) {
        CUgraph recorded;
        MUST(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        for (unsigned i = 0; i < options.nodes; i++)
            MUST(cuLaunchKernel(spin, options.blocks, 1, 1, options.threads, 1, 1, 0, streams[0],
                                params, NULL));
        MUST(cuStreamEndCapture(streams[0], &recorded));
        MUST(cuGraphInstantiateWithFlags(&graph, recorded, 0));
        MUST(cuGraphDestroy(recorded));
    }
}

static void *read_orders(void *unused)
{
    struct client_line line;
    (void)unused;
    while (client_read_line(&line))
        if (strcmp(line.text, "mark") == 0)
            atomic_store(&marking, true);
        else if (strcmp(line.text, "tell") == 0)
            atomic_store(&telling, true);
    atomic_store(&stopping, true);
    return NULL;
}

static void count_delay(uint64_t delay_ns)
{
    if (atomic_load_explicit(&marking, memory_order_relaxed)) {
        atomic_store(&marking, false);
        memset(delays, 0, sizeof delays);
        delay_count = 0;
    }
    unsigned power = 63 - (unsigned)__builtin_clzll(delay_ns | EIGHTHS);
    delays[power * EIGHTHS + ((delay_ns >> (power - 3)) & (EIGHTHS - 1))]++;
    delay_count++;
}

static uint64_t slowest_hundredth_ns(void)
{
    uint64_t beyond = 0;
    for (unsigned bucket = BUCKETS; bucket-- > 0;) {
        beyond += delays[bucket];
        if (beyond * 100 >= delay_count && delays[bucket] != 0) {
            unsigned power = bucket / EIGHTHS;
            return (uint64_t)(EIGHTHS + bucket % EIGHTHS) << (power - 3);
        }
    }
    return 0;
}

/* Counts what is done, and this launch once it is. */
static void count_launch(CUstream stream, uint64_t launched)
{
    float since_ms;
    while (counted_first < counted_next) {
        struct counted *oldest = &counted[counted_first % COUNTED];
        if (cuEventQuery(oldest->event) != CUDA_SUCCESS)
            break;
        MUST(cuEventElapsedTime(&since_ms, beginning, oldest->event));
        done = oldest->launched;
        done_ns = (uint64_t)((double)since_ms * 1e6);
        counted_first++;
    }
    if (counted_next - counted_first < COUNTED) {
        struct counted *next = &counted[counted_next++ % COUNTED];
        next->launched = launched;
        MUST(cuEventRecord(next->event, stream));
    }
}

static void tell(void)
{
    printf("progress %llu %llu\n", (unsigned long long)done, (unsigned long long)done_ns);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    for (int i = 1; i < count; i++)
        read_option(arguments[i]);
    if (options.form == FORM_MEMSET && options.bytes == 0)
        refuse("bytes=0");
    prepare();
    if (!client_may_go())
        return 0;
    pthread_t reader;
    if (pthread_create(&reader, NULL, read_orders, NULL) != 0) {
        fprintf(stderr, "no thread can be started\n");
        return 1;
    }
    if (options.count_every != 0)
        MUST(cuEventRecord(beginning, streams[0]));
    uint64_t launched = 0, before = now_ns(), end = before + options.seconds * SECOND_NS;
    while (!atomic_load_explicit(&stopping, memory_order_relaxed) && before < end) {
        CUstream stream = streams[launched % options.streams];
        launch(stream);
        uint64_t after = now_ns();
        count_delay(after - before);
        launched++;
        if (options.count_every != 0 && launched % options.count_every == 0) {
            count_launch(stream, launched);
            after = now_ns();
        }
        if (atomic_load_explicit(&telling, memory_order_relaxed)) {
            atomic_store(&telling, false);
            tell();
        }
        if (options.sync != 0 && launched % options.sync == 0) {
            while (options.poll && cuStreamQuery(streams[0]) != CUDA_SUCCESS)
                continue;
            if (options.streams == 1)
                MUST(cuStreamSynchronize(streams[0]));
            else
                MUST(cuCtxSynchronize());
            after = now_ns();
        }
        before = after;
    }
    printf("launched %llu p99_ns %llu\n", (unsigned long long)launched,
           (unsigned long long)slowest_hundredth_ns());
    fflush(stdout);
    MUST(cuCtxSynchronize());
    printf("completed %llu\n", (unsigned long long)launched);
    return 0;
}
