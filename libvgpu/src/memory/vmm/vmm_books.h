/* The inside of vmm.h: the lock, and how records and ranges begin and end under it. For vmm.c,
 * vmm_address.c and vmm_tiles.c. */
#ifndef VGPU_VMM_BOOKS_H
#define VGPU_VMM_BOOKS_H

#include "memory/vmm/vmm.h"
#include "memory/vmm/vmm_ranges.h"
#include "memory/vmm/vmm_records.h"

#define VMM_ENDLESS (UINT64_C(1) << 62) /* references of what nobody counts: it never ends */

/* Records that have ended, in order: what one of them held may end after it. */
struct vmm_ending {
    struct vmm_record *first;
    struct vmm_record *last;
};

/* Takes the lock. _leave ends what has ended: the charges after it has given the lock up. */
struct vmm_ending vmm_enter(void);
void vmm_leave(struct vmm_ending *ending);

/* For fork.c. */
void vmm_after_fork(void);

/* The number of this moment, and the next one. */
uint64_t vmm_moment(void);
uint64_t vmm_next_moment(void);

/* Ends the record if nothing is left of it; _unuse takes one use away first. */
void vmm_check(struct vmm_ending *ending, struct vmm_record *record);
void vmm_unuse(struct vmm_ending *ending, struct vmm_record *record);

/* Gives a record its number, whoever had it before. */
void vmm_name(struct vmm_ending *ending, struct vmm_record *record, uint64_t handle);

/* The record of a handle, made if need be; NULL without host memory. */
struct vmm_record *vmm_find_or_make(uint64_t handle);

/* Writes a range down before the call that makes it, as a use of `record`. */
bool vmm_add_range(struct vmm_call *call, struct vmm_place place, struct vmm_record *record);

/* The range of a call under way. */
uint64_t vmm_own_range(const struct vmm_call *call);

/* The end of that call: its range is confirmed or goes. */
void vmm_end_call(struct vmm_ending *ending, const struct vmm_call *call, bool used);

/* Ends a range; the array must be swept afterwards. */
void vmm_end_range(struct vmm_ending *ending, struct vmm_range *range);

/* Ends all of one space but what is under way. */
void vmm_drop_space(struct vmm_ending *ending, uint32_t kind, uint64_t whose);

/* Whether a call under way wants to know what is mapped there (vmm_address.c). */
bool vmm_is_watched(const struct vmm_place *mapping);

/* A range leaves with its stream, and whether any does (vmm_tiles.c). */
void vmm_range_leaves(struct vmm_range *range);
bool vmm_any_leaves(void);

#endif
