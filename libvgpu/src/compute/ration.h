/* When a measurement is worth what it costs.
 *
 * A pair of events costs the host several microseconds, as much as a launch, so a program of short
 * kernels whose prices are known is charged by these, and measured now and then: once so much GPU
 * time has been charged since the last measurement began, and not before so much time has passed.
 * The amount varies at random, so that the launch that reaches it is of any kind, in proportion to
 * the GPU time that the kind takes, however regular the program is.
 *
 * Pure; serialised by its caller. All zero is ready to use. */
#ifndef VGPU_RATION_H
#define VGPU_RATION_H

#include <stdbool.h>
#include <stdint.h>

#define RATION_LEAST_NS 500000     /* between two measurements */
#define RATION_GPU_NS 2000000      /* charged between two, on average */
#define RATION_NEAR_GPU_NS 1000000 /* the same while a cap holds the program */

struct ration {
    int64_t charged_ns; /* by price, since the last measurement began */
    int64_t due_ns;     /* the next one begins when that is reached */
    int64_t last_ns;    /* when the last one began */
    int64_t until_ns;   /* what was charged by price is done then, as far as prices tell */
    uint64_t random;
};

/* A measurement begins; the next one is due after about so much GPU time. */
void ration_begin(struct ration *ration, int64_t gpu_ns, int64_t now_ns);

/* Work was launched that is charged by price. */
void ration_charge(struct ration *ration, int64_t gpu_ns, int64_t now_ns);

/* A price has proved wrong, so others may be: the next measurement is due as soon as may be. */
void ration_hurry(struct ration *ration);

/* True when the next launch is to be measured. */
bool ration_is_due(const struct ration *ration, int64_t now_ns);

/* How much may be charged by price until then. */
int64_t ration_left_ns(const struct ration *ration);

/* How much of what was charged by price is still to run. */
int64_t ration_backlog_ns(const struct ration *ration, int64_t now_ns);

#endif
