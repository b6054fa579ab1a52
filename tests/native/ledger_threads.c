/* Eight threads on one slice, to be built with a sanitizer.
 *
 *   ledger_threads DIRECTORY own|one ROUNDS
 *
 * own: each has a mapping and a slot of its own, as processes have.
 * one: all use one mapping and two share a slot: only so does ThreadSanitizer see that two threads
 *      access the same memory.
 * They reserve and release, are refused, and claim slots again after leaving bytes in the old one,
 * while the limit changes. PLANTED_RACE adds a plain store to a word of the ledger. */
#include <pthread.h>

#include "slice_fixture.h"

#define THREADS 8
#define LIMIT_BYTES 4000u
#define LOWERED_BYTES 2000u
#define MOST_BYTES 700u
#define REJOIN_EVERY 64 /* rounds */

struct worker {
    struct slice_fixture slice; /* its own view of the file */
    struct slot slot;
    pthread_t thread;
    uint64_t random;
    long rounds;
    uint64_t refusals;
    uint64_t held_bytes;
    int owns_slot;
};

static struct slice_fixture first;

static uint64_t next_random(struct worker *worker)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

static void check_bounds(struct worker *worker)
{
    uint64_t used = ledger_used_bytes(&worker->slice.base.ledger);
    CHECK(used <= LIMIT_BYTES, "over: %llu used", (unsigned long long)used);
}

/* Leaves its slot as a dead process does, with bytes in it, and takes another. */
static void rejoin(struct worker *worker)
{
    slice_fixture_drop(worker->slot);
    worker->held_bytes = 0;
    worker->slot = slice_fixture_claim(&worker->slice);
}

static void change_limit(struct worker *worker)
{
    /* The host's own way of writing, from another process, is not to be seen from here. */
    struct vgpu_device_limit *limit =
        (struct vgpu_device_limit *)limits_device(worker->slice.base.limits, 0);
    uint64_t bytes = next_random(worker) % 2 ? LIMIT_BYTES : LOWERED_BYTES;
    __atomic_store_n(&limit->memory_limit_bytes, bytes, __ATOMIC_RELEASE);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    const struct ledger *ledger = &worker->slice.base.ledger;
    for (long round = 0; round < worker->rounds; round++) {
        struct ledger_refusal refusal;
        uint64_t bytes = 1 + next_random(worker) % MOST_BYTES;
        if (ledger_reserve(ledger, worker->slot.index, bytes, &refusal) == 0)
            worker->held_bytes += bytes;
        else
            worker->refusals++;
        check_bounds(worker);
        if (next_random(worker) % 2) {
            ledger_release(ledger, worker->slot.index, worker->held_bytes);
            worker->held_bytes = 0;
        }
        if (round % REJOIN_EVERY == 0 && worker->owns_slot)
            rejoin(worker);
        if (round % REJOIN_EVERY == 1)
            change_limit(worker);
#ifdef PLANTED_RACE
        volatile uint64_t *gen = &usage_slot(ledger->usage, worker->slot.index)->gen;
        *gen = *gen; /* harmless on this CPU, and still a race with those who read it */
#endif
    }
    ledger_release(ledger, worker->slot.index, worker->held_bytes);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    struct ledger_refusal refusal;
    CHECK(argc == 4, "ledger_threads DIRECTORY own|one ROUNDS");
    int shares = strcmp(argv[2], "one") == 0;
    slice_fixture_make(&first, argv[1], LIMIT_BYTES);
    struct slot own = slice_fixture_claim(&first);
    for (int i = 0; i < THREADS; i++) {
        struct worker *worker = &workers[i];
        *worker = (struct worker){.slice = first, .random = 88172645463325252u + (uint64_t)i};
        worker->rounds = atol(argv[3]);
        worker->owns_slot = !(shares && i % 2 == 1);
        worker->slice.base.ledger.is_held_context = worker->slice.path;
        if (!shares)
            worker->slice.base.ledger.usage = worker->slice.base.usage =
                slice_fixture_map(first.path);
        if (worker->owns_slot)
            worker->slot = slice_fixture_claim(&worker->slice);
        else
            worker->slot = own; /* the odd ones share one */
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "thread");
    uint64_t refusals = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        refusals += workers[i].refusals;
    }
    fixture_set_limit(&first.base, LIMIT_BYTES);
    CHECK(ledger_reserve(&first.base.ledger, own.index, LIMIT_BYTES, &refusal) == 0,
          "bytes leaked: %llu used", (unsigned long long)refusal.used_bytes);
    CHECK(ledger_reserve(&first.base.ledger, own.index, 1, &refusal) != 0, "a byte over");
    slice_fixture_audit(&first, "at the end");
    printf("%llu\n", (unsigned long long)refusals);
    return 0;
}
