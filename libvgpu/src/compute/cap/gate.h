/* The decision every launch hook begins with, and the two words that spare most launches of it.
 *
 * gate_watch points at a word, gate_expected is what it must hold for launches to pass at once. For
 * a container without a cap the word is the generation of `limits`, so a live change is noticed by
 * the next launch at the cost of one comparison; without a slice it is a constant; with a cap the
 * two never agree. Stored by gate_refresh in an order that can only cause a superfluous look. */
#ifndef VGPU_GATE_H
#define VGPU_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/cap/launch.h"
#include "vgpu/cuda_api.h"

/* Variables and not behind calls: every launch reads them, inlined here or in the assembly of
 * hook_launch.c, and only gate.c writes. */
extern const uint64_t *gate_watch;
extern uint64_t gate_expected;

static inline bool gate_is_open(void)
{
    return __builtin_expect(*gate_watch == gate_expected, 1);
}

/* The same while memory has something pending for some launches: the others pass. */
extern const uint64_t *gate_quiet_watch;
extern uint64_t gate_quiet_expected;

static inline bool gate_is_quiet(void)
{
    return __atomic_load_n(__atomic_load_n(&gate_quiet_watch, __ATOMIC_ACQUIRE),
                           __ATOMIC_ACQUIRE) ==
           __atomic_load_n(&gate_quiet_expected, __ATOMIC_ACQUIRE);
}

/* Makes every launch look, until one finds that it need not. */
void gate_shut(void);

/* What the room of memory says of functions whose launch may still take memory. */
struct gate_pending {
    bool (*is_any)(void);       /* there are some: launches look for theirs */
    bool (*is_ambiguous)(void); /* one of them is several kernels: nothing is prepaid */
};

/* Has these asked from now on; nothing is pending before. Any thread, any number of times. */
void gate_announce_pending(const struct gate_pending *asked);
bool gate_pending_is_ambiguous(void);

#define GATE_REFUSAL CUDA_ERROR_INVALID_DEVICE /* what a hook returns where it does not */

/* Finds the device of a launch whose kind and stream are known, and waits for its cap if need be. False
 * when the GPU is not in the slice: the driver is not to be called. */
bool gate_enter(struct launch *launch);

#endif
