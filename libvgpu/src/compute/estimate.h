/* How long each kind of launch takes on the GPU, learned from measured batches.
 *
 * A fixed open-addressing table by key (function and grid, or graph). An estimate follows its
 * samples by an exponential average; a new key has a guess and no samples, and the caller then
 * measures it alone. When the table is full the key that is in the way is replaced: it is learned
 * again. Pure; serialised by its caller. */
#ifndef VGPU_ESTIMATE_H
#define VGPU_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#define ESTIMATE_KEYS 1024
#define ESTIMATE_GUESS_NS 20000 /* of a kernel nobody has measured */
#define ESTIMATE_FIRST_BATCHES 10

struct estimate {
    uint64_t key; /* 0: free */
    int64_t gpu_ns;
    uint32_t samples;
    bool is_rough;     /* measured while others may have run: the next good sample replaces it */
    uint32_t given_up; /* measurements in a row that the launch itself spoilt */
};

struct estimates {
    struct estimate table[ESTIMATE_KEYS];
};

/* Returns a key for a function and a number of blocks; the exact grid of a large launch matters
 * little, so counts that differ by less than an eighth may share one. Never 0. */
uint64_t estimate_key(const void *function, uint64_t blocks);

/* Returns the entry of a key, new or known. */
struct estimate *estimate_find(struct estimates *estimates, uint64_t key);

/* Notes that `launches` launches took `gpu_ns` together, or no longer than that if `is_rough`. */
void estimate_learn(struct estimate *estimate, int64_t gpu_ns, uint32_t launches, bool is_rough);

/* Returns what a launch of this kind is charged. */
int64_t estimate_price(const struct estimate *estimate);

/* Returns how many launches of this key one batch may hold: 1, 2, 4 … while it is being learned. */
uint32_t estimate_batch_limit(const struct estimate *estimate);

#endif
