/* What this process knows of each piece of memory that has a handle (cuMemCreate), or of an object
 * that has one (multicast), by handle.
 *
 * A pool of nodes that never move, in anonymous mappings that double (the hook may run inside the
 * program's own allocator), and a table of chains over it. Callers hold the lock of vmm_books.h. */
#ifndef VGPU_VMM_RECORDS_H
#define VGPU_VMM_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger/charge.h"

struct vmm_record {
    uint64_t handle; /* the number it is found by, while is_listed */
    uint64_t id;     /* never used twice */
    bool is_listed;
    bool is_object;             /* memory may be bound to it */
    bool is_unsized;            /* imported: nothing tells how large it is */
    bool is_doubtful;           /* bound to while it was being released: see vmm_name */
    struct charge charge;       /* device CHARGE_NONE: nobody counts it */
    struct charge_owner *owner; /* who answers for the bytes; NULL: this process's account */
    uint64_t references;        /* of the handle */
    uint64_t releasing;         /* calls under way that give a reference back */
    uint64_t uses;              /* ranges, records that hold it, calls under way */
    struct vmm_record *holds;   /* ends not before this one; counted there as a use */
    struct vmm_record *next;    /* in its chain, or in the list of those free or ending */
};

/* A node that is all zero but for its id; NULL when the kernel gives no memory. */
struct vmm_record *vmm_records_new(uint64_t id);

/* Gives back a node that is not listed. */
void vmm_records_free(struct vmm_record *record);

struct vmm_record *vmm_records_find(uint64_t handle);

/* A number stands for one record: whichever had it before is taken out first. */
void vmm_records_list(struct vmm_record *record, uint64_t handle);
void vmm_records_unlist(struct vmm_record *record);

/* Forgets everything, in the child of a fork. */
void vmm_records_reset(void);

#endif
