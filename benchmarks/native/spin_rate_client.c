/*
 * Tells how long rounds of the kernel of client.h take, for the figure `silicon`; alone on a GPU,
 * simulated or real. A line is "ROUNDS NS": so many rounds of one block took so long between two
 * events, of several times the least. Each line has twice the rounds of the one before, from few to
 * LONG_NS. The first ones are there for a GPU whose clock is low until it has work.
 *
 * A simulated GPU goes by the duration, which is SIMULATED_ROUND_NS for each round.
 */
#include "client.h"

#define LEAST_ROUNDS (1ull << 12)
#define MOST_ROUNDS (1ull << 40)
#define LONG_NS 20e6
#define REPEATS 5
#define SIMULATED_ROUND_NS 100

static const char ptx[] = CLIENT_PTX_BEGIN CLIENT_PTX_SPIN;

int main(void)
{
    CUfunction spin;
    CUevent begin, end;
    double least_ns = 0;
    MUST(cuModuleGetFunction(&spin, client_load(ptx), "spin_ns"));
    MUST(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    MUST(cuEventCreate(&end, CU_EVENT_DEFAULT));
    for (uint64_t rounds = LEAST_ROUNDS; least_ns < LONG_NS; rounds *= 2) {
        struct client_spin work = {rounds * SIMULATED_ROUND_NS, rounds, 1};
        void *params[] = CLIENT_SPIN_PARAMS(work);
        if (rounds > MOST_ROUNDS) {
            fprintf(stderr, "%llu rounds took %.0f ns\n", MOST_ROUNDS, least_ns);
            return 1;
        }
        for (int i = 0; i < REPEATS; i++) {
            float ms;
            MUST(cuEventRecord(begin, NULL));
            MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
            MUST(cuEventRecord(end, NULL));
            MUST(cuEventSynchronize(end));
            MUST(cuEventElapsedTime(&ms, begin, end));
            double ns = (double)ms * 1e6;
            least_ns = i == 0 || ns < least_ns ? ns : least_ns;
        }
        printf("%llu %.0f\n", (unsigned long long)rounds, least_ns);
    }
    return 0;
}
