/*
 * A CUDA program that does what it is told, one command a line on stdin, and answers each with one
 * line on stdout: for tests that end, fork, replace or stop it at a chosen moment. The commands are
 * the branches of obey().
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

#define MOST_PIECES 4096
#define MOST_DESCRIPTORS 256
#define CHILD_SECONDS "60"

static CUdeviceptr pieces[MOST_PIECES];
static int piece_count;
static char *self;

static void answer(long long value)
{
    printf("%lld\n", value);
    fflush(stdout);
}

static CUresult init(void)
{
    CUcontext context;
    CUdevice device;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGet(&device, 0);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRetain(&context, device);
    return result == CUDA_SUCCESS ? cuCtxSetCurrent(context) : result;
}

static CUresult allocate(unsigned long long bytes)
{
    CUresult result = cuMemAlloc_v2(&pieces[piece_count], bytes);
    if (result == CUDA_SUCCESS)
        piece_count++;
    return result;
}

/* Allocates until refused; returns how many pieces there are. */
static int fill(unsigned long long bytes)
{
    while (piece_count < MOST_PIECES && allocate(bytes) == CUDA_SUCCESS)
        continue;
    return piece_count;
}

static CUresult free_last(void)
{
    return cuMemFree_v2(pieces[--piece_count]);
}

static void *in_thread(void *bytes)
{
    CUcontext context;
    CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS)
        result = allocate(*(unsigned long long *)bytes);
    return (void *)(long)result;
}

static long thread(unsigned long long bytes)
{
    pthread_t made;
    void *result;
    pthread_create(&made, NULL, in_thread, &bytes);
    pthread_join(made, &result);
    return (long)result;
}

/* Cancelled before it begins, so it ends at the first place where a thread can be. */
static void *cancelled_thread(void *unused)
{
    pthread_cancel(pthread_self());
    init();
    pthread_testcancel();
    return unused;
}

static void cancelled(void)
{
    pthread_t made;
    cuInit(0); /* the driver's own places to be cancelled are not what is looked at */
    pthread_create(&made, NULL, cancelled_thread, NULL);
    pthread_join(made, NULL);
}

static void rest(void)
{
    for (;;)
        pause();
}

/* As data loaders do that let go of the GPU, by the names of their descriptors. */
static void close_gpu(void)
{
    for (int descriptor = 3; descriptor < MOST_DESCRIPTORS; descriptor++) {
        char link[64], path[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length > 0 ? length : 0] = '\0';
        if (strstr(path, "/nvidia") != NULL)
            close(descriptor);
    }
}

/* Children that outlive this process; each returns the child's pid. */
static pid_t leave(const char *how)
{
    char *sleeper[] = {"sleep", CHILD_SECONDS, NULL};
    extern char **environ;
    pid_t child = -1;
    if (strcmp(how, "spawn") == 0)
        return posix_spawnp(&child, "sleep", NULL, NULL, sleeper, environ) == 0 ? child : -1;
    if (strcmp(how, "vfork") == 0) {
        child = vfork();
        if (child == 0) {
            execvp(sleeper[0], sleeper);
            _exit(1);
        }
        return child;
    }
    child = fork();
    if (child != 0)
        return child;
    if (strcmp(how, "exec") == 0)
        execvp(sleeper[0], sleeper);
    if (strcmp(how, "close") == 0)
        syscall(SYS_close_range, 3, ~0u, 0);
    if (strcmp(how, "close-gpu") == 0)
        close_gpu();
    rest();
    return 0;
}

/* Threads that fork all the while others come to the slice for the first time. */
static volatile int forking = 1;

static void *forker(void *count)
{
    while (forking) {
        pid_t child = fork();
        if (child == 0)
            rest();
        printf("%d\n", child);
        __atomic_fetch_add((int *)count, 1, __ATOMIC_RELAXED);
        usleep(2000);
    }
    return NULL;
}

/* Attaches while another thread forks; then tells the children's pids, and 0. */
static void fork_beside(unsigned long long bytes)
{
    pthread_t made;
    int count = 0;
    pthread_create(&made, NULL, forker, &count);
    while (__atomic_load_n(&count, __ATOMIC_RELAXED) < 2)
        usleep(100);
    init();
    allocate(bytes);
    int seen = __atomic_load_n(&count, __ATOMIC_RELAXED);
    while (__atomic_load_n(&count, __ATOMIC_RELAXED) < seen + 2)
        usleep(100);
    forking = 0;
    pthread_join(made, NULL);
    answer(0);
}

static void obey(const char *verb, const char *word)
{
    unsigned long long number = strtoull(word, NULL, 0);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (strcmp(verb, "start") == 0)
        answer(cuInit(0));
    else if (strcmp(verb, "init") == 0)
        answer(init());
    else if (strcmp(verb, "alloc") == 0)
        answer(allocate(number));
    else if (strcmp(verb, "fill") == 0)
        answer(fill(number));
    else if (strcmp(verb, "free") == 0)
        answer(free_last());
    else if (strcmp(verb, "thread") == 0)
        answer(thread(number));
    else if (strcmp(verb, "cancelled") == 0) {
        cancelled();
        answer(0);
    } else if (strcmp(verb, "chdir") == 0)
        answer(chdir(word));
    else if (strcmp(verb, "close") == 0)
        answer(syscall(SYS_close_range, 3, ~0u, 0));
    else if (strcmp(verb, "leave") == 0)
        answer(leave(word));
    else if (strcmp(verb, "beside") == 0)
        fork_beside(number);
    else if (strcmp(verb, "fork") == 0) { /* the child goes on talking; its parent rests */
        pid_t child = fork();
        if (child > 0)
            rest();
        answer(getpid());
    } else if (strcmp(verb, "pass") ==
               0) { /* the child goes on talking, and then its parent does */
        pid_t child = fork();
        if (child > 0)
            waitpid(child, NULL, 0);
        answer(child == 0 ? 0 : 1);
    } else if (strcmp(verb, "elapsed") == 0) { /* nanoseconds of an allocation and a refusal */
        allocate(number);
        fill(1ull << 41);
        clock_gettime(CLOCK_MONOTONIC, &end);
        answer((end.tv_sec - begin.tv_sec) * 1000000000ll + end.tv_nsec - begin.tv_nsec);
    } else if (strcmp(verb, "become") == 0) {
        if (strcmp(word, "self") == 0)
            execl(self, self, NULL);
        execlp("sleep", "sleep", CHILD_SECONDS, NULL);
    } else if (strcmp(verb, "exit") == 0)
        _exit((int)number);
    else if (strcmp(verb, "abort") == 0)
        abort();
    else if (strcmp(verb, "quit") == 0)
        exit((int)number);
}

int main(int argc, char **argv)
{
    char line[4096], verb[32], word[4064];
    self = argv[0];
    (void)argc;
    /* unbuffered, so that what a child or a new image reads is the next line */
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        word[0] = '\0';
        if (sscanf(line, "%31s %4063s", verb, word) >= 1)
            obey(verb, word);
    }
    return 0;
}
