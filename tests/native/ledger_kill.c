/* A victim reserves and releases under single steps and is killed after each instruction in turn;
 * its neighbour must then get every byte of the limit, exactly.
 *
 *   ledger_kill [STRIDE]   kill after every STRIDE-th instruction (default 1) */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger_fixture.h"

#define LIMIT_BYTES 1000003u
#define VICTIM 0u
#define NEIGHBOUR 1u
#define NEIGHBOUR_BYTES 400u

static volatile int victim_lives;

static int is_held(void *context, uint32_t slot)
{
    (void)context;
    return slot != VICTIM || victim_lives;
}

static void victim_work(struct fixture *fixture)
{
    struct ledger_refusal refusal;
    raise(SIGSTOP);
    CHECK(ledger_reserve(&fixture->ledger, VICTIM, 1000, &refusal) == 0, "fits");
    CHECK(ledger_reserve(&fixture->ledger, VICTIM, 77, &refusal) == 0, "fits");
    ledger_release(&fixture->ledger, VICTIM, 1000);
    CHECK(ledger_reserve(&fixture->ledger, VICTIM, LIMIT_BYTES, &refusal) != 0, "too much");
    _exit(0);
}

/* Steps the victim. Returns 0 when it ended before that many instructions. */
static int step_victim(pid_t pid, long steps)
{
    int status;
    for (long i = 0; i < steps; i++) {
        CHECK(ptrace(PTRACE_SINGLESTEP, pid, 0, 0) == 0, "step");
        CHECK(waitpid(pid, &status, 0) == pid, "wait");
        if (WIFEXITED(status)) {
            CHECK(WEXITSTATUS(status) == 0, "the victim failed");
            return 0;
        }
    }
    return 1;
}

/* One life of the victim, killed after `steps` instructions. Returns 0 when it ended before. */
static int kill_after(struct fixture *fixture, long steps, int neighbour_acts_first)
{
    struct ledger_refusal refusal;
    int status;
    fixture_occupy(fixture, VICTIM);
    victim_lives = 1;
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        victim_work(fixture);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "start");
    int alive = step_victim(pid, steps);
    /* A stopped victim stalls nobody: the neighbour acts while it stands at that instruction. */
    if (alive && neighbour_acts_first) {
        CHECK(ledger_reserve(&fixture->ledger, NEIGHBOUR, 5, &refusal) == 0,
              "beside a stopped one");
        ledger_release(&fixture->ledger, NEIGHBOUR, 5);
    }
    if (alive) {
        kill(pid, SIGKILL);
        CHECK(waitpid(pid, &status, 0) == pid, "reap");
    }
    victim_lives = 0;
    uint64_t rest = LIMIT_BYTES - NEIGHBOUR_BYTES;
    CHECK(ledger_reserve(&fixture->ledger, NEIGHBOUR, rest, &refusal) == 0,
          "after %ld steps: the last byte is not to be had: used %llu", steps,
          (unsigned long long)refusal.used_bytes);
    CHECK(ledger_used_bytes(&fixture->ledger) == LIMIT_BYTES, "after %ld steps: used %llu", steps,
          (unsigned long long)ledger_used_bytes(&fixture->ledger));
    CHECK(ledger_reserve(&fixture->ledger, NEIGHBOUR, 1, &refusal) != 0, "one byte over");
    ledger_release(&fixture->ledger, NEIGHBOUR, rest);
    CHECK(fixture_slot_bytes(fixture, VICTIM) == 0, "the victim still holds bytes");
    CHECK(fixture_slot_bytes(fixture, NEIGHBOUR) == NEIGHBOUR_BYTES, "the neighbour's own bytes");
    return alive;
}

int main(int argc, char **argv)
{
    long stride = argc > 1 ? atol(argv[1]) : 1;
    struct ledger_refusal refusal;
    struct fixture fixture = fixture_make(LIMIT_BYTES, is_held);
    fixture_occupy(&fixture, NEIGHBOUR);
    CHECK(ledger_reserve(&fixture.ledger, NEIGHBOUR, NEIGHBOUR_BYTES, &refusal) == 0, "start");
    long steps = 0;
    while (kill_after(&fixture, steps, (steps / stride) % 2))
        steps += stride;
    printf("killed at %ld places\n", steps / stride);
    return 0;
}
