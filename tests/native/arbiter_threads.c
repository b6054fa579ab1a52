/* Tenants that come, want the GPU, count and go, each on a thread of its own, on one arbiter: to be
 * built with a sanitizer.
 *
 *   arbiter_threads LIVES DIRECTORY...
 *
 * Prints how often the arbiter woke. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "arbiter.h"
#include "ledger_fixture.h"
#include "slice/usage_file.h"

#define MOST_TENANTS 8
#define DEMANDS 16 /* of a life */

static struct arbiter *arbiter;
static long lives;

static int open_in(const char *directory, const char *name, int flags)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int descriptor = open(path, flags | O_CLOEXEC);
    CHECK(descriptor >= 0, "open %s of a tenant", name);
    return descriptor;
}

static int join(const char *directory)
{
    int limits = open_in(directory, "limits", O_RDWR);
    int index = arbiter_add(arbiter, limits, open_in(directory, "usage", O_RDONLY),
                            open_in(directory, "ring", O_RDONLY | O_NONBLOCK), 0);
    CHECK(index >= 0, "arbiter_add: %d", index);
    close(limits);
    return index;
}

/* Only who hears a ring empties it. So every fault on the way there shows, however the threads are
 * scheduled. */
static void wait_until_heard(int ring)
{
    int left = 1;
    while (left != 0) {
        CHECK(ioctl(ring, FIONREAD, &left) == 0, "FIONREAD");
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static void *live(void *argument)
{
    const char *directory = argument;
    int usage_fd = open_in(directory, "usage", O_RDWR);
    void *usage = mmap(NULL, usage_file_bytes(1), PROT_READ | PROT_WRITE, MAP_SHARED, usage_fd, 0);
    CHECK(usage != MAP_FAILED, "mmap usage");
    for (long life = 0; life < lives; life++) {
        int index = join(directory);
        int ring = open_in(directory, "ring", O_WRONLY | O_NONBLOCK);
        struct arbiter_tenant_counters own;
        struct arbiter_counters all;
        for (int i = 0; i < DEMANDS; i++) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
            __atomic_store_n(&usage_device(usage, 0)->demand_ns, now_ns, __ATOMIC_RELEASE);
            CHECK(write(ring, "!", 1) == 1, "ring");
            arbiter_count_tenant(arbiter, index, &own);
            arbiter_count(arbiter, &all);
        }
        wait_until_heard(ring);
        arbiter_count(arbiter, &all); /* since the last look the arbiter has woken */
        arbiter_remove(arbiter, index);
        close(ring);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc > 2 && argc <= 2 + MOST_TENANTS, "arbiter_threads LIVES DIRECTORY...");
    lives = atol(argv[1]);
    CHECK(arbiter_start(&arbiter) == 0, "arbiter_start");
    pthread_t tenants[MOST_TENANTS];
    for (int i = 2; i < argc; i++)
        CHECK(pthread_create(&tenants[i - 2], NULL, live, argv[i]) == 0, "thread");
    for (int i = 2; i < argc; i++)
        pthread_join(tenants[i - 2], NULL);
    struct arbiter_counters counters;
    arbiter_count(arbiter, &counters);
    arbiter_stop(arbiter);
    printf("%llu\n", (unsigned long long)counters.wakes);
    return 0;
}
