/* Grants and collects what is prepaid (prepaid.h). Under the lock of `struct flight`. */
#ifndef VGPU_BUDGET_H
#define VGPU_BUDGET_H

#include "compute/cap/flight.h"
#include "compute/cap/prepaid.h"

/* Prepays launches, as far as there is room; to be called behind a launch of a known kind. */
void budget_grant(struct flight *flight, const struct estimate *estimate, int64_t now_ns);

/* Ends this device's budget: what was taken of it becomes launches, the rest is given back. */
void budget_collect(struct flight *flight, int64_t now_ns);

/* True while launches on that device are prepaid. */
bool budget_is_granted(uint32_t device);

/* For the child of a fork: nothing is prepaid. */
void budget_reset(void);

#endif
