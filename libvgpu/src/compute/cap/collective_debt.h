/* What a process owes for its parts of collectives (collective.h), paid little by little.
 *
 * A part keeps the GPU until the other ranks' parts have come. All of that time is charged. Were it paid before the
 * next launch, this rank would be late by more than it has waited, wherever the cap is below 50 %. Then the others
 * would wait for it, be charged for that, and be later still: each round longer than the one before.
 *
 * So a part's debt beyond the time that it ran is put off: launches may run so much further ahead of the clock. At the
 * first part of each round, half of the cap's fraction of it falls due. With a cap c and a wait of s, s * (1/c - 1) is
 * put off, and the next rounds bring that in by c/2 * (1 - c/2)^n of it: this rank's lead over the others, and theirs
 * over it, halves from round to round. Nothing is forgiven: in the long run the cap is kept.
 *
 * Pure: time comes as an argument. Serialised by the lock in `struct flight`. All zero is ready to use. */
#ifndef VGPU_COLLECTIVE_DEBT_H
#define VGPU_COLLECTIVE_DEBT_H

#include <stdbool.h>
#include <stdint.h>

/* The most that may be put off, and what a part may be ahead besides before it is held. */
#define COLLECTIVE_DEBT_NS 1000000000
#define COLLECTIVE_AHEAD_NS 500000000
/* Parts of one round. Where more follow each other each of the others is a round. */
#define COLLECTIVE_ROUND_PARTS 64
/* A program that has had no part for so long has no collectives any more. */
#define COLLECTIVE_PAUSE_NS 10000000000

struct collective_debt {
    int64_t put_off_ns; /* of virtual time */
    int64_t part_ns;    /* when the last part was launched; 0: none was */
    uint32_t parts;     /* of this round: nothing else was launched since */
};

/* A part is launched, and charged `gpu_ns`. */
void collective_debt_part(struct collective_debt *debt, uint32_t percent, int64_t gpu_ns,
                          int64_t now_ns);

/* Something else is launched: the next part begins a round. */
void collective_debt_end_round(struct collective_debt *debt);

/* Parts turned out to take `gpu_ns` more than they were charged (negative: less). */
void collective_debt_correct(struct collective_debt *debt, uint32_t percent, int64_t gpu_ns);

/* The container is that far ahead of the clock: it cannot have put off more. */
void collective_debt_bound(struct collective_debt *debt, int64_t ahead_ns, int64_t now_ns);

#endif
