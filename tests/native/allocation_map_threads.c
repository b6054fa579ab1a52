/* The map of allocations against a plain array, alone and with eight threads; to be built with a
 * sanitizer, too.
 *
 *   allocation_map_threads ROUNDS */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger_fixture.h"
#include "memory/ledger/allocation_map.h"

#define THREADS 8
#define HANDLES 2800 /* many enough that tables grow and are densely filled */
#define DISTURBANCES 64
#define CONTEXTS 3
#define SPACES (SPACE_HANDLE + 1)

struct worker {
    pthread_t thread;
    uint64_t random;
    uint64_t first_address;
    long rounds;
    struct allocation expected[HANDLES]; /* address 0: not in the map */
    uint64_t present;
};

static uint64_t next_random(struct worker *worker)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

static int is_equal(const struct allocation *a, const struct allocation *b)
{
    return a->address == b->address && a->bytes == b->bytes && a->context == b->context &&
           a->owner == b->owner && a->device == b->device && a->kind == b->kind &&
           a->space == b->space && a->opens == b->opens;
}

/* Handle `index` of a worker. Neighbours have the same number in different spaces. */
static struct allocation make(struct worker *worker, uint64_t index)
{
    return (struct allocation){
        .address = worker->first_address + index / SPACES * 256,
        .bytes = next_random(worker),
        .context = next_random(worker) % CONTEXTS + worker->first_address,
        .owner = worker,
        .device = (uint16_t)(index % 5),
        .kind = (uint16_t)(index % 8),
        .space = (uint32_t)(index % SPACES),
        .opens = (uint32_t)(index % 3),
    };
}

static void insert(struct worker *worker, uint64_t index)
{
    struct allocation *expected = &worker->expected[index];
    struct allocation displaced = {0};
    struct allocation made = make(worker, index);
    CHECK(allocation_map_insert(&made, &displaced), "insert");
    CHECK(is_equal(&displaced, expected), "what stood there comes out");
    worker->present += expected->address == 0;
    *expected = made;
}

static void look_up(struct worker *worker, uint64_t index, int takes)
{
    struct allocation *expected = &worker->expected[index];
    struct allocation handle = make(worker, index);
    struct allocation found = {0};
    bool is_there = takes ? allocation_map_take(handle.space, handle.address, &found)
                          : allocation_map_find(handle.space, handle.address, &found);
    CHECK(is_there == (expected->address != 0), "handle %llu", (unsigned long long)index);
    CHECK(is_equal(&found, expected), "the entry of handle %llu", (unsigned long long)index);
    if (takes && is_there) {
        memset(expected, 0, sizeof *expected);
        worker->present--;
    }
}

/* What other threads do between two steps of a walk: entries of other contexts go, what lies behind
 * them moves up, and they come again. */
static void disturb(struct worker *worker, uint64_t context)
{
    for (int i = 0; i < DISTURBANCES; i++) {
        uint64_t index = next_random(worker) % HANDLES;
        struct allocation kept = worker->expected[index];
        struct allocation displaced = {0};
        if (kept.address == 0 || kept.context == context)
            continue;
        look_up(worker, index, 1);
        CHECK(allocation_map_insert(&kept, &displaced) && displaced.address == 0, "again");
        worker->expected[index] = kept;
        worker->present++;
    }
}

/* Ends a context: exactly its entries come out, each once. */
static void end_context(struct worker *worker)
{
    uint64_t context = next_random(worker) % CONTEXTS + worker->first_address;
    struct allocation_walk walk = {0};
    struct allocation taken;
    while (allocation_map_take_of_context(context, &walk, &taken)) {
        uint64_t index = (taken.address - worker->first_address) / 256 * SPACES + taken.space;
        CHECK(index < HANDLES && is_equal(&taken, &worker->expected[index]), "not in the map");
        memset(&worker->expected[index], 0, sizeof worker->expected[index]);
        worker->present--;
        disturb(worker, context);
    }
    for (uint64_t index = 0; index < HANDLES; index++)
        CHECK(worker->expected[index].address == 0 || worker->expected[index].context != context,
              "an entry of the context was left");
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    for (long round = 0; round < worker->rounds; round++) {
        uint64_t index = next_random(worker) % HANDLES;
        switch (next_random(worker) % 4) {
        case 0 ... 1:
            insert(worker, index);
            break;
        case 2:
            look_up(worker, index, 1);
            break;
        default:
            look_up(worker, index, 0);
        }
        if (round % 512 == 511)
            end_context(worker);
    }
    for (uint64_t index = 0; index < HANDLES; index++)
        look_up(worker, index, index % 2 == 0);
    for (uint64_t index = 0; index < HANDLES; index++)
        look_up(worker, index, 1);
    CHECK(worker->present == 0, "%llu entries left", (unsigned long long)worker->present);
    return NULL;
}

static void check_child_starts_empty(void)
{
    struct allocation made = {.address = 256, .bytes = 1};
    struct allocation found;
    int status;
    CHECK(allocation_map_insert(&made, &found), "insert");
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        allocation_map_after_fork();
        CHECK(!allocation_map_find(SPACE_ADDRESS, 256, &found), "the parent's entry");
        CHECK(allocation_map_insert(&made, &found), "insert");
        CHECK(allocation_map_take(SPACE_ADDRESS, 256, &found), "its own entry");
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
    CHECK(allocation_map_take(SPACE_ADDRESS, 256, &found), "the child took the parent's entry");
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    CHECK(argc == 2, "allocation_map_threads ROUNDS");
    CHECK(!allocation_map_find(SPACE_ADDRESS, 0, &workers[0].expected[0]), "no handle is 0");
    for (int i = 0; i < THREADS; i++) {
        workers[i].random = 88172645463325252u + (uint64_t)i;
        workers[i].first_address = 0x7f0000000000u + ((uint64_t)i << 24);
        workers[i].rounds = atol(argv[1]);
    }
    work(&workers[0]); /* alone first */
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    check_child_starts_empty();
    return 0;
}
