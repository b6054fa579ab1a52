/* One clock and one turn for all threads of all programs of a test.
 *
 * Each program maps the file that VIRTUAL_TIME_FILE names; the first one makes it. One thread runs at a
 * time. It keeps the turn until it waits, ends, or has come past a moment at which another one goes on. Each
 * thread has its own time, which a look at the clock moves by LOOK_NS; the thread that is furthest behind
 * runs next. So threads run side by side as on a machine with a processor for each, the clock never goes
 * back, and where all of them wait it jumps to the first moment at which one goes on. Nothing depends on how
 * fast the machine is. A tie is broken by a number that the seed decides, which also takes the
 * processor from a thread now and then.
 *
 * A thread that is away (a call that may block for other reasons than time, or a test that waits for a
 * program's end) does not hold up the time.
 *
 * A world is written under its lock, or by the thread that has the turn. */
#ifndef VGPU_TEST_TURN_H
#define VGPU_TEST_TURN_H

#include <stdbool.h>
#include <stdint.h>

#define TURN_THREADS 256
#define LOOK_NS 50
#define NEVER_NS INT64_MAX

enum turn_state { TURN_FREE, TURN_READY, TURN_WAITING, TURN_AWAY };

struct turn_thread {
    uint32_t state;
    uint32_t called; /* it has the turn; a futex */
    int32_t pid;
    uint32_t tie;
    int64_t own_ns;   /* its time */
    int64_t until_ns; /* waits until then */
    uint64_t what;    /* waits for that; 0: for the time only */
    uint64_t handle;  /* pthread_t, for who joins it */
    bool woken;
};

struct turn_world {
    uint32_t lock; /* 0 free, 1 taken, 2 taken and waited for */
    int64_t now_ns;
    int64_t next_ns; /* when the first of those that do not run goes on */
    uint64_t seed;   /* 0: nothing is left to chance */
    uint32_t
        one_in; /* of so many looks at the clock, one finds that its thread had no processor … */
    uint32_t late_ns; /* … for at most so long */
    uint64_t switches;
    int32_t running;       /* -1: nobody */
    uint32_t lock_waiters; /* atomic */
    uint32_t used;         /* threads at the front that are or were in use */
    struct turn_thread threads[TURN_THREADS];
};

/* When every world begins: later than any machine has been up, and always the same. */
#define BEGINNING_NS (1ll << 60)

/* How a world is made, if it is not there yet: three numbers, the seed, one_in and late_ns, or NULL. */
struct turn_world *turn_map(const char *path, const char *chance);

/* Takes a place for a thread of this process that is about to run, and goes on from now. Returns -1
 * when there is none. */
int turn_place(struct turn_world *world);

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

/* Goes away, and comes back. */
void turn_leave(struct turn_world *world, int place);
void turn_return(struct turn_world *world, int place);

/* What a process that was killed had is free. */
void turn_forget(struct turn_world *world, int pid);

/* True while a thread of this process with that handle has not ended. */
bool turn_is_live(const struct turn_world *world, uint64_t handle);

#endif
