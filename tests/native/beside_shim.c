/* A program that uses a GPU without the shim and without a driver's library: it does to the
 * simulated machine what raw calls of the kernel driver would do to a GPU. Linked statically, so no
 * loader has a say.
 *
 * Arguments: bytes to hold, then steps that it takes before. Says its pid when it has the memory, and
 * ends with its input. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine.h"

static uint64_t bytes;
static struct sim_machine *machine;

static void must(bool is_done, const char *what)
{
    if (!is_done) {
        perror(what);
        _exit(1);
    }
}

static void open_machine(void)
{
    must(machine || sim_machine_open(getenv("VGPU_SIM_MACHINE"), &machine) == 0, "open");
}

static void hold(void)
{
    char end;
    open_machine();
    struct sim_device *device = sim_machine_device(machine, 0);
    must(sim_client_attach(device, &(struct sim_client_options){0}) == 0, "attach");
    must(sim_client_reserve(device, bytes, 0) == 0, "reserve");
    printf("{\"ready\": %d}\n", (int)getpid());
    fflush(stdout);
    _exit(read(STDIN_FILENO, &end, 1) != 0);
}

static void *hold_in_thread(void *leader)
{
    pthread_join(*(pthread_t *)leader, NULL);
    hold();
    return NULL;
}

/* The first thread ends, and the process goes on. */
static void leave_to_thread(void)
{
    static pthread_t leader;
    pthread_t other;
    leader = pthread_self();
    must(pthread_create(&other, NULL, hold_in_thread, &leader) == 0, "thread");
    syscall(SYS_exit, 0); /* pthread_exit wants a library of its own */
}

/* A child does the rest; the parent waits for it, or goes first. */
static void leave_to_child(bool waits)
{
    int status = 0;
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0)
        return;
    if (waits)
        waitpid(child, &status, 0);
    _exit(0);
}

static void be_traced(void)
{
    int status = 0;
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        must(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "ptrace");
        raise(SIGSTOP);
        return;
    }
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status))
        ptrace(PTRACE_CONT, child, NULL, NULL);
    _exit(0);
}

static void take(const char *step)
{
    if (strncmp(step, "chroot=", 7) == 0)
        must(chroot(step + 7) == 0 && chdir("/") == 0, step);
    else if (strcmp(step, "user-namespace") == 0)
        must(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0, step);
    else if (strcmp(step, "uid") == 0)
        must(setgid(65534) == 0 && setuid(65534) == 0, step);
    else if (strcmp(step, "child") == 0)
        leave_to_child(true);
    else if (strcmp(step, "daemon") == 0)
        leave_to_child(false);
    else if (strcmp(step, "traced") == 0)
        be_traced();
    else if (strcmp(step, "thread") == 0)
        leave_to_thread();
    else
        must(false, step);
}

int main(int argc, char **argv)
{
    must(argc > 1 && getenv("VGPU_SIM_MACHINE") != NULL, "BYTES [STEP…]");
    bytes = strtoull(argv[1], NULL, 10);
    for (int i = 2; i < argc; i++) {
        bool hides_path = strncmp(argv[i], "chroot=", 7) == 0 || strcmp(argv[i], "uid") == 0;
        if (hides_path)
            open_machine();
        take(argv[i]);
    }
    hold();
}
