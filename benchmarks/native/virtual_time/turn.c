#include "turn.h"

#include <limits.h>
#include <stddef.h>

#include "real.h"

/* What a thread that waits for its turn is called for. */
#define CALLED_TO_RUN 1
#define CALLED_TO_BURY 2
static int64_t goes_on_ns(const struct turn_thread *thread)
{
    if (thread->is_stopped || thread->state == TURN_FREE || thread->state == TURN_AWAY)
        return NEVER_NS;
    if (thread->state == TURN_READY)
        return thread->own_ns;
    return thread->until_ns > thread->own_ns ? thread->until_ns : thread->own_ns;
}

/* A thread that waits for a file, where all wait and none for a moment; -1: none. */
static int first_alone(const struct turn_world *world)
{
    for (int i = 0; i < (int)world->used; i++)
        if (world->threads[i].state == TURN_WAITING && world->threads[i].what == A_FILE &&
            !world->threads[i].is_stopped)
            return i;
    return -1;
}

/* The one that goes on first among those that do not run; -1: none. */
static int first(const struct turn_world *world)
{
    int best = -1;
    int64_t best_ns = NEVER_NS;
    for (int i = 0; i < (int)world->used; i++) {
        const struct turn_thread *thread = &world->threads[i];
        int64_t at_ns = i == world->running ? NEVER_NS : goes_on_ns(thread);
        if (at_ns < best_ns ||
            (best >= 0 && at_ns == best_ns && thread->tie < world->threads[best].tie)) {
            best = i;
            best_ns = at_ns;
        }
    }
    return best;
}

static int next_one(const struct turn_world *world)
{
    int next = first(world);
    return next >= 0 ? next : first_alone(world);
}

static void note_next(struct turn_world *world)
{
    int next = first(world);
    world->next_ns = next < 0 ? NEVER_NS : goes_on_ns(&world->threads[next]);
}

static uint32_t draw(struct turn_world *world)
{
    if (world->seed == 0)
        return 0;
    world->seed ^= world->seed << 13; /* xorshift64 (Marsaglia 2003) */
    world->seed ^= world->seed >> 7;
    world->seed ^= world->seed << 17;
    return (uint32_t)(world->seed >> 32);
}

static void call(struct turn_thread *thread, uint32_t how)
{
    __atomic_store_n(&thread->called, how, __ATOMIC_RELEASE);
    real_wake(&thread->called);
}

/* Gives the turn to who goes on first. Called by who had it, or where nobody has; `own` is a place whose thread
 * need not be woken, since it is the caller's. */
static void hand_on(struct turn_world *world, int own)
{
    world->running = -1;
    int next = next_one(world);
    if (next < 0)
        return;
    struct turn_thread *thread = &world->threads[next];
    int64_t at_ns = goes_on_ns(thread);
    thread->alone = at_ns == NEVER_NS;
    thread->own_ns = thread->alone ? world->now_ns : at_ns;
    thread->state = TURN_READY;
    thread->tie = draw(world);
    if (thread->own_ns > world->now_ns)
        __atomic_store_n(&world->now_ns, thread->own_ns, __ATOMIC_RELEASE);
    thread->own_ns = world->now_ns;
    world->running = next;
    world->switches++;
    note_next(world);
    if (next == own)
        thread->called = CALLED_TO_RUN;
    else
        call(thread, CALLED_TO_RUN);
}

static void get_ready(struct turn_world *world, struct turn_thread *thread)
{
    thread->state = TURN_READY;
    if (thread->own_ns < world->now_ns)
        thread->own_ns = world->now_ns;
    thread->tie = draw(world);
    note_next(world);
}

static void wake(struct turn_world *world, uint64_t what, int most)
{
    for (; most > 0; most--) {
        struct turn_thread *longest = NULL;
        for (uint32_t i = 0; i < world->used; i++) {
            struct turn_thread *thread = &world->threads[i];
            if (thread->state == TURN_WAITING && thread->what == what &&
                (!longest || thread->own_ns < longest->own_ns))
                longest = thread;
        }
        if (!longest)
            break;
        longest->woken = true;
        get_ready(world, longest);
    }
}

/* Under the lock: all that a process has is free. */
static void forget(struct turn_world *world, int32_t pid)
{
    for (uint32_t i = 0; i < world->used; i++)
        if (world->threads[i].pid == pid) {
            world->threads[i].state = TURN_FREE;
            world->threads[i].pid = 0;
            if (world->running == (int)i)
                world->running = -1;
        }
    for (uint32_t i = 0; i < world->used; i++)
        if (world->threads[i].state == TURN_WAITING && turn_is_name(A_LOCK, world->threads[i].what))
            wake(world, world->threads[i].what, INT_MAX);
    wake(world, A_FILE, INT_MAX);
    note_next(world);
    if (world->running < 0)
        hand_on(world, -1);
}

static void forget_if_dead(struct turn_world *world)
{
    turn_lock(world);
    int32_t pid = world->running < 0 ? 0 : world->threads[world->running].pid;
    if (pid != 0 && pid != real_pid() && real_has_ended(pid, 0))
        forget(world, pid);
    turn_unlock(world);
}

/* Waits for the end of the process that has the turn until it is given to `thread`, and lets the next one go
 * on. */
static void bury_the_dying(struct turn_world *world, struct turn_thread *thread)
{
    int32_t pid = world->dying;
    while (!real_has_ended(pid, 1))
        if (__atomic_load_n(&thread->called, __ATOMIC_ACQUIRE) == CALLED_TO_RUN)
            return;
    turn_lock(world);
    forget(world, pid);
    turn_unlock(world);
}

/* Called under the lock; returns with the turn and without the lock. */
static void await(struct turn_world *world, struct turn_thread *thread)
{
    uint32_t called;
    turn_unlock(world);
    while ((called = __atomic_exchange_n(&thread->called, 0, __ATOMIC_ACQUIRE)) != CALLED_TO_RUN)
        if (called == CALLED_TO_BURY)
            bury_the_dying(world, thread);
        else if (!real_wait(&thread->called, 0))
            forget_if_dead(world);
    for (int number = 1; thread->signals != 0; number++)
        if (thread->signals & 1ull << number) {
            thread->signals &= ~(1ull << number);
            if (real_is_deadly(number))
                turn_exit(world);
            real_raise(number);
        }
}

/* Under the lock. */
static int take_place(struct turn_world *world, int32_t pid)
{
    for (int i = 0; i < TURN_THREADS; i++) {
        if (world->threads[i].state != TURN_FREE)
            continue;
        if (world->used <= (uint32_t)i)
            world->used = (uint32_t)i + 1;
        world->threads[i] = (struct turn_thread){.pid = pid};
        get_ready(world, &world->threads[i]);
        return i;
    }
    return -1;
}

int turn_place(struct turn_world *world, int32_t pid)
{
    turn_lock(world);
    int place = take_place(world, pid);
    turn_unlock(world);
    return place;
}

int turn_enter(struct turn_world *world)
{
    int32_t pid = real_pid();
    int place = -1;
    turn_lock(world);
    for (int i = 0; i < (int)world->used; i++) {
        struct turn_thread *thread = &world->threads[i];
        if (thread->state == TURN_FREE || thread->pid != pid)
            continue;
        if (world->running == i)
            place = i;
        else
            thread->state = TURN_FREE;
    }
    if (place >= 0) { /* exec has closed files */
        wake(world, A_FILE, INT_MAX);
        turn_unlock(world);
        return place;
    }
    place = take_place(world, pid);
    if (world->running < 0)
        hand_on(world, place);
    if (place >= 0)
        await(world, &world->threads[place]);
    else
        turn_unlock(world);
    return place;
}

void turn_exit(struct turn_world *world)
{
    turn_lock(world);
    int next = next_one(world);
    if (next >= 0) {
        world->dying = real_pid();
        call(&world->threads[next], CALLED_TO_BURY);
    }
    turn_unlock(world);
}

bool turn_signal(struct turn_world *world, int32_t pid, int number)
{
    bool is_sent = false;
    turn_lock(world);
    for (uint32_t i = 0; i < world->used && !is_sent; i++) {
        struct turn_thread *thread = &world->threads[i];
        is_sent = thread->pid == pid && (int)i != world->running &&
                  (thread->state == TURN_WAITING || thread->state == TURN_READY);
        if (!is_sent)
            continue;
        thread->signals |= 1ull << number;
        if (thread->state == TURN_WAITING) {
            thread->woken = true;
            get_ready(world, thread);
        }
    }
    turn_unlock(world);
    return is_sent;
}

void turn_stop(struct turn_world *world, int32_t pid, bool is_stopped)
{
    turn_lock(world);
    for (uint32_t i = 0; i < world->used; i++)
        if (world->threads[i].pid == pid)
            world->threads[i].is_stopped = is_stopped;
    note_next(world);
    turn_unlock(world);
}

void turn_bury(struct turn_world *world, int32_t pid)
{
    real_has_ended(pid, -1);
    turn_lock(world);
    forget(world, pid);
    turn_unlock(world);
}

void turn_begin(struct turn_world *world, int place)
{
    turn_lock(world);
    world->threads[place].pid = real_pid();
    await(world, &world->threads[place]);
}

bool turn_is_live(const struct turn_world *world, uint64_t handle)
{
    int32_t pid = real_pid();
    for (uint32_t i = 0; i < world->used; i++)
        if (world->threads[i].state != TURN_FREE && world->threads[i].pid == pid &&
            world->threads[i].handle == handle)
            return true;
    return false;
}

void turn_end(struct turn_world *world, int place, uint64_t what)
{
    turn_lock(world);
    world->threads[place].state = TURN_FREE;
    wake(world, what, INT_MAX);
    if (world->running == place)
        hand_on(world, -1);
    turn_unlock(world);
}

void turn_yield(struct turn_world *world, int place)
{
    turn_lock(world);
    get_ready(world, &world->threads[place]);
    hand_on(world, place);
    await(world, &world->threads[place]);
}

int64_t turn_look(struct turn_world *world, int place)
{
    struct turn_thread *thread = &world->threads[place];
    thread->own_ns += LOOK_NS;
    if (world->late_ns && draw(world) % world->one_in == 0)
        thread->own_ns += draw(world) % world->late_ns;
    if (thread->own_ns - world->slack_ns > world->next_ns)
        turn_yield(world, place);
    if (thread->own_ns > world->now_ns)
        __atomic_store_n(&world->now_ns, thread->own_ns, __ATOMIC_RELEASE);
    return thread->own_ns;
}

bool turn_wait(struct turn_world *world, int place, uint64_t what, int64_t until_ns)
{
    struct turn_thread *thread = &world->threads[place];
    turn_lock(world);
    thread->state = TURN_WAITING;
    thread->until_ns = until_ns;
    thread->what = what;
    thread->woken = thread->alone = false;
    thread->tie = draw(world);
    hand_on(world, place);
    await(world, thread);
    return thread->woken;
}

void turn_wake(struct turn_world *world, uint64_t what, int most)
{
    turn_lock(world);
    wake(world, what, most);
    if (world->running < 0)
        hand_on(world, -1);
    turn_unlock(world);
}

bool turn_is_alone(const struct turn_world *world, int place)
{
    return world->threads[place].alone;
}

void turn_leave(struct turn_world *world, int place)
{
    turn_lock(world);
    world->threads[place].state = TURN_AWAY;
    hand_on(world, -1);
    turn_unlock(world);
}

void turn_return(struct turn_world *world, int place)
{
    turn_lock(world);
    get_ready(world, &world->threads[place]);
    if (world->running < 0)
        hand_on(world, place);
    await(world, &world->threads[place]);
}
