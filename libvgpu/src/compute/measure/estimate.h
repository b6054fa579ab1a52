/* How long each kind of launch takes on the GPU, learned from measured batches.
 *
 * A fixed open-addressing table by key (function and grid, or graph). An estimate follows its
 * samples by an exponential average; a new key has a guess and no samples, and the caller then
 * measures it alone. When the table is full the key that is in the way is replaced: it is learned
 * again. Pure; serialised by its caller. */
#ifndef VGPU_ESTIMATE_H
#define VGPU_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ESTIMATE_KEYS 1024
#define ESTIMATE_GUESS_NS 20000 /* of a kernel nobody has measured */
#define ESTIMATE_FIRST_BATCHES 10
#define ESTIMATE_KNOWN 3 /* samples after which launches are charged without being measured */
#define ESTIMATE_SHARED_SAMPLES 4
#define ESTIMATE_PROBES 8
#define ESTIMATE_LONG_NS 100000  /* next to which a pair of events is nothing */
#define ESTIMATE_UNEVEN_NS 15000 /* next to which it is little, to a program that is held anyway */
#define ESTIMATE_UNEVEN_FACTOR 2
#define ESTIMATE_UNEVEN_SAMPLES 100      /* even ones that make up for one that is uneven */
#define ESTIMATE_NO_PRICE_NS (1ll << 30) /* more than anybody ever prepays */

struct estimate {
    uint64_t key; /* 0: free */
    int64_t gpu_ns;
    int64_t budget_price_ns; /* atomic: the price, once it is known; 0: not to be prepaid */
    uint32_t samples;
    uint8_t uneven_score; /* even samples that are wanting until none was uneven */
    bool is_part;  /* of a collective: what it takes hangs on others, so it is never prepaid */
    bool is_rough; /* measured while others may have run: the next good sample replaces it */
    int64_t shared_least_ns; /* of the samples next to others since the last that counted */
    uint32_t shared_samples;
    uint32_t given_up; /* measurements in a row that the launch itself spoilt */
    int64_t alone_ns;  /* the most that one took lately without others; 0: nobody knows */
} __attribute__((aligned(64)));

struct estimates {
    struct estimate table[ESTIMATE_KEYS];
};

/* Of a single-precision number, the exponent and three further bits: what is above them. */
#define ESTIMATE_COUNT_BITS 20
#define ESTIMATE_COUNT_SHIFT 53 /* where no address has bits */
#define ESTIMATE_HOME_SHIFT 54  /* leaves as many bits as there are keys */

/* Returns a key for a function and a number of blocks; the exact grid of a large launch matters
 * little, so counts that differ by less than an eighth may share one. Never 0: 1 block and more has
 * an exponent. */
static inline uint64_t estimate_key(const void *function, uint64_t blocks)
{
    union {
        float number; /* the cheapest way to the leading bits of a count */
        uint32_t bits;
    } count = {.number = (float)(int64_t)blocks};
    return (uint64_t)(uintptr_t)function ^ (uint64_t)(count.bits >> ESTIMATE_COUNT_BITS)
                                               << ESTIMATE_COUNT_SHIFT;
}

static inline uint64_t estimate_home(uint64_t key)
{
    return key * 0x9e3779b97f4a7c15u >> ESTIMATE_HOME_SHIFT;
}

/* Returns the entry of a key, or NULL if it is new. Also without the caller's lock, and
 * then it may be replaced meanwhile. */
struct estimate *estimate_look(struct estimates *estimates, uint64_t key);

/* Returns the entry of a key, new or known. */
struct estimate *estimate_find(struct estimates *estimates, uint64_t key);

/* Notes that `launches` launches took `gpu_ns` together, or no longer than that if `is_rough`. */
void estimate_learn(struct estimate *estimate, int64_t gpu_ns, uint32_t launches, bool is_rough);

/* Notes that a launch took so long while others used the GPU, too. Of ESTIMATE_SHARED_SAMPLES the
 * least counts, since their time can only have come on top; one that is less than a rough price
 * counts at once. */
void estimate_learn_shared(struct estimate *estimate, int64_t gpu_ns);

/* Notes what one took that could not overlap others: the most counts, and is forgotten little by little. */
void estimate_note_alone(struct estimate *estimate, int64_t gpu_ns);

/* True for launches whose length varies by much, so that a sample of them says little of the others, and
 * that take `least_ns` or more: ESTIMATE_UNEVEN_NS, from which on they are never prepaid, or
 * ESTIMATE_LONG_NS. One sample alone may be off because of the host. */
bool estimate_is_uneven(const struct estimate *estimate, int64_t least_ns);

/* Handles may mean other functions from now on: each kind needs a sample more, which replaces its
 * price. */
void estimate_doubt_all(struct estimates *estimates);

/* Launches of this kind are parts of collectives. */
void estimate_mark_part(struct estimate *estimate);

/* Returns what a launch of this kind is charged. */
int64_t estimate_price(const struct estimate *estimate);

/* Returns how many launches of this key one batch may hold: 1, 2, 4 … while it is being learned. */
uint32_t estimate_batch_limit(const struct estimate *estimate);

#endif
