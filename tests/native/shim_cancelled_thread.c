/* Threads that are cancelled while their launch waits for the cap: whoever launches after them
 * must not wait for the turn that they had. Says how many threads were cancelled and how long the
 * longest launch of the main thread took afterwards, in milliseconds. Linked with libcuda. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "spin_kernel.h"

#define ROUNDS 3
#define OWN_LAUNCHES 3
#define LONG_NS 5000000 /* each waits for many times this long under a low cap */
#define SHORT_NS 1000000
#define RUNS_US 300000
#define MS 1e3

static CUcontext context;
static CUfunction spin;
static CUstream stream;

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void launch(unsigned long long ns)
{
    void *parameters[] = {&ns};
    MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static void *launch_for_ever(void *unused)
{
    (void)unused;
    MUST(cuCtxSetCurrent(context));
    for (;;) {
        launch(LONG_NS);
        pthread_testcancel();
    }
    return NULL;
}

int main(void)
{
    int cancelled = 0;
    double longest = 0;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    spin = load_spin_kernel();
    MUST(cuStreamCreate(&stream, 0));
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *left;
        pthread_create(&thread, NULL, launch_for_ever, NULL);
        usleep(RUNS_US);
        pthread_cancel(thread);
        pthread_join(thread, &left);
        cancelled += left == PTHREAD_CANCELED;
        for (int i = 0; i < OWN_LAUNCHES; i++) {
            double start = now_seconds();
            launch(SHORT_NS);
            double seconds = now_seconds() - start;
            longest = seconds > longest ? seconds : longest;
        }
    }
    printf("%d %.3f\n", cancelled, longest * MS);
    return 0;
}
