/* Where the memory of handles is used: mappings at addresses, bindings to multicast objects, tiles
 * of sparse arrays.
 *
 * One array in an anonymous mapping, in the order of kind, whose, address; it doubles. Ranges may
 * overlap (a call under way, a program that races with itself). No lock: vmm.c calls it under its
 * own. */
#ifndef VGPU_VMM_RANGES_H
#define VGPU_VMM_RANGES_H

#include <stdbool.h>
#include <stdint.h>

struct vmm_record;

enum vmm_kind {
    VMM_MAPPING, /* at addresses */
    VMM_BINDING, /* `whose` is the id of a multicast object's record, addresses are offsets in it */
    VMM_TILE,    /* `whose` is an array's life (sparse_array.h); address and bytes name a region */
    VMM_WATCHED  /* addresses that a call under way asks about */
};

struct vmm_place {
    uint32_t kind; /* enum vmm_kind */
    uint64_t whose;
    uint64_t address;
    uint64_t bytes;
};

struct vmm_range {
    struct vmm_place place;
    struct vmm_record *record; /* NULL: to be swept */
    uint64_t id;               /* when its call began; never used twice */
    uint64_t confirmed;        /* when its call had succeeded; 0: under way */
    uint64_t stream;           /* a tile that leaves when the work of this stream is done */
    bool is_leaving;
    bool is_gone; /* unmapped while somebody asked what is there: kept for the answer */
};

/* Makes room for so many more, so that adding them cannot fail. */
bool vmm_ranges_reserve(uint64_t count);

/* False when no room was made and none can be had. */
bool vmm_ranges_add(const struct vmm_range *range);

/* The first range at `place` or behind it, and the range at an index; NULL behind the last. */
uint64_t vmm_ranges_first(const struct vmm_place *place);
struct vmm_range *vmm_ranges_at(uint64_t index);

/* The first mapping that may reach to `address`: those before it are too short or too far away. */
uint64_t vmm_ranges_first_reaching(uint64_t address);

/* Closes the gaps of the ranges from `from` to before `end` whose record is NULL. */
void vmm_ranges_sweep(uint64_t from, uint64_t end);

/* Forgets everything, in the child of a fork. */
void vmm_ranges_reset(void);

static inline bool vmm_same_space(const struct vmm_place *one, const struct vmm_place *other)
{
    return one->kind == other->kind && one->whose == other->whose;
}

static inline bool vmm_starts_within(const struct vmm_range *range, const struct vmm_place *place)
{
    return vmm_same_space(&range->place, place) &&
           range->place.address - place->address < place->bytes;
}

/* Whether it lies within `place`, was there at `before` and still is. */
static inline bool vmm_was_within(const struct vmm_range *range, const struct vmm_place *place,
                                  uint64_t before)
{
    return range->confirmed != 0 && range->confirmed <= before && !range->is_gone &&
           range->place.bytes <= place->bytes - (range->place.address - place->address);
}

static inline bool vmm_overlap(const struct vmm_place *one, const struct vmm_place *other)
{
    return one->address < other->address + other->bytes &&
           other->address < one->address + one->bytes;
}

#endif
