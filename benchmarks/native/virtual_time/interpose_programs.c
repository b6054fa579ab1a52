/* The time and the waits of a program, taken over: preload this library and name the world's file in
 * VIRTUAL_TIME_FILE; VIRTUAL_TIME_CHANCE says how it is made (turn.h). Programs that it starts take part, too.
 *
 * What libc does inside itself stays what it is (stdio reads without our wait), and so does every wait of a
 * thread that takes no part. Not taken over: signals from outside, timers that send signals, select, and locks of
 * files by fcntl.
 * This part: threads and processes, their beginning and end. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interpose.h"

struct turn_world *world;
__thread int own = -1;
static __thread int childs; /* place of the child of a fork that is under way */

static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static int (*real_join)(pthread_t, void **);

void find_programs(void)
{
    find(&real_create, "pthread_create", "GLIBC_2.34");
    find(&real_join, "pthread_join", "GLIBC_2.34");
}

struct start {
    void *(*function)(void *);
    void *argument;
    int place;
};

static void end_thread(void *nothing)
{
    (void)nothing;
    int place = own;
    own = -1;
    turn_end(world, place, name_of((void *)pthread_self()));
}

static void *run_thread(void *argument)
{
    struct start start = *(struct start *)argument;
    void *result;
    free(argument);
    own = start.place;
    turn_begin(world, own);
    pthread_cleanup_push(end_thread, NULL);
    result = start.function(start.argument);
    pthread_cleanup_pop(1);
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                   void *argument)
{
    if (own < 0)
        return real_create(thread, attributes, function, argument);
    struct start *start = malloc(sizeof *start);
    if (!start)
        return EAGAIN;
    *start = (struct start){function, argument, turn_place(world, real_pid())};
    int place = start->place;
    int error = place < 0 ? EAGAIN : real_create(thread, attributes, run_thread, start);
    if (!error) {
        world->threads[place].handle = (uint64_t)*thread;
        return 0;
    }
    if (place >= 0)
        turn_end(world, place, 0);
    free(start);
    return error;
}

int pthread_join(pthread_t thread, void **result)
{
    while (own >= 0 && turn_is_live(world, (uint64_t)thread))
        turn_wait(world, own, name_of((void *)thread), NEVER_NS);
    return real_join(thread, result);
}

static void before_fork(void)
{
    if (own >= 0)
        childs = turn_place(world, 0);
}

static void in_child(void)
{
    real_forked();
    if (own < 0)
        return;
    own = childs;
    if (own >= 0)
        turn_begin(world, own);
}

static char **find_variable(char *const *variables, const char *name)
{
    size_t length = strlen(name);
    char **found = (char **)variables;
    while (*found && (strncmp(*found, name, length) != 0 || (*found)[length] != '='))
        found++;
    return found;
}

/* A program that is given an environment of its own takes part, too. */
int execve(const char *path, char *const *arguments, char *const *variables)
{
    static const char *const needed[] = {"LD_PRELOAD", "VIRTUAL_TIME_FILE"};
    size_t count = 0;
    while (variables[count])
        count++;
    char *all[count + sizeof needed / sizeof *needed + 1];
    memcpy(all, variables, (count + 1) * sizeof *all);
    for (size_t i = 0; own >= 0 && i < sizeof needed / sizeof *needed; i++)
        if (!*find_variable(all, needed[i])) {
            all[count] = *find_variable(environ, needed[i]);
            all[++count] = NULL;
        }
    return (int)answer(turn_syscall(SYS_execve, (long)path, (long)arguments, (long)all, 0));
}

int execv(const char *path, char *const *arguments)
{
    return execve(path, arguments, environ);
}

/* A child that shares its parent's memory would keep it from its turn. */
pid_t vfork(void)
{
    return fork();
}

struct child {
    pid_t pid;
    int *status;
    int options;
    struct rusage *usage;
    long result;
};

static bool has_child_changed(void *argument)
{
    struct child *child = argument;
    child->result = turn_syscall(SYS_wait4, child->pid, (long)child->status,
                                 child->options | WNOHANG, (long)child->usage);
    return child->result != 0;
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    struct child child = {pid, status, options, usage, 0};
    if (own >= 0 && !(options & WNOHANG))
        wait_for_files(has_child_changed, &child, NEVER_NS);
    else
        child.result = turn_syscall(SYS_wait4, pid, (long)status, options, (long)usage);
    return (pid_t)answer(child.result);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    return wait4(pid, status, options, NULL);
}

int kill(pid_t pid, int number)
{
    bool is_at_once = number == 0 || number == SIGKILL || number == SIGSTOP || number == SIGCONT;
    if (own >= 0 && pid > 0 && !is_at_once && turn_signal(world, pid, number))
        return 0;
    long result = turn_syscall(SYS_kill, pid, number, 0, 0);
    if (result == 0 && own >= 0 && pid > 0 && number == SIGKILL)
        turn_bury(world, pid);
    else if (result == 0 && own >= 0 && number != 0 && is_at_once)
        turn_stop(world, pid, number == SIGSTOP);
    return (int)answer(result);
}

void _exit(int status)
{
    if (own >= 0)
        turn_exit(world);
    for (;;)
        turn_syscall(SYS_exit_group, status, 0, 0, 0);
}

/* From here on, a program that has one thread takes part. */
void virtual_time_enter(void)
{
    const char *path = getenv("VIRTUAL_TIME_FILE");
    struct turn_world *found = path ? turn_map(path, getenv("VIRTUAL_TIME_CHANCE")) : NULL;
    int place = found ? turn_enter(found) : -1;
    if (place < 0)
        return;
    world = found;
    own = place;
}

__attribute__((constructor)) static void begin(void)
{
    find_locks();
    find_files();
    find_programs();
    pthread_atfork(before_fork, NULL, in_child);
    virtual_time_enter();
}

__attribute__((destructor)) static void leave(void)
{
    if (own >= 0)
        turn_exit(world);
}
