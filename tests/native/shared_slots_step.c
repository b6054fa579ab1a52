/* A victim under single steps, stopped after each instruction in turn. While it stands there
 * another process joins the piece of memory that the victim is about to reap, claim, join or leave;
 * then the victim goes on, or is killed. Whoever joined must hold every byte of the piece.
 *
 *   shared_slots_step FILE reap|leave|beside|claim|join|alive|make STRIDE
 *
 * reap, leave: the victim reaps a piece that nobody holds, or is the last to leave it
 * beside       it is the last to leave it, and the tester holds another piece of the slot
 * claim        it claims a slot, and finds the piece's the first that is free
 * join, alive  it joins a piece that nobody holds, or that the tester holds
 * make         it makes the piece, in a slot where it has another one */
#include <signal.h>
#include <sys/ptrace.h>

#include "shared_slots.h"

#define LIMIT_BYTES 1000003u
#define OWN_BYTES 400u
#define PIECE_BYTES 5000u
#define OTHER_BYTES 70u
#define OTHER (1ull << 40) /* the key of a second piece has it */

static const char *mode;

static bool is(const char *name)
{
    return strcmp(mode, name) == 0;
}

static void victim_work(struct slots *slots, uint64_t key, uint32_t index, uint64_t gen)
{
    struct held_piece piece, other;
    if (is("make"))
        CHECK(slots_export(slots, &other, key | OTHER, OTHER_BYTES), "the victim cannot make one");
    if (is("leave") || is("beside"))
        CHECK(slots_join(slots, &piece, key) == PIECE_BYTES, "the victim cannot join");
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    if (is("reap"))
        ledger_reap(&slots->fixture.ledger, index, gen);
    else if (is("leave") || is("beside"))
        slots_leave(slots, &piece);
    else if (is("make"))
        slots_export(slots, &piece, key, PIECE_BYTES);
    else if (is("claim"))
        slots_enter(slots);
    else
        slots_join(slots, &piece, key);
    _exit(0);
}

/* Returns 0 when it ended before that many instructions. */
static int step(pid_t pid, long steps)
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

static void finish(pid_t pid, bool killed)
{
    int status;
    if (killed)
        kill(pid, SIGKILL);
    else
        CHECK(ptrace(PTRACE_DETACH, pid, 0, 0) == 0, "detach");
    CHECK(waitpid(pid, &status, 0) == pid, "end");
    CHECK(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "the victim failed");
}

static int once(struct slots *slots, long steps, bool killed)
{
    static uint64_t number;
    uint64_t key = ++number;
    struct held_piece piece, joined, other;
    uint64_t beside_bytes = is("beside") ? OTHER_BYTES : 0;
    char when[64];
    int status;
    snprintf(when, sizeof when, "%s, %ld steps, %s", mode, steps, killed ? "killed" : "going on");
    CHECK(slots_export(slots, &piece, is("make") ? key | 2 * OTHER : key, PIECE_BYTES), "export");
    if (is("beside"))
        CHECK(slots_export(slots, &other, key | OTHER, OTHER_BYTES) &&
                  other.slot.index == piece.slot.index,
              "no piece of the same slot");
    uint64_t gen = usage_slot(slots->fixture.usage, piece.slot.index)->gen;
    if (!is("leave") && !is("beside") && !is("alive"))
        slots_vanish(&piece.slot);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0)
        victim_work(slots, key, piece.slot.index, gen);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "start");
    if (is("leave") || is("beside"))
        slots_vanish(&piece.slot);
    int alive = step(pid, steps);
    uint64_t bytes = slots_join(slots, &joined, key);
    CHECK(bytes == 0 || bytes == PIECE_BYTES, "%s: joined %llu bytes", when,
          (unsigned long long)bytes);
    CHECK(bytes == PIECE_BYTES || !is("alive"), "%s: a piece in use was not found", when);
    if (alive)
        finish(pid, killed);
    if (is("alive"))
        slots_leave(slots, &piece); /* one holder is left */
    slots_fill(slots, LIMIT_BYTES, OWN_BYTES + beside_bytes + bytes, when);
    if (bytes > 0)
        slots_leave(slots, &joined);
    CHECK(slots_used(slots) == OWN_BYTES + beside_bytes || bytes == 0, "%s: left, used %llu", when,
          (unsigned long long)slots_used(slots));
    slots_fill(slots, LIMIT_BYTES, OWN_BYTES + beside_bytes, when);
    if (is("beside"))
        slots_leave(slots, &other);
    slots_fill(slots, LIMIT_BYTES, OWN_BYTES, when);
    return alive;
}

int main(int argc, char **argv)
{
    struct ledger_refusal refusal;
    CHECK(argc == 4, "usage");
    mode = argv[2];
    struct slots slots = slots_make(argv[1], LIMIT_BYTES);
    CHECK(ledger_reserve(&slots.fixture.ledger, slots.own.index, OWN_BYTES, &refusal) == 0, "own");
    long stride = atol(argv[3]), steps = 0;
    while (once(&slots, steps, false) && once(&slots, steps, true))
        steps += stride;
    printf("%ld\n", steps / stride);
    return 0;
}
