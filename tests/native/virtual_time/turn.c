#include "turn.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern long turn_syscall(long number, long a, long b, long c, long d); /* never ours */

long turn_syscall(long number, long a, long b, long c, long d)
{
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

static void futex_wait(uint32_t *word, uint32_t value)
{
    turn_syscall(SYS_futex, (long)word, FUTEX_WAIT, (long)value, 0);
}

static void futex_wake(uint32_t *word)
{
    turn_syscall(SYS_futex, (long)word, FUTEX_WAKE, 1, 0);
}

static void lock(struct turn_world *world)
{
    uint32_t seen = 0;
    if (__atomic_compare_exchange_n(&world->lock, &seen, 1, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return;
    while (__atomic_exchange_n(&world->lock, 2, __ATOMIC_ACQUIRE) != 0)
        futex_wait(&world->lock, 2);
}

static void unlock(struct turn_world *world)
{
    if (__atomic_exchange_n(&world->lock, 0, __ATOMIC_RELEASE) == 2)
        futex_wake(&world->lock);
}

struct turn_world *turn_map(const char *path, const char *chance)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct turn_world *world = MAP_FAILED;
    if (file >= 0 && flock(file, LOCK_EX) == 0 && ftruncate(file, sizeof *world) == 0)
        world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (world != MAP_FAILED && world->now_ns == 0) {
        *world = (struct turn_world){.now_ns = BEGINNING_NS, .next_ns = NEVER_NS, .running = -1};
        if (chance)
            sscanf(chance, "%" SCNu64 " %" SCNu32 " %" SCNu32, &world->seed, &world->one_in,
                   &world->late_ns);
    }
    close(file);
    return world == MAP_FAILED ? NULL : world;
}

static int64_t goes_on_ns(const struct turn_thread *thread)
{
    if (thread->state == TURN_READY)
        return thread->own_ns;
    if (thread->state != TURN_WAITING)
        return NEVER_NS;
    return thread->until_ns > thread->own_ns ? thread->until_ns : thread->own_ns;
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

/* Gives the turn to who goes on first. Called by who had it, or where nobody has. */
static void hand_on(struct turn_world *world)
{
    world->running = -1;
    int next = first(world);
    if (next < 0)
        return;
    struct turn_thread *thread = &world->threads[next];
    thread->own_ns = goes_on_ns(thread);
    thread->state = TURN_READY;
    thread->tie = draw(world);
    if (thread->own_ns > world->now_ns)
        __atomic_store_n(&world->now_ns, thread->own_ns, __ATOMIC_RELEASE);
    thread->own_ns = world->now_ns;
    world->running = next;
    world->switches++;
    note_next(world);
    __atomic_store_n(&thread->called, 1, __ATOMIC_RELEASE);
    futex_wake(&thread->called);
}

/* Called under the lock; returns with the turn and without the lock. */
static void await(struct turn_world *world, struct turn_thread *thread)
{
    unlock(world);
    while (!__atomic_exchange_n(&thread->called, 0, __ATOMIC_ACQUIRE))
        futex_wait(&thread->called, 0);
}

static void get_ready(struct turn_world *world, struct turn_thread *thread)
{
    thread->state = TURN_READY;
    if (thread->own_ns < world->now_ns)
        thread->own_ns = world->now_ns;
    thread->tie = draw(world);
    note_next(world);
}

static int32_t own_pid(void)
{
    return (int32_t)turn_syscall(SYS_getpid, 0, 0, 0, 0);
}

int turn_place(struct turn_world *world)
{
    int place = -1;
    lock(world);
    for (int i = 0; i < TURN_THREADS && place < 0; i++)
        if (world->threads[i].state == TURN_FREE)
            place = i;
    if (place >= 0) {
        if (world->used <= (uint32_t)place)
            world->used = (uint32_t)place + 1;
        world->threads[place] = (struct turn_thread){.pid = own_pid()};
        get_ready(world, &world->threads[place]);
    }
    if (world->running < 0)
        hand_on(world);
    unlock(world);
    return place;
}

void turn_begin(struct turn_world *world, int place)
{
    lock(world);
    world->threads[place].pid = own_pid(); /* a forked one had its place taken by its parent */
    await(world, &world->threads[place]);
}

bool turn_is_live(const struct turn_world *world, uint64_t handle)
{
    int32_t pid = own_pid();
    for (uint32_t i = 0; i < world->used; i++)
        if (world->threads[i].state != TURN_FREE && world->threads[i].pid == pid &&
            world->threads[i].handle == handle)
            return true;
    return false;
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

void turn_end(struct turn_world *world, int place, uint64_t what)
{
    lock(world);
    world->threads[place].state = TURN_FREE;
    wake(world, what, INT_MAX);
    if (world->running == place)
        hand_on(world);
    unlock(world);
}

void turn_yield(struct turn_world *world, int place)
{
    lock(world);
    get_ready(world, &world->threads[place]);
    hand_on(world);
    await(world, &world->threads[place]);
}

int64_t turn_look(struct turn_world *world, int place)
{
    struct turn_thread *thread = &world->threads[place];
    thread->own_ns += LOOK_NS;
    if (world->late_ns && draw(world) % world->one_in == 0)
        thread->own_ns += draw(world) % world->late_ns;
    if (thread->own_ns > world->next_ns)
        turn_yield(world, place);
    if (thread->own_ns > world->now_ns)
        __atomic_store_n(&world->now_ns, thread->own_ns, __ATOMIC_RELEASE);
    return thread->own_ns;
}

bool turn_wait(struct turn_world *world, int place, uint64_t what, int64_t until_ns)
{
    struct turn_thread *thread = &world->threads[place];
    lock(world);
    thread->state = TURN_WAITING;
    thread->until_ns = until_ns;
    thread->what = what;
    thread->woken = false;
    thread->tie = draw(world);
    hand_on(world);
    await(world, thread);
    return thread->woken;
}

void turn_wake(struct turn_world *world, uint64_t what, int most)
{
    lock(world);
    wake(world, what, most);
    if (world->running < 0)
        hand_on(world);
    unlock(world);
}

void turn_leave(struct turn_world *world, int place)
{
    lock(world);
    world->threads[place].state = TURN_AWAY;
    hand_on(world);
    unlock(world);
}

void turn_return(struct turn_world *world, int place)
{
    lock(world);
    get_ready(world, &world->threads[place]);
    if (world->running < 0)
        hand_on(world);
    await(world, &world->threads[place]);
}

void turn_forget(struct turn_world *world, int pid)
{
    lock(world);
    for (uint32_t i = 0; i < world->used; i++)
        if (world->threads[i].pid == pid) {
            world->threads[i].state = TURN_FREE;
            if (world->running == (int)i)
                world->running = -1;
        }
    note_next(world);
    if (world->running < 0)
        hand_on(world);
    unlock(world);
}
