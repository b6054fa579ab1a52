/* Prints what driver calls cost the caller on the simulated GPU, one "word nanoseconds" a line,
 * medians over rounds: `launch` (into a queue with room), `alloc` (cuMemAlloc + cuMemFree of as
 * many bytes as the first argument says), `async` (the same, stream-ordered), and `late`: how long
 * after the end of its kernel of a millisecond a wait returns. */
#include "client.h"

#define ROUNDS 41
#define LAUNCHES 1000
#define PAIRS 2000
#define WAITS 5
#define WAITED_NS 1000000

static const char ptx[] = CLIENT_PTX_BEGIN CLIENT_PTX_SPIN;

static double since_ns(uint64_t begun)
{
    return (double)(now_ns() - begun);
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(double *samples)
{
    qsort(samples, ROUNDS, sizeof *samples, compare);
    return samples[ROUNDS / 2];
}

int main(int count, char **arguments)
{
    CUfunction spin;
    CUdeviceptr address;
    struct client_spin work = client_spin(1, 0, 1, 1);
    void *params[] = CLIENT_SPIN_PARAMS(work);
    size_t bytes = count > 1 ? strtoull(arguments[1], NULL, 10) : 1 << 20;
    double launch[ROUNDS], pair[ROUNDS], async[ROUNDS], late[ROUNDS];
    MUST(cuModuleGetFunction(&spin, client_load(ptx), "spin_ns"));
    if (bytes == 0) /* only to have been there */
        return 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begun = now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        launch[round] = since_ns(begun) / LAUNCHES;
        MUST(cuCtxSynchronize());
        begun = now_ns();
        for (int i = 0; i < PAIRS; i++) {
            MUST(cuMemAlloc_v2(&address, bytes));
            MUST(cuMemFree_v2(address));
        }
        pair[round] = since_ns(begun) / PAIRS;
        begun = now_ns();
        for (int i = 0; i < PAIRS; i++) {
            MUST(cuMemAllocAsync(&address, bytes, NULL));
            MUST(cuMemFreeAsync(address, NULL));
        }
        async[round] = since_ns(begun) / PAIRS;
        work.duration_ns = WAITED_NS;
        begun = now_ns();
        for (int i = 0; i < WAITS; i++) {
            MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
            MUST(cuCtxSynchronize());
        }
        late[round] = since_ns(begun) / WAITS - WAITED_NS;
        work.duration_ns = 1;
    }
    printf("launch %.1f\nalloc %.1f\nasync %.1f\nlate %.1f\n", median(launch), median(pair),
           median(async), median(late));
    return 0;
}
