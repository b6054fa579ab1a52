/* Estimates the GPU time of launches that nothing delays: where there is no cap, and under MPS.
 *
 * Such launches pass the gate (gate.h) at the cost of one comparison, uncounted. What can be
 * counted for nothing are the program's own waits for the GPU; the time between two of them is a
 * *round*. Now and then a few rounds in a row are a sample: the gate is shut, their launches are
 * counted, and some, spread over the sample, get a pair of events (timing.h). Mean time by launches
 * is what the sample took, and it stands for all rounds since the last one. There is at most one
 * pair per UNCAPPED_PAIR_NS on average, and a random number of rounds is passed over, or a program
 * that does different things alternately would always show the same one.
 *
 * No more is credited than time has passed; a sample that claims more leaves the rest to the next
 * ones, since its neighbours claim less. A program that never waits through a call of
 * hook_launch.c, or only after UNCAPPED_MOST_LAUNCHES, shows no GPU time.
 *
 * One lock a process, held for bookkeeping and own driver calls; launches and waits that find it
 * taken do without. Counts are atomic. A child of a fork starts
 * from nothing. */
#ifndef VGPU_UNCAPPED_H
#define VGPU_UNCAPPED_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/cap/launch.h"
#include "vgpu/cuda_api.h"

#define UNCAPPED_PAIR_NS 10000000
#define UNCAPPED_MOST_PAIRS 8        /* wanted in a sample */
#define UNCAPPED_MOST_ROUNDS 8       /* of a sample … */
#define UNCAPPED_SAMPLE_NS 20000000  /* … which has no further one once it took so long */
#define UNCAPPED_MOST_LAUNCHES 65536 /* then the sample is given up, and the gate opens again */

/* True while a sample is taken: the gate must stay shut. */
bool uncapped_is_sampling(void);

/* Before a launch on a device without a cap, which may get a pairing. */
void uncapped_before(struct launch *launch);

/* Behind a launch that has one. */
void uncapped_after(const struct launch *launch);

/* The program has waited for the GPU: a round is over. */
void uncapped_after_wait(void);

/* A context is about to end, and our events in it. */
void uncapped_forget_context(CUcontext context);

/* For fork.c. */
void uncapped_after_fork(void);

#endif
