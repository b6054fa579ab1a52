#include "memory/vmm/vmm_ranges.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST_CAPACITY 64

static struct vmm_range *ranges;
static uint64_t count;
static uint64_t capacity;
static uint64_t longest_bytes; /* of any mapping since the array was last empty */

static bool is_before(const struct vmm_place *one, const struct vmm_place *other)
{
    if (one->kind != other->kind)
        return one->kind < other->kind;
    if (one->whose != other->whose)
        return one->whose < other->whose;
    return one->address < other->address;
}

bool vmm_ranges_reserve(uint64_t more)
{
    uint64_t wanted = capacity > 0 ? capacity : FIRST_CAPACITY;
    while (wanted < count + more)
        wanted *= 2;
    if (wanted == capacity)
        return true;
    void *larger = mmap(NULL, wanted * sizeof *ranges, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (larger == MAP_FAILED)
        return false;
    if (ranges != NULL) {
        memcpy(larger, ranges, count * sizeof *ranges);
        munmap(ranges, capacity * sizeof *ranges);
    }
    ranges = larger;
    capacity = wanted;
    return true;
}

uint64_t vmm_ranges_first(const struct vmm_place *place)
{
    uint64_t low = 0;
    uint64_t high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (is_before(&ranges[middle].place, place))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool vmm_ranges_add(const struct vmm_range *range)
{
    if (!vmm_ranges_reserve(1))
        return false;
    uint64_t at = vmm_ranges_first(&range->place);
    memmove(&ranges[at + 1], &ranges[at], (count - at) * sizeof *ranges);
    ranges[at] = *range;
    count++;
    if (range->place.kind == VMM_MAPPING && range->place.bytes > longest_bytes)
        longest_bytes = range->place.bytes;
    return true;
}

struct vmm_range *vmm_ranges_at(uint64_t index)
{
    return index < count ? &ranges[index] : NULL;
}

uint64_t vmm_ranges_first_reaching(uint64_t address)
{
    struct vmm_place from = {.kind = VMM_MAPPING};
    from.address = address > longest_bytes ? address - longest_bytes : 0;
    return vmm_ranges_first(&from);
}

void vmm_ranges_sweep(uint64_t from, uint64_t end)
{
    uint64_t kept = from;
    if (end > count)
        end = count;
    for (uint64_t at = from; at < end; at++)
        if (ranges[at].record != NULL)
            ranges[kept++] = ranges[at];
    if (kept == end)
        return;
    memmove(&ranges[kept], &ranges[end], (count - end) * sizeof *ranges);
    count -= end - kept;
    if (count == 0)
        longest_bytes = 0;
}

void vmm_ranges_reset(void)
{
    if (ranges != NULL)
        munmap(ranges, capacity * sizeof *ranges);
    ranges = NULL;
    count = 0;
    capacity = 0;
    longest_bytes = 0;
}
