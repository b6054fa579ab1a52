/* Which launches are measured: none, one that stands for others (ration.h), or all.
 *
 * Under the lock of `struct flight`; nothing here calls the driver. */
#ifndef VGPU_SAMPLING_H
#define VGPU_SAMPLING_H

#include "compute/cap/flight.h"

enum sampling {
    SAMPLING_NONE, /* its price is good enough */
    SAMPLING_ONE,  /* that launch stands for others that are charged by price */
    SAMPLING_ALL,  /* it is measured, and so are those that follow */
};

/* What is to become of a launch for which no batch is open. */
enum sampling sampling_choose(struct flight *flight, const struct estimate *estimate,
                              int64_t now_ns);

/* Notes what a sample stands for in the batch that it opens. */
void sampling_take(struct flight *flight, struct batch *open, const struct estimate *estimate,
                   int64_t now_ns);

#endif
