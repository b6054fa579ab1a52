/* The libraries and contexts of this process, and which pairs of them are charged.
 *
 * One mutex guards the two lists and the pairs; nothing is reserved and the driver is not called
 * under it (lock order: context_lock, then this one, then shards of the allocation map). The pairs'
 * charges are entries of the allocation map under the numbers of both, which are never given twice.
 * Records are not freed, only used again: a program that uses a library while it unloads it gets
 * the driver's answer and no fault of ours. A forked child starts empty. */
#ifndef VGPU_LIBRARY_BOOK_H
#define VGPU_LIBRARY_BOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "code/image_size.h"
#include "code/load_cost.h"
#include "memory/charge.h"

struct library {
    struct charge_owner owner; /* of the handle's entry in the allocation map */
    struct library *next;
    uint32_t number;
    CUlibrary handle; /* NULL until it is loaded */
    struct image_size size;
    struct load_cost cost;   /* while it is loaded eagerly and has to be measured */
    uint64_t reserved_bytes; /* for one context */
    uint64_t measured_bytes; /* the most it took in one; 0: was not measured. Atomic */
    bool is_used;            /* charged in every context; atomic */
};

/* A context that libraries may be loaded into. */
struct member {
    struct charge_owner owner; /* of the context's entry */
    struct member *next;
    uint32_t number;
    CUcontext context;
    int device; /* index in `limits` */
};

void library_book_lock(void);
void library_book_unlock(void);

/* ---- under the mutex ---- */

struct library *library_book_libraries(void);
struct member *library_book_members(void);

/* New records in the lists; NULL when there is no host memory. */
struct library *library_book_add_library(const struct image_size *size, uint64_t reserved_bytes);
struct member *library_book_add_member(CUcontext context, int device);

bool library_book_has_pair(const struct library *library, const struct member *member);
void library_book_put_pair(const struct library *library, const struct member *member,
                           const struct charge *charge);

/* Gives back what `library` is charged in all contexts. */
void library_book_drop_pairs(const struct library *library);

/* ---- without it ---- */

/* Ties a record to its handle: with the end of the handle's entry the record ends. */
void library_book_keep_library(struct library *library);
void library_book_keep_member(struct member *member);

/* For fork.c. */
void library_book_after_fork(void);

/* The record of a handle; NULL when it is not known. */
struct library *library_book_find(CUlibrary handle);

/* Takes a record out, and gives back what it was charged. */
void library_book_end_library(struct library *library);
void library_book_end_member(struct member *member);

#endif
