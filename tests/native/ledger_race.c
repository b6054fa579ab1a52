/* Processes race for the same limit while some are killed and replaced and the limit changes.
 *
 *   ledger_race PROCESSES KILLS    and until there are more operations than kills
 *
 * Every process keeps its own count in shared memory: raised before it reserves, lowered after it
 * releases, by the exact amounts granted. So at the end, with everybody gone, what the ledger held
 * must be explained, come back whole, and never have exceeded the highest limit. A process that
 * asks for exactly what is free while it is alone must get it. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger_fixture.h"

#define LIMIT_BYTES (1u << 30)
#define LOWERED_BYTES (LIMIT_BYTES / 2)
#define MOST_PROCESSES 64
#define MOST_HELD 8

struct shared {
    pid_t holders[MOST_PROCESSES]; /* 0: nobody holds that slot */
    uint64_t operations[MOST_PROCESSES];
    volatile int stop;
};

static struct shared *shared;

static int is_held(void *context, uint32_t slot)
{
    (void)context;
    return __atomic_load_n(&shared->holders[slot], __ATOMIC_ACQUIRE) != 0;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void work(struct fixture *fixture, uint32_t slot)
{
    uint64_t random = (uint64_t)getpid() * 0x9e3779b97f4a7c15u;
    uint64_t held[MOST_HELD] = {0};
    struct ledger_refusal refusal;
    while (!shared->stop) {
        uint64_t *place = &held[next_random(&random) % MOST_HELD];
        if (*place != 0) {
            ledger_release(&fixture->ledger, slot, *place);
            *place = 0;
        } else {
            uint64_t bytes = 1 + next_random(&random) % (LIMIT_BYTES / 64);
            int result = ledger_reserve(&fixture->ledger, slot, bytes, &refusal);
            CHECK(result == 0 || refusal.used_bytes + bytes > refusal.limit_bytes,
                  "refused what fits: %llu of %llu used, %llu asked",
                  (unsigned long long)refusal.used_bytes, (unsigned long long)refusal.limit_bytes,
                  (unsigned long long)bytes);
            if (result == 0)
                *place = bytes;
        }
        uint64_t used = ledger_used_bytes(&fixture->ledger);
        CHECK(used <= LIMIT_BYTES, "over the limit: %llu used", (unsigned long long)used);
        shared->operations[slot]++;
    }
    for (int i = 0; i < MOST_HELD; i++)
        if (held[i] != 0)
            ledger_release(&fixture->ledger, slot, held[i]);
    CHECK(fixture_slot_bytes(fixture, slot) == 0, "a slot that released all holds bytes");
    _exit(0);
}

static void start(struct fixture *fixture, uint32_t slot)
{
    /* As in slot_claim, the slot is held before it is marked as in use: a worker that reserves
     * while it still counts as dead would be reaped by its peers. */
    pid_t parent = getpid();
    __atomic_store_n(&shared->holders[slot], parent, __ATOMIC_RELEASE);
    fixture_occupy(fixture, slot);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* workers never outlive a race that failed */
        CHECK(getppid() == parent, "the race has ended");
        work(fixture, slot);
    }
    __atomic_store_n(&shared->holders[slot], pid, __ATOMIC_RELEASE);
}

static void kill_one(uint32_t slot)
{
    int status;
    pid_t pid = shared->holders[slot];
    CHECK(pid > 0, "a process to kill");
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid, "wait");
    CHECK(WIFSIGNALED(status), "a worker failed by itself");
    __atomic_store_n(&shared->holders[slot], 0, __ATOMIC_RELEASE);
}

static uint64_t operations_of(uint32_t processes)
{
    uint64_t operations = 0;
    for (uint32_t slot = 0; slot < processes; slot++)
        operations += __atomic_load_n(&shared->operations[slot], __ATOMIC_RELAXED);
    return operations;
}

int main(int argc, char **argv)
{
    uint32_t processes = argc > 1 ? (uint32_t)atoi(argv[1]) : 16;
    long least_kills = argc > 2 ? atol(argv[2]) : 500;
    CHECK(processes >= 2 && processes <= MOST_PROCESSES, "2 to %d processes", MOST_PROCESSES);
    shared = fixture_share(sizeof *shared);
    struct fixture fixture = fixture_make(LIMIT_BYTES, is_held);
    struct ledger_refusal refusal;
    uint64_t random = 88172645463325252u;
    long kills = 0;
    for (uint32_t slot = 0; slot < processes; slot++)
        start(&fixture, slot);
    while (kills < least_kills || operations_of(processes) <= (uint64_t)kills) {
        usleep(2000);
        uint32_t slot = (uint32_t)(next_random(&random) % processes);
        kill_one(slot);
        kills++;
        fixture_set_limit(&fixture, kills % 2 ? LOWERED_BYTES : LIMIT_BYTES);
        start(&fixture, slot);
    }
    fixture_set_limit(&fixture, LIMIT_BYTES);
    shared->stop = 1;
    for (uint32_t slot = 0; slot < processes; slot++) {
        int status;
        CHECK(waitpid(shared->holders[slot], &status, 0) > 0, "wait");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "worker %u failed", slot);
        __atomic_store_n(&shared->holders[slot], 0, __ATOMIC_RELEASE);
    }
    /* Exactly the limit fits, whatever the dead left behind; not a byte more. */
    fixture_occupy(&fixture, processes);
    shared->holders[processes % MOST_PROCESSES] = getpid();
    CHECK(ledger_reserve(&fixture.ledger, processes, LIMIT_BYTES, &refusal) == 0,
          "bytes leaked: %llu used", (unsigned long long)refusal.used_bytes);
    CHECK(ledger_reserve(&fixture.ledger, processes, 1, &refusal) == -ENOMEM, "a byte over");
    printf("%llu operations, %ld kills\n", (unsigned long long)operations_of(processes), kills);
    return 0;
}
