/* A model of the ledger and of claiming a slot, one step per access to shared memory or per lock
 * call, for a search through every order of steps, crashes and limit changes (search.c).
 *
 * It follows ledger.c and slot.c by hand: a change of their sequence of accesses is made here, too.
 * Names of steps are those of the accesses there. Memory is sequentially consistent: on x86-64
 * every store the algorithm relies on is a locked instruction, or has one or a system call between
 * it and whatever its own process does next with the ledger.
 *
 * What must hold is said in two places: model_wrong of every state (world.c), and of every outcome
 * (search.c) that a grant was within the limit at one moment since it stood in the total, and that
 * a refused request did not fit at one moment since it was asked. Bytes on their way back, granted
 * over a limit that has just been lowered, count as held until they are back. */
#ifndef LEDGER_MODEL_H
#define LEDGER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_SLOTS 3
#define MOST_THREADS 4
#define MOST_OPERATIONS 4
#define NO_SLOT 0xff
#define HEIRS 0x80 /* children of a process that has died */

enum fault {
    FAULT_NONE,
    FAULT_NO_SECOND_LIMIT, /* granted without a second look at the limit */
    FAULT_REAP_ANY_GEN,    /* reaps without a look at gen */
    FAULT_NO_PARITY,       /* a cleaned slot keeps its gen until its new user is there */
    FAULT_NO_SECOND_GEN,   /* no look at gen after "its lock is held" */
    FAULT_NO_COUNT,        /* an empty slot is fine whatever happened to it since it was noted */
    FAULT_UNDO_REFUSES,    /* who takes a grant back refuses at once */
    FAULT_NO_HELP,         /* goes on without finishing the last operation */
    FAULT_LIFE_FIRST,      /* a claimer takes the life lock before it cleans */
    FAULT_JOIN_SAME_GEN,   /* who joins a piece leaves its gen as it is */
    FAULT_JOIN_SAME_TOTAL, /* who joins a piece leaves the total as it is */
    FAULT_NO_LOOK,         /* a claimer does not look whether children keep the slot */
    FAULT_COUNT
};

/* JOIN and LEAVE: the piece of memory in slot 0 (slot.h), which thread 0 holds from the start. */
enum operation_kind { NOTHING, CLAIM, RESERVE, RELEASE_ALL, JOIN, LEAVE };

struct operation {
    enum operation_kind kind;
    uint8_t bytes;
};

/* What is searched: who does what, and how often the world interferes. */
struct scenario {
    const char *name;
    uint8_t slots;
    uint8_t threads;
    uint8_t
        process[MOST_THREADS];  /* of each thread; threads of one share a slot and die together */
    uint8_t slot[MOST_THREADS]; /* NO_SLOT: has yet to claim one */
    struct operation operations[MOST_THREADS][MOST_OPERATIONS];
    uint8_t crashes;
    uint8_t limit;
    uint8_t limit_afterwards; /* at any step, once */
    uint8_t piece_bytes;      /* of a piece in slot 0; 0: there is none */
    bool has_heirs;           /* children of a process that dies keep its slot, until they end */
};

struct total {
    uint8_t used;
    uint8_t slot;
    uint8_t sequence;
    int8_t delta;
};

struct word {
    uint8_t bytes;
    uint8_t count;
};

struct model_slot {
    struct word word;
    uint8_t gen;
    uint8_t claim;    /* which processes hold that lock, a bit each */
    uint8_t life;     /* the same, and HEIRS */
    uint8_t kept;     /* bytes that it had when HEIRS got it */
    bool is_claiming; /* the claim lock is held for writing */
    bool is_piece;    /* its locks are read locks, its key that of the piece */
};

enum status { RUNNING, FINISHED, DEAD };

/* In whose name the steps that several operations share are done. */
enum mode {
    MODE_RESERVE,
    MODE_UNDO,
    MODE_RELEASE,
    MODE_REFUSE,
    MODE_REAP,
    MODE_CLEAN,
    MODE_JOIN,
    MODE_LEAVE
};

/* clang-format off */
enum step {
    LOAD_TOTAL, SETTLE_WORD, SETTLE_TOTAL, SETTLE_CAS, LIMIT, OWN_WORD, REAP_WORD, REAP_GEN,
    CAS_TOTAL, COMMIT, LIMIT_AGAIN,
    NOTE_HI_SLOT, NOTE_GEN, NOTE_COUNT, PROOF_LIMIT, PROOF_TOTAL, PROOF_LIMIT_AGAIN, LOOK_GEN,
    LOOK_WORD, LOOK_HELD, LOOK_GEN_AGAIN, LOOK_HI_SLOT,
    CLAIM_LOCK, CLAIM_LOOK, CLAIM_GEN, CLAIM_EVEN, CLAIM_LIFE, CLAIM_HI_SLOT, CLAIM_HI_SLOT_CAS, CLAIM_ODD,
    JOIN_FIND, JOIN_CLAIM, JOIN_LIFE, JOIN_GEN, JOIN_GEN_CAS, JOIN_BYTES, LEAVE_GEN, LEAVE_DROP, LEAVE_HELD
};
/* clang-format on */

struct thread {
    uint8_t status;
    uint8_t operation; /* index of the one in progress */
    uint8_t slot;
    uint8_t held; /* bytes its own operations stand for in the total */
    bool holds_piece;
    /* from here on: of the operation in progress, else zero */
    uint8_t bytes;
    uint8_t mode;
    uint8_t step;
    uint8_t other; /* the slot looked at, reaped or claimed */
    uint8_t gen;
    uint8_t hi_slot;
    uint8_t limit;
    bool may_be_refused; /* at one moment it did not fit next to what the living held */
    bool may_be_granted; /* at one moment since it stood in the total, that was within the limit */
    struct total seen;
    struct word word;
    struct {
        uint8_t gen;
        uint8_t count;
    } notes[MOST_SLOTS];
};

struct state {
    struct total total;
    uint8_t limit;
    uint8_t limit_changed;
    uint8_t crashes_left;
    uint8_t hi_slot;
    struct model_slot slots[MOST_SLOTS];
    struct thread threads[MOST_THREADS];
};

enum outcome { GOES_ON, GRANTED, REFUSED, ENDED };

extern const struct scenario *scenario;
extern enum fault planted_fault;

/* The first state of `scenario`. */
struct state model_start(void);

/* Begins an operation of a thread that has none. */
void model_begin(struct thread *thread, enum operation_kind kind, uint8_t bytes);

/* Lets a running thread make its next step. It is up to the caller what comes after the operation
 * unless `outcome` is GOES_ON. */
enum outcome model_step(struct state *state, uint8_t which);

/* Ends an operation: the thread goes on to the next of the scenario. */
void model_next_operation(struct thread *thread, uint8_t which);

/* A step of joining or leaving a piece (pieces.c). */
enum outcome model_step_piece(struct state *state, struct thread *thread, uint8_t which);

/* Takes a process's locks from a slot. */
void model_unlock(struct model_slot *slot, uint8_t process);

/* Kills a process with all its threads. */
void model_crash(struct state *state, uint8_t process);

/* Ends the children that keep slots. Returns false if there are none. */
bool model_end_heirs(struct state *state);

/* What stands in a slot, the operation in flight included. */
int model_slot_bytes(const struct state *state, uint8_t slot);

/* What the living hold together. */
int model_live_bytes(const struct state *state);

/* What nobody can reclaim while all but one stand still. */
int model_locked_bytes(const struct state *state);

/* True between a grant's way into the total and the thread's last look at the limit. */
bool model_is_tentative(const struct thread *thread);

/* What is wrong with the state, as a sentence; NULL: nothing. */
const char *model_wrong(const struct state *state);

#endif
