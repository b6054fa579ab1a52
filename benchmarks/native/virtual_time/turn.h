/* One clock and one turn for all threads of all programs of a test.
 *
 * Each program maps the file that VIRTUAL_TIME_FILE names; the first one makes it. One thread runs at a
 * time. It keeps the turn until it waits, ends, or has come past a moment at which another one goes on. Each
 * thread has its own time, which a look at the clock moves by LOOK_NS; the thread that is furthest behind
 * runs next. So threads run side by side as on a machine with a processor for each, the clock never goes
 * back, and where all of them wait it jumps to the first moment at which one goes on. Nothing depends on how
 * fast the machine is. A tie is broken by a number that the seed decides, which also takes the
 * processor from a thread now and then. A world may let a thread come past that moment by some looks, where
 * threads that spin side by side would do little but hand on the turn.
 *
 * Programs begin and end within turns. A program that another one starts (fork, then exec) has a place before it
 * is there, and one that ends is waited for by whoever runs next, so no files, locks or memory of it are left
 * by then. A thread that waits for a file (a pipe, a socket, a child's end) goes on when any thread has
 * changed one. Only where all wait, and none for a moment, are programs outside of the world waited for: such
 * a thread is away meanwhile, which does not hold up the time.
 *
 * A world is written under its lock, or by the thread that has the turn. */
#ifndef VGPU_TEST_TURN_H
#define VGPU_TEST_TURN_H

#include <stdbool.h>
#include <stdint.h>

#define TURN_THREADS 256
#define LOOK_NS 50
#define NEVER_NS INT64_MAX

/* What waits are for; 0: for the time only. Others are names of objects of one process. */
#define A_LOCK 1 /* a lock may lie in several programs */
#define A_WORD 2 /* the same for a futex */
#define A_FILE 3 /* that something can be read, or written, or that a child has ended */

/* A lock or a word by its place in its page, which is the same in all programs: few others are meant, too. */
static inline uint64_t turn_name(uint64_t what, const void *object)
{
    return what | ((uint64_t)(uintptr_t)object & 0xffc);
}

static inline bool turn_is_name(uint64_t what, uint64_t name)
{
    return name < 0x1000 && (name & 3) == what;
}

enum turn_state { TURN_FREE, TURN_READY, TURN_WAITING, TURN_AWAY };

struct turn_thread {
    uint32_t state;
    uint32_t called; /* to run, or to wait for the end of who has the turn; a futex */
    int32_t pid;
    uint32_t tie;
    int64_t own_ns;   /* its time */
    int64_t until_ns; /* waits until then */
    uint64_t what;    /* waits for that */
    uint64_t handle;  /* pthread_t, for who joins it */
    uint64_t signals; /* it is sent when it has the turn; a bit each */
    bool woken;
    bool is_stopped; /* as its process is, by SIGSTOP */
    bool alone;      /* it was given the turn since all wait and none for a moment */
};

struct turn_world {
    uint32_t lock; /* 0 free, 1 taken, 2 taken and waited for */
    int64_t now_ns;
    int64_t next_ns; /* when the first of those that do not run goes on */
    uint64_t seed;   /* 0: nothing is left to chance */
    uint32_t
        one_in; /* of so many looks at the clock, one finds that its thread had no processor … */
    uint32_t late_ns;  /* … for at most so long */
    uint32_t slack_ns; /* by which a thread may come past the moment at which another one goes on */
    uint64_t switches;
    int32_t running;       /* -1: nobody */
    int32_t dying;         /* the process that has the turn is about to end; 0: none */
    uint32_t lock_waiters; /* atomic */
    uint32_t file_waiters; /* atomic */
    uint32_t used;         /* threads at the front that are or were in use */
    struct turn_thread threads[TURN_THREADS];
};

/* When every world begins: later than any machine has been up, and always the same. */
#define BEGINNING_NS (1ll << 60)

/* How a world is made, if it is not there yet: four numbers, the seed, one_in, late_ns and slack_ns, or NULL. */
struct turn_world *turn_map(const char *path, const char *chance);

/* A program begins, or goes on as another one (exec): returns the place of its only thread, which has
 * the turn by then, or -1 when there is none. */
int turn_enter(struct turn_world *world);
/* It is about to end, and has the turn until it has: another thread waits for that. */
void turn_exit(struct turn_world *world);

/* Takes a place for a thread of that process that is about to run, and goes on from now. `pid` is 0 for a
 * process that is about to be forked. Returns -1 when there is none. */
int turn_place(struct turn_world *world, int32_t pid);

/* The calling thread has that place: waits for its first turn. */
void turn_begin(struct turn_world *world, int place);
/* It ends; who waits for `what` goes on. */
void turn_end(struct turn_world *world, int place, uint64_t what);

int64_t turn_look(struct turn_world *world, int place);

/* Lets those go on that are at an earlier or the same moment. */
void turn_yield(struct turn_world *world, int place);

/* Waits; true when it was woken, false when the time has come. */
bool turn_wait(struct turn_world *world, int place, uint64_t what, int64_t until_ns);

/* Wakes at most so many of those that wait for it; the longest waiting first. */
void turn_wake(struct turn_world *world, uint64_t what, int most);

/* True where the wait that has just ended was for nothing in this world. */
bool turn_is_alone(const struct turn_world *world, int place);

/* Goes away, and comes back. */
void turn_leave(struct turn_world *world, int place);
void turn_return(struct turn_world *world, int place);

/* A process is stopped, and goes on. */
void turn_stop(struct turn_world *world, int32_t pid, bool is_stopped);

/* Sends a signal to a process, which gets it in its next turn. False where it has no thread that waits. */
bool turn_signal(struct turn_world *world, int32_t pid, int number);

/* Waits, in real time, until the process has ended. What it had is free then. */
void turn_bury(struct turn_world *world, int32_t pid);

/* True while a thread of this process with that handle has not ended. */
bool turn_is_live(const struct turn_world *world, uint64_t handle);

#endif
