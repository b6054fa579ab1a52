/* The part of vmm.h where the driver finds memory by its address, and multicast objects. */
#include <stddef.h>

#include "memory/vmm/vmm_books.h"

static struct vmm_record watcher; /* of ranges that are watched: stands for no memory */

static bool watch(struct vmm_call *call, uint64_t address, uint64_t bytes)
{
    return vmm_add_range(call, (struct vmm_place){VMM_WATCHED, 0, address, bytes}, &watcher);
}

bool vmm_is_watched(const struct vmm_place *mapping)
{
    uint64_t at = vmm_ranges_first(&(struct vmm_place){.kind = VMM_WATCHED});
    for (const struct vmm_range *range; (range = vmm_ranges_at(at)) != NULL; at++)
        if (vmm_overlap(&range->place, mapping))
            return true;
    return false;
}

/* The next mapping from index *at on that reaches into `place`, also one under way or gone. */
static struct vmm_range *next_mapping(const struct vmm_place *place, uint64_t *at)
{
    for (struct vmm_range *range; (range = vmm_ranges_at(*at)) != NULL; ++*at) {
        if (range->place.kind != VMM_MAPPING ||
            range->place.address >= place->address + place->bytes)
            return NULL;
        if (vmm_overlap(&range->place, place))
            return range;
    }
    return NULL;
}

/* The call under way has its answer: what was unmapped there meanwhile ends, unless another call
 * still asks. */
static void unwatch(struct vmm_ending *ending, const struct vmm_call *call)
{
    uint64_t own = vmm_own_range(call);
    vmm_ranges_at(own)->record = NULL;
    watcher.uses--;
    vmm_ranges_sweep(own, own + 1);
    uint64_t from = vmm_ranges_first_reaching(call->place.address);
    uint64_t at = from;
    for (struct vmm_range *range; (range = next_mapping(&call->place, &at)) != NULL; at++)
        if (range->is_gone && !vmm_is_watched(&range->place))
            vmm_end_range(ending, range);
    vmm_ranges_sweep(from, at);
}

/* ---- references by address ---- */

bool vmm_retain_begin(struct vmm_call *call, uint64_t address)
{
    struct vmm_ending ending = vmm_enter();
    call->spare = vmm_records_new(vmm_next_moment());
    bool written = call->spare != NULL && watch(call, address, 1);
    if (call->spare != NULL && !written)
        vmm_records_free(call->spare);
    vmm_leave(&ending);
    return written;
}

/* One of these the driver has found. It is `known`, by its number or by what that holds, or, with a
 * number that is new, the last of them; of several, which only a program that races with itself
 * can bring about, those that it may be are never let go. */
static void refer(struct vmm_ending *ending, struct vmm_call *call, uint64_t handle)
{
    struct vmm_record *known = vmm_records_find(handle);
    struct vmm_record *last = NULL;
    bool is_known = false;
    uint64_t from = vmm_ranges_first_reaching(call->place.address);
    uint64_t at = from;
    for (const struct vmm_range *range; (range = next_mapping(&call->place, &at)) != NULL; at++) {
        last = range->record;
        if (known != NULL && (known == last || known->holds == last))
            is_known = true;
    }
    if (known != NULL)
        known->references++;
    if (is_known || last == NULL)
        return;
    for (at = from; next_mapping(&call->place, &at) != NULL; at++)
        if (known != NULL || vmm_ranges_at(at)->record != last)
            vmm_ranges_at(at)->record->uses++;
    if (known != NULL)
        return;
    call->spare->references = 1;
    call->spare->holds = last;
    last->uses++;
    vmm_name(ending, call->spare, handle);
    call->spare = NULL;
}

void vmm_retain_end(struct vmm_call *call, uint64_t handle, bool retained)
{
    struct vmm_ending ending = vmm_enter();
    if (retained)
        refer(&ending, call, handle);
    unwatch(&ending, call);
    if (call->spare != NULL)
        vmm_records_free(call->spare);
    vmm_leave(&ending);
}

/* ---- multicast objects ---- */

struct vmm_record *vmm_object_begin(void)
{
    return vmm_create_begin(&(struct charge){.device = CHARGE_NONE});
}

void vmm_object_end(struct vmm_record *object, uint64_t handle, bool made)
{
    object->is_object = true; /* nobody else knows it yet */
    vmm_create_end(object, handle, made);
}

/* The call keeps the object's record. One that we do not know was imported. */
static struct vmm_record *find_object(struct vmm_call *call, uint64_t object)
{
    struct vmm_record *record = vmm_find_or_make(object);
    call->object_handle = object;
    call->object = record;
    if (record != NULL)
        record->uses++;
    return record;
}

/* After success, and before the call lets the object go. Whose references nobody counted, that
 * never ends; bound to while it was being released, the object may be another one already. */
static void mark_bound(struct vmm_record *object)
{
    object->is_object = true;
    if (object->references == 0 && object->releasing == 0)
        object->references = VMM_ENDLESS;
    if (object->releasing > 0)
        object->is_doubtful = true;
}

/* The object that has the number now, should it be another one than when the call began. */
static const struct vmm_record *current_object(const struct vmm_call *call)
{
    const struct vmm_record *named = vmm_records_find(call->object_handle);
    return named != NULL ? named : call->object;
}

bool vmm_bind_begin(struct vmm_call *call, uint64_t object, uint64_t offset, uint64_t bytes,
                    uint64_t handle)
{
    struct vmm_ending ending = vmm_enter();
    struct vmm_record *memory = NULL;
    bool written = false;
    if (find_object(call, object) != NULL) {
        memory = vmm_find_or_make(handle);
        struct vmm_place place = {VMM_BINDING, call->object->id, offset, bytes};
        written = memory != NULL && vmm_add_range(call, place, memory);
        if (!written)
            vmm_unuse(&ending, call->object);
        if (memory != NULL && !written)
            vmm_check(&ending, memory);
    }
    vmm_leave(&ending);
    return written;
}

void vmm_bind_end(struct vmm_call *call, bool bound)
{
    struct vmm_ending ending = vmm_enter();
    if (bound) {
        mark_bound(call->object);
        if (current_object(call) != call->object)
            call->object->references = VMM_ENDLESS;
    }
    vmm_end_call(&ending, call, bound);
    vmm_unuse(&ending, call->object);
    vmm_leave(&ending);
}

bool vmm_bind_address_begin(struct vmm_call *call, uint64_t object, uint64_t offset, uint64_t bytes,
                            uint64_t address)
{
    struct vmm_ending ending = vmm_enter();
    bool written = false;
    if (find_object(call, object) != NULL) {
        written = watch(call, address, bytes);
        call->bound = (struct vmm_place){VMM_BINDING, call->object->id, offset, bytes};
        if (!written)
            vmm_unuse(&ending, call->object);
    }
    vmm_leave(&ending);
    return written;
}

/* Without room for a range the memory is kept for good, as if it were never unbound. */
static void bind_mapped(const struct vmm_call *call)
{
    uint64_t at = vmm_ranges_first_reaching(call->place.address);
    for (const struct vmm_range *mapping; (mapping = next_mapping(&call->place, &at)) != NULL;
         at++) {
        struct vmm_range range = {.place = call->bound, .record = mapping->record};
        range.id = vmm_next_moment();
        range.confirmed = range.id;
        range.record->uses++;
        vmm_ranges_add(&range); /* behind all mappings: their places stay */
    }
}

void vmm_bind_address_end(struct vmm_call *call, bool bound)
{
    struct vmm_ending ending = vmm_enter();
    if (bound) {
        mark_bound(call->object);
        if (current_object(call) != call->object)
            call->object->references = VMM_ENDLESS;
        bind_mapped(call);
    }
    unwatch(&ending, call);
    vmm_unuse(&ending, call->object);
    vmm_leave(&ending);
}

void vmm_unbind(uint64_t object, uint64_t offset, uint64_t bytes, int device, uint64_t before)
{
    struct vmm_ending ending = vmm_enter();
    const struct vmm_record *record = vmm_records_find(object);
    if (record != NULL) {
        struct vmm_place place = {VMM_BINDING, record->id, offset, bytes};
        uint64_t from = vmm_ranges_first(&place);
        uint64_t at = from;
        struct vmm_range *range;
        for (; (range = vmm_ranges_at(at)) != NULL && vmm_starts_within(range, &place); at++)
            if (vmm_was_within(range, &place, before) && range->record->charge.device == device)
                vmm_end_range(&ending, range);
        vmm_ranges_sweep(from, at);
    }
    vmm_leave(&ending);
}
