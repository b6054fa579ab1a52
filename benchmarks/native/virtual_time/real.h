/* What a world stands on: system calls that nobody takes over, and waits in real time. */
#ifndef VGPU_TEST_REAL_H
#define VGPU_TEST_REAL_H

#include "turn.h"

long turn_syscall(long number, long a, long b, long c, long d);

int32_t real_pid(void);
/* The calling process is the child of a fork. */
void real_forked(void);

/* Waits for a futex. False where somebody should look whether who has the turn was killed. */
bool real_wait(uint32_t *word, uint32_t value);
void real_wake(uint32_t *word);

/* True once a process has ended; waits for that for so many milliseconds, -1: as long as it takes. */
bool real_has_ended(int32_t pid, long most_ms);

/* Sends a signal to the calling thread; and whether that ends the process. */
void real_raise(int number);
bool real_is_deadly(int number);

void turn_lock(struct turn_world *world);
void turn_unlock(struct turn_world *world);

#endif
