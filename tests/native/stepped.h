/* A victim that is stopped at a chosen instruction: a child process under ptrace that has stopped
 * itself once before its work begins. A point is first found by single steps, and later reached by
 * a breakpoint in the victim's own copy of the code. */
#ifndef STEPPED_H
#define STEPPED_H

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "ledger_fixture.h"

#define STEPPED_MOST 100000
#define LIBC_EVERY 64
#define INT3 0xcc      /* x86-64, the one byte of a breakpoint */
#define SYSCALL 0x050f /* x86-64, the two bytes of a system call */

/* A moment of the victim's life: before the instruction at `at` runs after so many earlier runs. */
struct stepped_point {
    uintptr_t at;
    long earlier_visits;
};

static inline void stepped_step(pid_t pid)
{
    int status;
    CHECK(ptrace(PTRACE_SINGLESTEP, pid, 0, 0) == 0, "step");
    CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "the victim ended by itself");
}

static inline uintptr_t stepped_where(pid_t pid)
{
    return (uintptr_t)ptrace(PTRACE_PEEKUSER, pid, offsetof(struct user_regs_struct, rip), 0);
}

/* Lets the victim run up to that point, by a breakpoint. False when it never comes by there. */
static inline int stepped_reach(pid_t pid, struct stepped_point point)
{
    int status;
    long code = ptrace(PTRACE_PEEKTEXT, pid, point.at, 0);
    for (long visits = 0;; visits++) {
        CHECK(ptrace(PTRACE_POKETEXT, pid, point.at, (code & ~0xffl) | INT3) == 0, "breakpoint");
        CHECK(ptrace(PTRACE_CONT, pid, 0, 0) == 0, "go on");
        CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "the victim ended by itself");
        CHECK(ptrace(PTRACE_POKETEXT, pid, point.at, code) == 0, "breakpoint");
        if (WSTOPSIG(status) != SIGTRAP)
            return 0;
        ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rip), point.at);
        if (visits == point.earlier_visits)
            return 1;
        stepped_step(pid);
    }
}

/* Lets the victim go to the end of its work, if it is not there yet. */
static inline void stepped_let_go(pid_t pid, const volatile int *is_done)
{
    int status;
    while (!*is_done) {
        CHECK(ptrace(PTRACE_CONT, pid, 0, 0) == 0, "go on");
        CHECK(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "the victim ended by itself");
    }
}

static inline void stepped_kill(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status), "kill");
}

extern char __executable_start, etext; /* by the linker: our own code lies between them */

/* Fills `points` by single steps from the moment that *is_begun is set until *is_done, and kills
 * the victim. Points are all instructions of our own code, those behind a system call, and one in
 * 64 of the libraries'. Returns how many. */
static inline long stepped_survey(pid_t pid, const volatile int *is_begun,
                                  const volatile int *is_done, struct stepped_point *points)
{
    static uintptr_t trail[STEPPED_MOST];
    long count = 0;
    int after_call = 0;
    for (long steps = 0; steps < STEPPED_MOST && !*is_done; steps++) {
        uintptr_t at = trail[steps] = stepped_where(pid);
        int ours = at >= (uintptr_t)&__executable_start && at < (uintptr_t)&etext;
        if (*is_begun && (ours || after_call || steps % LIBC_EVERY == 0)) {
            points[count] = (struct stepped_point){at, 0};
            for (long i = 0; i < steps; i++)
                points[count].earlier_visits += trail[i] == at;
            count++;
        }
        errno = 0;
        long code = ptrace(PTRACE_PEEKTEXT, pid, at, 0);
        after_call = errno == 0 && (code & 0xffff) == SYSCALL;
        stepped_step(pid);
    }
    CHECK(*is_done, "the work is too long");
    stepped_kill(pid);
    return count;
}

#endif
