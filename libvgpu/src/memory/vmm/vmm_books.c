#include "memory/vmm/vmm_books.h"

#include <stddef.h>

#include "slice/locks.h"

static uint64_t leaving_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_moment;

void vmm_after_fork(void)
{
    lock_reset(&lock);
    vmm_records_reset();
    vmm_ranges_reset();
    leaving_count = 0;
}

struct vmm_ending vmm_enter(void)
{
    lock_take(&lock, LOCK_HANDLES);
    return (struct vmm_ending){NULL, NULL};
}

static void settle(const struct vmm_record *record)
{
    if (record->owner == NULL) {
        charge_cancel(&record->charge);
        return;
    }
    struct allocation allocation = {.address = record->handle,
                                    .bytes = record->charge.bytes,
                                    .owner = record->owner,
                                    .device = (uint16_t)record->charge.device,
                                    .kind = record->charge.kind,
                                    .space = SPACE_HANDLE};
    record->owner->release(record->owner, &allocation);
}

void vmm_leave(struct vmm_ending *ending)
{
    struct vmm_record *record;
    for (record = ending->first; record != NULL; record = record->next) { /* it may grow */
        if (record->is_object)
            vmm_drop_space(ending, VMM_BINDING, record->id);
        if (record->holds != NULL)
            vmm_unuse(ending, record->holds);
    }
    lock_give_back(&lock);
    if (ending->first == NULL)
        return;
    for (record = ending->first; record != NULL; record = record->next)
        settle(record);
    lock_take(&lock, LOCK_HANDLES);
    while ((record = ending->first) != NULL) {
        ending->first = record->next;
        vmm_records_free(record);
    }
    lock_give_back(&lock);
}

uint64_t vmm_moment(void)
{
    return last_moment;
}

uint64_t vmm_next_moment(void)
{
    return ++last_moment;
}

/* ---- records ---- */

void vmm_check(struct vmm_ending *ending, struct vmm_record *record)
{
    if (record->references > 0 || record->releasing > 0 || record->uses > 0)
        return;
    vmm_records_unlist(record);
    record->next = NULL;
    if (ending->last != NULL)
        ending->last->next = record;
    else
        ending->first = record;
    ending->last = record;
}

void vmm_unuse(struct vmm_ending *ending, struct vmm_record *record)
{
    record->uses--;
    vmm_check(ending, record);
}

/* A record that has the number already has ended for the driver: every reference to it is being
 * given back. (Where that is not so, threads release what others have not been told of yet; which
 * of the two is the older one nobody can say, and the one found here is never let go.) Calls under
 * way that use it may have met either memory, so it keeps the new record as long as they, or what
 * they made, are there. It can keep one: should it keep another already, the new record is never
 * let go. */
void vmm_name(struct vmm_ending *ending, struct vmm_record *record, uint64_t handle)
{
    struct vmm_record *former = vmm_records_find(handle);
    if (former != NULL) {
        bool has_ended = former->references <= former->releasing && !former->is_doubtful;
        vmm_records_unlist(former);
        former->references = has_ended ? 0 : VMM_ENDLESS;
        if (former->uses > 0) {
            record->uses++;
            if (former->holds == NULL)
                former->holds = record;
        }
        vmm_check(ending, former);
    }
    vmm_records_list(record, handle);
}

/* No call that has returned gave an unknown number out: it stands for nothing, or it is being given
 * out just now, and vmm_name will then find the use of it here. */
struct vmm_record *vmm_find_or_make(uint64_t handle)
{
    struct vmm_record *record = vmm_records_find(handle);
    if (record == NULL && (record = vmm_records_new(++last_moment)) != NULL)
        vmm_records_list(record, handle);
    return record;
}

/* ---- ranges ---- */

bool vmm_add_range(struct vmm_call *call, struct vmm_place place, struct vmm_record *record)
{
    call->place = place;
    call->id = ++last_moment;
    if (!vmm_ranges_add(&(struct vmm_range){.place = place, .record = record, .id = call->id}))
        return false;
    record->uses++;
    return true;
}

/* It is there: nothing that is not confirmed is dropped. */
uint64_t vmm_own_range(const struct vmm_call *call)
{
    uint64_t at = vmm_ranges_first(&call->place);
    while (vmm_ranges_at(at)->id != call->id)
        at++;
    return at;
}

void vmm_range_leaves(struct vmm_range *range)
{
    range->is_leaving = true;
    leaving_count++;
}

bool vmm_any_leaves(void)
{
    return leaving_count > 0;
}

void vmm_end_range(struct vmm_ending *ending, struct vmm_range *range)
{
    leaving_count -= range->is_leaving;
    vmm_unuse(ending, range->record);
    range->record = NULL;
}

void vmm_end_call(struct vmm_ending *ending, const struct vmm_call *call, bool used)
{
    uint64_t at = vmm_own_range(call);
    if (used) {
        vmm_ranges_at(at)->confirmed = ++last_moment;
        return;
    }
    vmm_end_range(ending, vmm_ranges_at(at));
    vmm_ranges_sweep(at, at + 1);
}

void vmm_drop_space(struct vmm_ending *ending, uint32_t kind, uint64_t whose)
{
    struct vmm_place space = {.kind = kind, .whose = whose};
    uint64_t from = vmm_ranges_first(&space);
    uint64_t at = from;
    struct vmm_range *range;
    for (; (range = vmm_ranges_at(at)) != NULL && vmm_same_space(&range->place, &space); at++)
        if (range->confirmed != 0)
            vmm_end_range(ending, range);
    vmm_ranges_sweep(from, at);
}
