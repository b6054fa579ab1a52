/* How many bytes the processes of one container hold on one device, exactly, without a lock.
 *
 * The total T is one 16-byte word that describes its own last operation whole, so that whoever
 * comes next can finish it for a process that was stopped or killed in the middle:
 *
 *     low   used:42 | slot:9 | low 13 bits of the sequence number
 *     high  delta:43, signed | high 21 bits of the sequence number
 *
 * Each process has a slot with a word W = {bytes, count}. T is uncommitted while W[T.slot].count +
 * 1 equals T's sequence number (34 bits); committing adds the delta to W.bytes and 1 to W.count.
 * Invariant: T.used = sum of all W.bytes, plus T.delta while T is uncommitted.
 *
 * - reserve: finish the last operation; if the request does not fit, *prove* it (below); else
 *   replace T by {used + n, +n, me, count + 1}, commit, and look at the limit again: if it was
 *   lowered meanwhile, take the reservation back and begin again.
 * - refuse: only when n exceeded the limit at one moment with nothing left to reclaim. Note every
 *   slot's generation and count, read limit and T, then look at each other slot: dead ones are
 *   reaped and the whole thing begins again. Ordinary traffic forces no retry.
 * - reap: give a dead process's bytes back, the same way; several may do so at once.
 *
 * Synchronised by itself: any number of threads and processes, any of which may be stopped or
 * killed at any instruction. It takes no lock, but a refusal asks the kernel who is alive. 42 bits
 * are 4 TiB; 34 bits of sequence wrap only if one thread stands still for 2^34 operations of one
 * slot inside a window of nanoseconds and that slot's owner is killed as well. */
#ifndef VGPU_LEDGER_H
#define VGPU_LEDGER_H

#include <stdint.h>
#ifndef VGPU_CFFI
#include "vgpu/contract.h"
#endif

#define LEDGER_MAX_BYTES 0x3ffffffffff

struct ledger {
    void *usage;        /* mapped or in-memory `usage`, checked */
    const void *limits; /* mapped or in-memory `limits`, checked */
    uint32_t device;    /* index of the device in both */
    /* Returns 1 while the process that holds `slot` lives, 0 when it is gone. */
    int (*is_held)(void *context, uint32_t slot);
    void *is_held_context;
    /* Gives back what the dead had of a slot that others still hold; 1: there was something. NULL: no
     * slot has more than one user. */
    int (*reclaim)(const struct ledger *ledger, uint32_t slot);
};

/* Why a reservation was refused: what stood in the files at that moment. */
struct ledger_refusal {
    uint64_t used_bytes;
    uint64_t limit_bytes;
};

/* Returns what may be held: the memory limit less what the host measured outside of the ledger. */
uint64_t ledger_limit_bytes(const struct ledger *ledger);

/* Returns what is held, an operation in flight included. */
uint64_t ledger_used_bytes(const struct ledger *ledger);

/* Takes `bytes` for `slot`. Returns 0, or -ENOMEM with *refusal filled, having changed nothing. */
int ledger_reserve(const struct ledger *ledger, uint32_t slot, uint64_t bytes,
                   struct ledger_refusal *refusal);

/* Gives `bytes` of `slot` back. */
void ledger_release(const struct ledger *ledger, uint32_t slot, uint64_t bytes);

/* Takes `bytes` whatever the limit: for what the driver has already taken. */
void ledger_force(const struct ledger *ledger, uint32_t slot, uint64_t bytes);

/* Gives back what dead processes hold. */
void ledger_sweep(const struct ledger *ledger);

/* Gives everything back that `slot` holds, as long as its generation is still `gen` (odd). */
void ledger_reap(const struct ledger *ledger, uint32_t slot, uint64_t gen);

#endif
