/* The limit is lowered while a reservation is under way, at each of its instructions in turn.
 *
 *   ledger_relimit lowered    once: what was not in the total by then must be refused
 *   ledger_relimit twice      once just before the reservation enters the total, and twice more at
 *                             each instruction after it, so that whoever reads the limit in several
 *                             loads meets three versions of it: it must be refused in any case */
#include <errno.h>

#include "stepped.h"

#define LIMIT_BYTES 1000003u
#define LOWERED_BYTES 1000u
#define BESIDE_BYTES (64 * (uint64_t)LIMIT_BYTES) /* what the host measured beside the ledger */
#define NEIGHBOUR_BYTES 400u
#define VICTIM_BYTES 1000u
#define NEIGHBOUR 0u
#define VICTIM 1u
#define PATIENCE_S 20

struct report {
    volatile int is_begun;
    volatile int is_done;
    volatile int result;
};

static struct fixture fixture;
static struct report *report;
static void *prepared_image;

static int is_held(void *context, uint32_t slot)
{
    (void)context;
    (void)slot;
    return 1;
}

/* Sets what may be held to `bytes`, as the difference of two fields that are read one by one. */
static void set_limit(uint64_t bytes, uint64_t beside)
{
    struct vgpu_limits_copy head = {.device_count = 1, .family = VGPU_FAMILY_VGPU};
    struct vgpu_device_limit device = {.memory_limit_bytes = bytes + beside,
                                       .unaccounted_bytes = beside};
    CHECK(limits_publish(fixture.limits, &head, &device) == 0, "publish");
}

static pid_t start_victim(void)
{
    int status;
    memcpy(fixture.usage, prepared_image, usage_file_bytes(1));
    set_limit(LIMIT_BYTES, 0);
    memset(report, 0, sizeof *report);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        struct ledger_refusal refusal;
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        report->is_begun = 1;
        report->result = ledger_reserve(&fixture.ledger, VICTIM, VICTIM_BYTES, &refusal);
        report->is_done = 1;
        raise(SIGSTOP);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "the victim begins");
    ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL);
    return pid;
}

static int is_in_total(void)
{
    return ledger_used_bytes(&fixture.ledger) == NEIGHBOUR_BYTES + VICTIM_BYTES;
}

static void check_end(int must_be_refused, long at)
{
    struct ledger_refusal refusal;
    uint64_t holds = fixture_slot_bytes(&fixture, VICTIM);
    CHECK(!must_be_refused || report->result == -ENOMEM, "point %ld: granted over the limit", at);
    CHECK(holds == (report->result == 0 ? VICTIM_BYTES : 0), "point %ld: it holds %llu", at,
          (unsigned long long)holds);
    CHECK(ledger_used_bytes(&fixture.ledger) == NEIGHBOUR_BYTES + holds, "point %ld: the total",
          at);
    CHECK(ledger_reserve(&fixture.ledger, NEIGHBOUR, 1, &refusal) ==
              (NEIGHBOUR_BYTES + holds < LOWERED_BYTES ? 0 : -ENOMEM),
          "point %ld: the lowered limit", at);
}

static void lower_once(const struct stepped_point *points, long at)
{
    pid_t pid = start_victim();
    CHECK(stepped_reach(pid, points[at]), "point %ld was not reached", at);
    int must_be_refused = !is_in_total();
    set_limit(LOWERED_BYTES, 0);
    stepped_let_go(pid, &report->is_done);
    check_end(must_be_refused, at);
    stepped_kill(pid);
}

/* Returns the last point at which the reservation is not in the total yet. */
static long find_entry(const struct stepped_point *points, long count)
{
    long at = 0;
    for (int entered = 0; at < count && !entered; at++) {
        pid_t pid = start_victim();
        CHECK(stepped_reach(pid, points[at]), "point %ld was not reached", at);
        entered = is_in_total();
        stepped_kill(pid);
    }
    CHECK(at > 1 && at < count, "the reservation never enters the total");
    return at - 2;
}

/* A victim that is about to enter the total, with the limit lowered under it. */
static pid_t start_lowered(struct stepped_point entry)
{
    pid_t pid = start_victim();
    CHECK(stepped_reach(pid, entry), "the entry was not reached");
    set_limit(LOWERED_BYTES, BESIDE_BYTES);
    return pid;
}

/* Changes the limit twice more, never to more, at a point behind the entry. */
static void lower_thrice(struct stepped_point entry, const struct stepped_point *points, long at)
{
    pid_t pid = start_lowered(entry);
    CHECK(stepped_reach(pid, points[at]), "point %ld was not reached", at);
    set_limit(LOWERED_BYTES, 0);
    set_limit(LOWERED_BYTES, 0);
    stepped_let_go(pid, &report->is_done);
    check_end(1, at);
    stepped_kill(pid);
}

int main(int argc, char **argv)
{
    static struct stepped_point points[STEPPED_MOST];
    struct ledger_refusal refusal;
    CHECK(argc == 2, "ledger_relimit lowered|twice");
    report = fixture_share(sizeof *report);
    fixture = fixture_make(LIMIT_BYTES, is_held);
    fixture_occupy(&fixture, NEIGHBOUR);
    fixture_occupy(&fixture, VICTIM);
    CHECK(ledger_reserve(&fixture.ledger, NEIGHBOUR, NEIGHBOUR_BYTES, &refusal) == 0, "start");
    prepared_image = malloc(usage_file_bytes(1));
    memcpy(prepared_image, fixture.usage, usage_file_bytes(1));
    long count = stepped_survey(start_victim(), &report->is_begun, &report->is_done, points);
    alarm(PATIENCE_S); /* nobody waits for the victim */
    if (strcmp(argv[1], "lowered") == 0) {
        for (long at = 0; at < count; at++)
            lower_once(points, at);
    } else {
        struct stepped_point entry = points[find_entry(points, count)];
        pid_t pid = start_lowered(entry);
        count = stepped_survey(pid, &report->is_begun, &report->is_done, points);
        for (long at = 0; at < count; at++)
            lower_thrice(entry, points, at);
    }
    printf("%ld\n", count);
    return 0;
}
