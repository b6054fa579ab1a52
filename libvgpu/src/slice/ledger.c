#include "slice/ledger.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "slice/limits_file.h"
#include "slice/usage_file.h"
#include "slice/word128.h"

#define SEQUENCE_MASK ((1ull << 34) - 1)
#define DELTA_MASK ((1ull << 43) - 1)
#define MAX_PAUSES 64

/* What T says, unpacked. */
struct total {
    uint64_t used;
    uint32_t slot;
    uint64_t sequence;
    int64_t delta;
};

static struct word128 pack(uint64_t used, uint32_t slot, uint64_t sequence, int64_t delta)
{
    return (struct word128){
        .low = used | (uint64_t)slot << 42 | sequence << 51,
        .high = ((uint64_t)delta & DELTA_MASK) | sequence >> 13 << 43,
    };
}

static struct total unpack(struct word128 word)
{
    return (struct total){
        .used = word.low & LEDGER_MAX_BYTES,
        .slot = (uint32_t)(word.low >> 42) & 0x1ff,
        .sequence = word.low >> 51 | word.high >> 43 << 13,
        .delta = (int64_t)(word.high << 21) >> 21,
    };
}

static void *total_of(const struct ledger *ledger)
{
    return &usage_device(ledger->usage, ledger->device)->total_low;
}

static void *word_of(const struct ledger *ledger, uint32_t slot)
{
    return &usage_slot_device(ledger->usage, slot, ledger->device)->bytes;
}

static uint64_t gen_of(const struct ledger *ledger, uint32_t slot)
{
    return __atomic_load_n(&usage_slot(ledger->usage, slot)->gen, __ATOMIC_ACQUIRE);
}

static uint32_t hi_slot_of(const struct ledger *ledger)
{
    const struct vgpu_usage_header *header = ledger->usage;
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    return hi_slot < VGPU_SLOT_COUNT ? hi_slot : VGPU_SLOT_COUNT;
}

static void pause_longer(int *pauses)
{
    for (int i = 0; i < *pauses; i++)
        __builtin_ia32_pause();
    if (*pauses < MAX_PAUSES)
        *pauses *= 2;
}

uint64_t ledger_limit_bytes(const struct ledger *ledger)
{
    for (;;) {
        uint64_t generation = limits_generation(ledger->limits);
        const struct vgpu_device_limit *device = limits_device(ledger->limits, ledger->device);
        uint64_t limit = __atomic_load_n(&device->memory_limit_bytes, __ATOMIC_ACQUIRE);
        uint64_t unaccounted = __atomic_load_n(&device->unaccounted_bytes, __ATOMIC_ACQUIRE);
        /* While its generation is active nobody writes to a copy. Else this could be the difference
         * of two versions, or a version that its writer was killed before publishing. */
        if (limits_generation(ledger->limits) != generation)
            continue;
        limit = limit > unaccounted ? limit - unaccounted : 0;
        return limit < LEDGER_MAX_BYTES ? limit : LEDGER_MAX_BYTES;
    }
}

uint64_t ledger_used_bytes(const struct ledger *ledger)
{
    return unpack(word128_load(total_of(ledger))).used;
}

/* Commits the operation that `seen` describes. False when T is no longer `seen`: begin again. */
static bool settle(const struct ledger *ledger, struct word128 seen)
{
    struct total total = unpack(seen);
    void *word = word_of(ledger, total.slot);
    struct word128 before = word128_load(word); /* {bytes, count} */
    if (((before.high + 1) & SEQUENCE_MASK) != total.sequence)
        return true;
    /* Only if T still stands is that count the one T was made from, and not a wrapped one. */
    if (!word128_equal(word128_load(total_of(ledger)), seen))
        return false;
    struct word128 after = {before.low + (uint64_t)total.delta, before.high + 1};
    word128_cas(word, before, after); /* if it fails, somebody else has committed it */
    return true;
}

/* Replaces the settled `seen` by one more operation of `slot` and commits it. */
static bool apply(const struct ledger *ledger, struct word128 seen, uint32_t slot, int64_t delta)
{
    void *word = word_of(ledger, slot);
    struct word128 before = word128_load(word);
    uint64_t used = unpack(seen).used + (uint64_t)delta;
    struct word128 next =
        pack(used & LEDGER_MAX_BYTES, slot, (before.high + 1) & SEQUENCE_MASK, delta);
    if (!word128_cas(total_of(ledger), seen, next))
        return false;
    word128_cas(word, before, (struct word128){before.low + (uint64_t)delta, before.high + 1});
    return true;
}

/* Takes a reservation back if it still exceeds the limit. False when it stands after all. */
static bool undo(const struct ledger *ledger, uint32_t slot, uint64_t bytes)
{
    for (int pauses = 4;;) {
        struct word128 seen = word128_load(total_of(ledger));
        if (!settle(ledger, seen))
            continue;
        if (unpack(seen).used <= ledger_limit_bytes(ledger))
            return false;
        if (apply(ledger, seen, slot, -(int64_t)bytes))
            return true;
        pause_longer(&pauses);
    }
}

void ledger_reap(const struct ledger *ledger, uint32_t slot, uint64_t gen)
{
    for (int pauses = 4;;) {
        struct word128 seen = word128_load(total_of(ledger));
        if (!settle(ledger, seen))
            continue;
        struct word128 word = word128_load(word_of(ledger, slot));
        if (word.low == 0 || gen_of(ledger, slot) != gen)
            return;
        /* Nobody but this slot's dead user could have filled it, and `word` is from before the
         * CAS below succeeds only if T did not move: so exactly its bytes go. */
        struct word128 next = pack((unpack(seen).used - word.low) & LEDGER_MAX_BYTES, slot,
                                   (word.high + 1) & SEQUENCE_MASK, -(int64_t)word.low);
        if (word128_cas(total_of(ledger), seen, next)) {
            word128_cas(word_of(ledger, slot), word, (struct word128){0, word.high + 1});
            return;
        }
        pause_longer(&pauses);
    }
}

/* A slot as it was noted before the total was read. */
struct note {
    uint64_t gen;
    uint64_t count;
};

static bool reclaim(const struct ledger *ledger, uint32_t slot)
{
    return ledger->reclaim != NULL && ledger->reclaim(ledger, slot);
}

/* True when `other` cannot have held bytes that were anybody's to reclaim; may reap it. */
static bool is_accounted(const struct ledger *ledger, uint32_t other, const struct note *note)
{
    if (gen_of(ledger, other) != note->gen)
        return false;
    if (note->gen % 2 == 0)
        return true;
    struct word128 word = word128_load(word_of(ledger, other));
    if (word.low == 0 && word.high == note->count)
        return true;
    if (ledger->is_held(ledger->is_held_context, other))
        return !reclaim(ledger, other) && gen_of(ledger, other) == note->gen;
    ledger_reap(ledger, other, note->gen);
    return false;
}

/* True when `bytes` did not fit at one moment with every other slot's user alive or clean. */
static bool prove_refusal(const struct ledger *ledger, uint32_t slot, uint64_t bytes,
                          struct ledger_refusal *refusal)
{
    struct note notes[VGPU_SLOT_COUNT];
    uint32_t hi_slot = hi_slot_of(ledger);
    for (uint32_t other = 0; other < hi_slot; other++) {
        notes[other].gen = gen_of(ledger, other);
        notes[other].count = word128_load(word_of(ledger, other)).high;
    }
    uint64_t limit_before = ledger_limit_bytes(ledger);
    struct word128 seen = word128_load(total_of(ledger));
    uint64_t limit_after = ledger_limit_bytes(ledger);
    uint64_t used = unpack(seen).used;
    uint64_t limit = limit_before > limit_after ? limit_before : limit_after;
    if (used + bytes <= limit || !settle(ledger, seen))
        return false;
    for (uint32_t other = 0; other < hi_slot; other++)
        if (other != slot && !is_accounted(ledger, other, &notes[other]))
            return false;
    if (hi_slot_of(ledger) != hi_slot)
        return false;
    *refusal = (struct ledger_refusal){used, limit};
    return true;
}

int ledger_reserve(const struct ledger *ledger, uint32_t slot, uint64_t bytes,
                   struct ledger_refusal *refusal)
{
    if (bytes > LEDGER_MAX_BYTES) {
        *refusal = (struct ledger_refusal){ledger_used_bytes(ledger), ledger_limit_bytes(ledger)};
        return -ENOMEM;
    }
    for (int pauses = 4;;) {
        struct word128 seen = word128_load(total_of(ledger));
        if (!settle(ledger, seen))
            continue;
        uint64_t total = unpack(seen).used + bytes;
        if (total > ledger_limit_bytes(ledger)) {
            if (prove_refusal(ledger, slot, bytes, refusal))
                return -ENOMEM;
            continue;
        }
        if (!apply(ledger, seen, slot, (int64_t)bytes)) {
            pause_longer(&pauses);
            continue;
        }
        if (total <= ledger_limit_bytes(ledger) || !undo(ledger, slot, bytes))
            return 0;
    }
}

/* Adds `delta` to what `slot` holds, without a look at the limit. */
static void shift(const struct ledger *ledger, uint32_t slot, int64_t delta)
{
    for (int pauses = 4;;) {
        struct word128 seen = word128_load(total_of(ledger));
        if (!settle(ledger, seen))
            continue;
        if (apply(ledger, seen, slot, delta))
            return;
        pause_longer(&pauses);
    }
}

void ledger_release(const struct ledger *ledger, uint32_t slot, uint64_t bytes)
{
    shift(ledger, slot, -(int64_t)bytes);
}

void ledger_force(const struct ledger *ledger, uint32_t slot, uint64_t bytes)
{
    shift(ledger, slot, (int64_t)bytes);
}

void ledger_sweep(const struct ledger *ledger)
{
    /* A process may have died between its way into the total and its own word. */
    while (!settle(ledger, word128_load(total_of(ledger))))
        continue;
    uint32_t hi_slot = hi_slot_of(ledger);
    for (uint32_t slot = 0; slot < hi_slot; slot++) {
        uint64_t gen = gen_of(ledger, slot);
        if (gen % 2 == 0 || word128_load(word_of(ledger, slot)).low == 0)
            continue;
        if (ledger->is_held(ledger->is_held_context, slot))
            reclaim(ledger, slot);
        else
            ledger_reap(ledger, slot, gen);
    }
}
