/* When a measurement is worth what it costs, and what it says of all that was not measured.
 *
 * A pair of events costs the host several microseconds, as much as a launch, so a program of short
 * kernels whose prices are known is charged by these, and measured now and then: the launch by which so
 * much GPU time would have been charged since the last sample began.
 *
 * The amount is random, by an exponential distribution: a launch becomes a sample with a probability of
 * its price divided by the mean, whatever happened before. So a sample that took twice its price says that
 * as much as the mean was charged by half (Horvitz and Thompson 1952), and the sum of what samples say is
 * right on average, also where prices are wrong, lengths vary, or both change between two samples. What
 * was charged where no sample could be taken, the next one speaks for.
 *
 * Pure; serialised by its caller. All zero is ready to use. */
#ifndef VGPU_RATION_H
#define VGPU_RATION_H

#include <stdbool.h>
#include <stdint.h>

#define RATION_HURRY_NS 500000     /* at least, from a sample to one that is hurried */
#define RATION_GPU_NS 2000000      /* charged between two, on average */
#define RATION_NEAR_GPU_NS 1200000 /* the same while a cap holds the program */
#define RATION_MOST_OWED_NS 20000000

struct ration {
    int64_t charged_ns; /* by price, since the last sample began */
    int64_t due_ns;     /* the launch that would take it beyond that is the next one */
    int64_t mean_ns;    /* that amount was drawn by; 0: it was not drawn */
    int64_t unseen_ns;  /* charged and not measured, where no sample could be */
    int64_t last_ns;    /* when the last one began */
    int64_t until_ns;   /* what was charged by price is done then, as far as prices tell */
    uint64_t random;
};

/* A launch of that price becomes a sample; the next one is due after about `mean_ns` of GPU time. Returns
 * how much of what was charged by price it speaks for. */
int64_t ration_begin(struct ration *ration, int64_t price_ns, int64_t mean_ns, int64_t now_ns);

/* Work was launched that is charged by price. */
void ration_charge(struct ration *ration, int64_t gpu_ns, int64_t now_ns);

/* So much was charged by price and could not be measured; of a sample, with what it spoke for. */
void ration_leave(struct ration *ration, int64_t gpu_ns);

/* A price has proved wrong, so others may be: the next sample is due as soon as may be. */
void ration_hurry(struct ration *ration);

/* True when a launch of that price, the next one, is to be a sample. */
bool ration_is_due(const struct ration *ration, int64_t price_ns, int64_t now_ns);

/* Returns what was charged too little of `speaks_for_ns`, if a sample was charged `price_ns` and took
 * `gpu_ns`: at most RATION_MOST_OWED_NS. */
int64_t ration_owed_ns(int64_t speaks_for_ns, int64_t price_ns, int64_t gpu_ns);

/* How much may be charged by price until the next sample. */
int64_t ration_left_ns(const struct ration *ration);

/* How much of what was charged by price is still to run. */
int64_t ration_backlog_ns(const struct ration *ration, int64_t now_ns);

#endif
