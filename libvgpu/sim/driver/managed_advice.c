#include <stdlib.h>
#include <string.h>

#include "managed.h"

/* The ranges of an allocation in their order: each begins where the one before ends. */
struct segment {
    uint64_t end; /* offset */
    struct managed_policy policy;
};

struct managed_advice {
    unsigned int count;
    struct segment *segments;
};

void managed_forget(struct managed_advice *advice)
{
    if (advice)
        free(advice->segments);
    free(advice);
}

static bool same_location(const CUmemLocation *one, const CUmemLocation *other)
{
    return one->type == other->type && one->id == other->id;
}

static bool same_policy(const struct managed_policy *one, const struct managed_policy *other)
{
    return one->read_mostly == other->read_mostly && one->accessed_by == other->accessed_by &&
           same_location(&one->preferred, &other->preferred) &&
           same_location(&one->prefetched, &other->prefetched);
}

static bool begin_advice(struct allocation *allocation)
{
    struct managed_advice *advice = allocation->advice;
    if (!advice) {
        advice = calloc(1, sizeof *advice);
        struct segment *all = calloc(1, sizeof *all);
        if (!advice || !all) {
            free(advice);
            free(all);
            return false;
        }
        all->end = SIM_ROUND(allocation->bytes);
        *advice = (struct managed_advice){1, all};
        allocation->advice = advice;
    }
    /* room for the two borders of a range */
    struct segment *grown =
        realloc(advice->segments, (advice->count + 2) * sizeof *advice->segments);
    if (grown)
        advice->segments = grown;
    return grown != NULL;
}

/* Returns the segment that begins at an offset, which becomes a border. */
static unsigned int split_at(struct managed_advice *advice, uint64_t offset)
{
    unsigned int i = 0;
    uint64_t start = 0;
    while (i < advice->count && start < offset && advice->segments[i].end <= offset)
        start = advice->segments[i++].end;
    if (start == offset || i == advice->count)
        return i;
    memmove(&advice->segments[i + 1], &advice->segments[i],
            (advice->count - i) * sizeof *advice->segments);
    advice->segments[i].end = offset;
    advice->count++;
    return i + 1;
}

static void join_equal(struct managed_advice *advice)
{
    unsigned int kept = 0;
    for (unsigned int i = 1; i < advice->count; i++)
        if (same_policy(&advice->segments[kept].policy, &advice->segments[i].policy))
            advice->segments[kept].end = advice->segments[i].end;
        else
            advice->segments[++kept] = advice->segments[i];
    advice->count = kept + 1;
}

struct range {
    struct allocation *allocation;
    uint64_t from, to; /* offsets of whole pages */
};

static bool find_range_locked(CUdeviceptr address, uint64_t bytes, struct range *range)
{
    if (bytes == 0 || address + bytes < address)
        return false;
    range->allocation = memory_find_locked(address, bytes);
    if (!range->allocation || !allocation_is_managed(range->allocation))
        return false;
    range->from = (address - range->allocation->address) / SIM_PAGE * SIM_PAGE;
    range->to = SIM_ROUND(address - range->allocation->address + bytes);
    return true;
}

CUresult managed_change(CUdeviceptr address, uint64_t bytes, managed_edit edit,
                        const void *argument)
{
    struct range range;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory_mutex);
    if (!find_range_locked(address, bytes, &range)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!begin_advice(range.allocation)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        struct managed_advice *advice = range.allocation->advice;
        unsigned int first = split_at(advice, range.from), end = split_at(advice, range.to);
        for (unsigned int i = first; i < end; i++)
            edit(&advice->segments[i].policy, argument);
        join_equal(advice);
    }
    pthread_mutex_unlock(&memory_mutex);
    return result;
}

static void narrow(struct managed_policy *common, const struct managed_policy *other)
{
    const CUmemLocation none = {.type = CU_MEM_LOCATION_TYPE_INVALID};
    common->read_mostly = common->read_mostly && other->read_mostly;
    common->accessed_by &= other->accessed_by;
    if (!same_location(&common->preferred, &other->preferred))
        common->preferred = none;
    if (!same_location(&common->prefetched, &other->prefetched))
        common->prefetched = none;
}

CUresult managed_common(CUdeviceptr address, uint64_t bytes, struct managed_policy *common)
{
    struct range range;
    *common = (struct managed_policy){.read_mostly = false};
    pthread_mutex_lock(&memory_mutex);
    bool found = find_range_locked(address, bytes, &range);
    const struct managed_advice *advice = found ? range.allocation->advice : NULL;
    uint64_t start = 0;
    bool begun = false;
    for (unsigned int i = 0; advice && i < advice->count; start = advice->segments[i++].end) {
        const struct segment *segment = &advice->segments[i];
        if (segment->end <= range.from || start >= range.to)
            continue;
        if (begun)
            narrow(common, &segment->policy);
        else
            *common = segment->policy;
        begun = true;
    }
    pthread_mutex_unlock(&memory_mutex);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
