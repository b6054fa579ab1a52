/* Processes that export, join and leave pieces of memory as fast as they can, fill the ledger to
 * its last byte, sweep it, and are killed at any moment. Again and again the living stand still:
 * then the ledger must hold exactly what they hold, each piece once.
 *
 *   shared_slots_race FILE PROCESSES KILLS   prints the operations and the quiet points */
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#include "shared_slots.h"

#define LIMIT_BYTES 1000003u
#define MOST_PROCESSES 32
#define PIECES 4 /* that a process holds at most */
#define CELLS 8  /* keys that can be joined */

struct held {
    uint64_t key; /* 0: none; its low 12 bits are the piece's bytes */
    struct held_piece piece;
};

struct seat {
    _Atomic uint32_t stands; /* at the quiet point of that number */
    _Atomic uint64_t operations;
    uint64_t own_bytes;
    struct held pieces[PIECES];
};

struct board {
    _Atomic uint32_t quiet; /* odd: stand still */
    _Atomic uint64_t next_key;
    _Atomic uint64_t cells[CELLS];
    struct seat seats[MOST_PROCESSES];
};

static struct board *board;

static uint64_t bytes_of(uint64_t key)
{
    return key & 0xfff;
}

static void stand_still(struct seat *seat)
{
    uint32_t number = atomic_load(&board->quiet);
    atomic_store(&seat->stands, number);
    while (atomic_load(&board->quiet) == number)
        usleep(100);
}

static void operate(struct slots *slots, struct seat *seat, unsigned int *seed)
{
    struct ledger *ledger = &slots->fixture.ledger;
    struct ledger_refusal refusal;
    struct held *held = &seat->pieces[(unsigned int)rand_r(seed) % PIECES];
    _Atomic uint64_t *cell = &board->cells[(unsigned int)rand_r(seed) % CELLS];
    int what = rand_r(seed) % 16;
    if (what == 0) {
        ledger_sweep(ledger);
    } else if (what == 1) {
        uint64_t rest = LIMIT_BYTES - slots_used(slots);
        if (rest < LIMIT_BYTES && ledger_reserve(ledger, slots->own.index, rest, &refusal) == 0)
            ledger_release(ledger, slots->own.index, rest);
    } else if (what < 5) {
        ledger_release(ledger, slots->own.index, seat->own_bytes);
        seat->own_bytes = 1 + (unsigned int)rand_r(seed) % 3000;
        if (ledger_reserve(ledger, slots->own.index, seat->own_bytes, &refusal) != 0)
            seat->own_bytes = 0;
    } else if (held->key != 0) {
        slots_leave(slots, &held->piece);
        held->key = 0;
    } else if (what < 9) {
        uint64_t key = atomic_fetch_add(&board->next_key, 1) << 12 | (1 + rand_r(seed) % 4000);
        if (slots_export(slots, &held->piece, key, bytes_of(key))) {
            held->key = key;
            atomic_store(cell, key);
        }
    } else {
        uint64_t key = atomic_load(cell);
        uint64_t bytes = key != 0 ? slots_join(slots, &held->piece, key) : 0;
        CHECK(bytes == 0 || bytes == bytes_of(key), "joined %llu bytes of another piece",
              (unsigned long long)bytes);
        held->key = bytes > 0 ? key : 0;
    }
    atomic_fetch_add(&seat->operations, 1);
}

static void work(struct slots slots, unsigned int index)
{
    struct seat *seat = &board->seats[index];
    unsigned int seed = (unsigned int)getpid();
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* however the test ends */
    slots_enter(&slots);
    for (;;) {
        if (atomic_load(&board->quiet) % 2 == 1)
            stand_still(seat);
        else
            operate(&slots, seat, &seed);
    }
}

static pid_t start(struct slots *slots, unsigned int index)
{
    struct seat *seat = &board->seats[index];
    uint64_t operations = seat->operations;
    memset(seat, 0, sizeof *seat);
    seat->operations = operations;
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0)
        work(*slots, index);
    return pid;
}

static uint64_t held_by_all(unsigned int processes)
{
    uint64_t sum = 0;
    for (unsigned int i = 0; i < processes; i++) {
        sum += board->seats[i].own_bytes;
        for (int piece = 0; piece < PIECES; piece++) {
            uint64_t key = board->seats[i].pieces[piece].key;
            bool seen = key == 0;
            for (unsigned int at = 0; at < i * PIECES + (unsigned int)piece && !seen; at++)
                seen = board->seats[at / PIECES].pieces[at % PIECES].key == key;
            sum += seen ? 0 : bytes_of(key);
        }
    }
    return sum;
}

static void be_quiet(struct slots *slots, pid_t *pids, unsigned int processes)
{
    uint32_t number = atomic_fetch_add(&board->quiet, 1) + 1;
    for (unsigned int i = 0; i < processes; i++)
        while (atomic_load(&board->seats[i].stands) != number) {
            CHECK(waitpid(pids[i], NULL, WNOHANG) == 0, "a process has failed");
            usleep(100);
        }
    slots_fill(slots, LIMIT_BYTES, held_by_all(processes), "all stand still");
    atomic_fetch_add(&board->quiet, 1);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4, "usage");
    unsigned int processes = (unsigned int)atoi(argv[2]);
    long kills = atol(argv[3]), quiet_points = 0;
    uint64_t operations = 0;
    pid_t pids[MOST_PROCESSES];
    CHECK(processes <= MOST_PROCESSES, "too many");
    board = fixture_share(sizeof *board);
    board->next_key = 1;
    struct slots slots = slots_make(argv[1], LIMIT_BYTES);
    unsigned int seed = (unsigned int)getpid();
    for (unsigned int i = 0; i < processes; i++)
        pids[i] = start(&slots, i);
    while (kills > 0) {
        for (int i = 0; i < 4; i++, kills--) {
            usleep((useconds_t)rand_r(&seed) % 3000);
            unsigned int victim = (unsigned int)rand_r(&seed) % processes;
            CHECK(waitpid(pids[victim], NULL, WNOHANG) == 0, "a process has failed");
            kill(pids[victim], SIGKILL);
            CHECK(waitpid(pids[victim], NULL, 0) == pids[victim], "wait");
            pids[victim] = start(&slots, victim);
        }
        be_quiet(&slots, pids, processes);
        quiet_points++;
    }
    for (unsigned int i = 0; i < processes; i++) {
        operations += board->seats[i].operations;
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    slots_fill(&slots, LIMIT_BYTES, 0, "all are dead");
    printf("%llu operations, %ld quiet points\n", (unsigned long long)operations, quiet_points);
    return 0;
}
