#include "memory/vmm/vmm.h"

#include <stddef.h>

#include "driver/log.h"
#include "memory/vmm/vmm_books.h"

uint64_t vmm_now(void)
{
    struct vmm_ending ending = vmm_enter();
    uint64_t now = vmm_moment();
    vmm_leave(&ending);
    return now;
}

uint64_t vmm_new_number(void)
{
    struct vmm_ending ending = vmm_enter();
    uint64_t number = vmm_next_moment();
    vmm_leave(&ending);
    return number;
}

/* ---- handles ---- */

struct vmm_record *vmm_create_begin(const struct charge *charge)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_record *record = vmm_records_new(vmm_next_moment());
    if (record != NULL) {
        record->charge = *charge;
        record->references = 1;
    }
    vmm_leave(&ending);
    return record;
}

void vmm_create_end(struct vmm_record *record, uint64_t handle, bool made)
{
    struct vmm_ending ending = vmm_enter();
    if (made) {
        vmm_name(&ending, record, handle);
    } else {
        record->references = 0;
        vmm_check(&ending, record);
    }
    vmm_leave(&ending);
}

struct vmm_record *vmm_release_begin(uint64_t handle)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_record *record = vmm_records_find(handle);
    if (record != NULL)
        record->releasing++;
    vmm_leave(&ending);
    return record;
}

void vmm_release_end(struct vmm_record *record, bool released)
{
    if (record == NULL)
        return;
    struct vmm_ending ending = vmm_enter();
    record->releasing--;
    if (released && record->references > 0 && record->references < VMM_ENDLESS)
        record->references--;
    vmm_check(&ending, record);
    vmm_leave(&ending);
}

/* ---- uses ---- */

bool vmm_use_begin(struct vmm_call *call, struct vmm_place place, uint64_t handle)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_record *record = vmm_find_or_make(handle);
    bool written = record != NULL && vmm_add_range(call, place, record);
    if (record != NULL && !written)
        vmm_check(&ending, record);
    vmm_leave(&ending);
    return written;
}

void vmm_use_end(struct vmm_call *call, bool used)
{
    struct vmm_ending ending = vmm_enter();
    vmm_end_call(&ending, call, used);
    vmm_leave(&ending);
}

void vmm_unmapped(uint64_t address, uint64_t bytes, uint64_t before)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_place place = {VMM_MAPPING, 0, address, bytes};
    uint64_t from = vmm_ranges_first(&place);
    uint64_t at = from;
    struct vmm_range *range;
    for (; (range = vmm_ranges_at(at)) != NULL && vmm_starts_within(range, &place); at++) {
        if (!vmm_was_within(range, &place, before))
            continue;
        if (vmm_is_watched(&range->place))
            range->is_gone = true;
        else
            vmm_end_range(&ending, range);
    }
    vmm_ranges_sweep(from, at);
    vmm_leave(&ending);
}

/* ---- memory that more processes than this one hold ---- */

bool vmm_hand_over(uint64_t handle, struct charge_owner *owner, uint64_t *bytes, int *device)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_record *record = vmm_records_find(handle);
    bool can = record != NULL && record->charge.device >= 0 && record->owner == NULL;
    if (can) {
        record->owner = owner;
        *bytes = record->charge.bytes;
        *device = record->charge.device;
    }
    vmm_leave(&ending);
    return can;
}

bool vmm_find(uint64_t handle, struct charge *charge, struct charge_owner **owner)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_record *record = vmm_records_find(handle);
    bool is_charged = record != NULL && record->charge.device >= 0;
    if (is_charged) {
        *charge = record->charge;
        *owner = record->owner;
    }
    vmm_leave(&ending);
    return is_charged;
}

bool vmm_find_unsized(uint64_t handle, struct charge *charge)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_record *record = vmm_records_find(handle);
    bool is_unsized =
        record != NULL && record->is_unsized && record->owner == NULL && record->charge.device >= 0;
    if (is_unsized)
        *charge = record->charge;
    vmm_leave(&ending);
    return is_unsized;
}

bool vmm_set_charge(uint64_t handle, uint64_t from, uint64_t bytes)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_record *record = vmm_records_find(handle);
    bool can = record != NULL && record->is_unsized && record->owner == NULL &&
               record->charge.bytes == from && (bytes > from || record->uses == 1);
    if (can)
        record->charge.bytes = bytes;
    vmm_leave(&ending);
    return can;
}

/* Were all its references being given back, the driver might have made a new piece of memory under
 * the number of an old one: that counts as new, though the bytes may then be charged twice. */
bool vmm_adopt(uint64_t handle, const struct charge *charge, struct charge_owner *owner)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_record *record = vmm_records_find(handle);
    bool is_new = record == NULL || record->references <= record->releasing;
    if (!is_new)
        record->references++;
    else if ((record = vmm_records_new(vmm_next_moment())) != NULL) {
        record->charge = *charge;
        record->owner = owner;
        record->is_unsized = owner == NULL;
        record->references = 1;
        vmm_name(&ending, record, handle);
    }
    vmm_leave(&ending);
    if (record == NULL)
        log_line(LOG_ERROR, "out of host memory: %llu bytes stay charged until this process ends",
                 (unsigned long long)charge->bytes);
    return is_new;
}
