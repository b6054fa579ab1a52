/* A victim stopped at each of its instructions in turn while the others go on, then killed or let
 * go.
 *
 *   ledger_step DIRECTORY WORK MOST_POINTS      0: at every point
 *
 * While the victim stands, a newcomer claims a slot and the neighbour takes every byte down to the
 * last and is refused one more. In half of the runs they give the bytes back before the victim is
 * killed or goes on. Then the books must be exact, and the victim told the truth. */
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "slice_fixture.h"
#include "stepped.h"

#define LIMIT_BYTES 1000003u
#define NEIGHBOUR_BYTES 400u
#define VICTIM_BYTES 1000u
#define DEAD_BYTES 50u
#define NEWCOMER_BYTES 7u
#define FREE_BYTES (LIMIT_BYTES - NEIGHBOUR_BYTES) /* once the dead are reclaimed */
#define EVERY_POINTS_STRIDE 8
#define PATIENCE_S 20 /* a neighbour that waited for the stopped victim would end by SIGALRM */

enum work { ATTACH, RESERVE, RELEASE, FORCE, RECLAIM, REFUSAL, WORKS };

static const char *const work_names[WORKS] = {"attach", "reserve", "release",
                                              "force",  "reclaim", "refusal"};

/* What the victim tells: written by it, read by the tracer. */
struct report {
    volatile uint32_t slot;
    volatile int is_prepared;
    volatile int is_done;
    volatile int result;
};

static struct slice_fixture slice;
static struct slot neighbour;
static struct slot newcomer; /* comes while the victim stands */
static struct report *report;
static void *prepared_image; /* of `usage`, before each life of the victim */
static enum work work;

static uint64_t asked_bytes(void)
{
    return work == RECLAIM   ? FREE_BYTES - NEWCOMER_BYTES
           : work == REFUSAL ? FREE_BYTES + 1
                             : VICTIM_BYTES;
}

/* ---- the victim ---- */

static int do_work(struct slot *slot)
{
    struct ledger_refusal refusal;
    switch (work) {
    case ATTACH:
        return slot_claim(slot, slice.path, slice.base.usage, slice.base.limits);
    case RELEASE:
        ledger_release(&slice.base.ledger, slot->index, VICTIM_BYTES);
        return 0;
    case FORCE:
        ledger_force(&slice.base.ledger, slot->index, VICTIM_BYTES);
        return 0;
    default:
        return ledger_reserve(&slice.base.ledger, slot->index, asked_bytes(), &refusal);
    }
}

static void victim_lives(void)
{
    struct slot slot = {0};
    struct ledger_refusal refusal;
    if (work != ATTACH)
        slot = slice_fixture_claim(&slice);
    if (work == RELEASE)
        CHECK(ledger_reserve(&slice.base.ledger, slot.index, VICTIM_BYTES, &refusal) == 0, "fits");
    report->slot = slot.index;
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    report->is_prepared = 1;
    int result = do_work(&slot);
    report->result = result;
    report->slot = slot.index;
    report->is_done = 1;
    raise(SIGSTOP);
    _exit(0);
}

/* ---- the tracer ---- */

static pid_t start_victim(void)
{
    int status;
    memcpy(slice.base.usage, prepared_image, usage_file_bytes(1));
    fixture_set_limit(&slice.base, LIMIT_BYTES);
    memset(report, 0, sizeof *report);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0)
        victim_lives();
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "the victim begins");
    ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL);
    return pid;
}

static void take(struct slot slot, uint64_t bytes, const char *when)
{
    struct ledger_refusal refusal = {0};
    CHECK(ledger_reserve(&slice.base.ledger, slot.index, bytes, &refusal) == 0,
          "%s: %llu bytes should fit: %llu used of %llu", when, (unsigned long long)bytes,
          (unsigned long long)refusal.used_bytes, (unsigned long long)refusal.limit_bytes);
}

static void take_the_rest(uint64_t bytes, const char *when)
{
    struct ledger_refusal refusal;
    if (bytes > 0)
        take(neighbour, bytes, when);
    else
        ledger_sweep(&slice.base.ledger);
    CHECK(ledger_used_bytes(&slice.base.ledger) == LIMIT_BYTES, "%s: not full", when);
    CHECK(ledger_reserve(&slice.base.ledger, neighbour.index, 1, &refusal) == -ENOMEM,
          "%s: one byte over", when);
    slice_fixture_audit(&slice, when);
}

static void give(struct slot slot, uint64_t bytes)
{
    ledger_release(&slice.base.ledger, slot.index, bytes);
}

/* What the living victim holds. It has a slot of its own only behind its attaching. */
static uint64_t victim_bytes(void)
{
    return work == ATTACH ? 0 : fixture_slot_bytes(&slice.base, report->slot);
}

/* What goes on while the victim stands: a newcomer claims the first free slot, which may be one
 * that the victim is looking at, and all bytes are taken. Returns what is kept. */
static uint64_t others_go_on(int keeps)
{
    newcomer = slice_fixture_claim(&slice);
    take(newcomer, NEWCOMER_BYTES, "beside a stopped victim");
    /* That settled what the victim had in flight, so that its slot says what it holds. */
    uint64_t rest = FREE_BYTES - NEWCOMER_BYTES - victim_bytes();
    take_the_rest(rest, "beside a stopped victim");
    if (keeps)
        return rest + NEWCOMER_BYTES;
    give(neighbour, rest);
    give(newcomer, NEWCOMER_BYTES);
    return 0;
}

/* One comes behind all slots that the victim may have counted, and dies with what is free. */
static void one_comes_and_dies(void)
{
    uint64_t rest = FREE_BYTES - victim_bytes();
    struct slot stranger = slice_fixture_claim(&slice);
    take(stranger, rest, "beside a stopped victim");
    slice_fixture_drop(stranger);
}

static void check_result(uint64_t bytes_when_stopped, uint64_t neighbour_keeps)
{
    uint64_t expected = 0;
    int result = 0;
    if (work == RESERVE || work == RECLAIM || work == REFUSAL) {
        int granted = bytes_when_stopped > 0 || (neighbour_keeps == 0 && work != REFUSAL);
        result = granted ? 0 : -ENOMEM;
        expected = granted ? asked_bytes() : 0;
    }
    if (work == FORCE)
        expected = VICTIM_BYTES;
    CHECK(report->result == result, "the victim was told %d", report->result);
    CHECK(fixture_slot_bytes(&slice.base, report->slot) == expected, "the victim holds %llu",
          (unsigned long long)fixture_slot_bytes(&slice.base, report->slot));
    CHECK(slot_is_held(slice.path, report->slot), "the victim lost its slot");
    slice_fixture_audit(&slice, "after the victim's end");
}

/* One life of the victim, stopped at that point. False when it did not come by there. */
static int run(struct stepped_point point, int resumes, int keeps, int one_dies)
{
    alarm(PATIENCE_S);
    pid_t pid = start_victim();
    int reached = stepped_reach(pid, point);
    uint64_t kept = others_go_on(keeps);
    if (one_dies)
        one_comes_and_dies();
    if (resumes) {
        uint64_t bytes_when_stopped = victim_bytes();
        stepped_let_go(pid, &report->is_done);
        check_result(bytes_when_stopped, kept);
    }
    stepped_kill(pid);
    const struct slot living[] = {neighbour, newcomer};
    slice_fixture_wait_dead(&slice, living, 2);
    if (kept > 0) {
        CHECK(fixture_slot_bytes(&slice.base, newcomer.index) == NEWCOMER_BYTES, "the newcomer's");
        give(newcomer, NEWCOMER_BYTES);
        kept -= NEWCOMER_BYTES;
    }
    take_the_rest(FREE_BYTES - kept, "after the victim's death");
    give(neighbour, FREE_BYTES);
    CHECK(ledger_used_bytes(&slice.base.ledger) == NEIGHBOUR_BYTES, "bytes leaked");
    slice_fixture_drop(newcomer);
    return reached;
}

/* Two users that died holding bytes, in the slots behind the neighbour's. */
static void leave_dead(void)
{
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        struct ledger_refusal refusal;
        for (int i = 0; i < 2; i++) {
            struct slot slot = slice_fixture_claim(&slice);
            CHECK(ledger_reserve(&slice.base.ledger, slot.index, DEAD_BYTES, &refusal) == 0,
                  "fits");
        }
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the dead");
    slice_fixture_wait_dead(&slice, &neighbour, 1);
}

int main(int argc, char **argv)
{
    static struct stepped_point points[STEPPED_MOST];
    CHECK(argc == 4, "ledger_step DIRECTORY WORK MOST_POINTS");
    while (work < WORKS && strcmp(argv[2], work_names[work]) != 0)
        work++;
    CHECK(work < WORKS, "no work %s", argv[2]);
    report = fixture_share(sizeof *report);
    slice_fixture_make(&slice, argv[1], LIMIT_BYTES);
    neighbour = slice_fixture_claim(&slice);
    take(neighbour, NEIGHBOUR_BYTES, "start");
    leave_dead();
    prepared_image = malloc(usage_file_bytes(1));
    memcpy(prepared_image, slice.base.usage, usage_file_bytes(1));
    long count = stepped_survey(start_victim(), &report->is_prepared, &report->is_done, points);
    long most = atol(argv[3]);
    long stride = most > 0 ? (count + most - 1) / most : EVERY_POINTS_STRIDE;
    long stopped = 0, tried = 0;
    /* Every point is in one of the rounds; what is wrong for some instructions shows in an early
     * one. */
    for (long first = 0; first < (most > 0 ? 1 : stride); first++)
        for (long i = first; i < count; i += stride, tried++)
            for (int way = 0; way < 4; way++) {
                stopped += run(points[i], way & 1, way & 2, 0);
                if (way == 1 && work == RECLAIM)
                    run(points[i], 1, 0, 1);
            }
    printf("stopped %ld times at %ld of %ld points\n", stopped, tried, count);
    return 0;
}
