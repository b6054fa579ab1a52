/* Hook of the memory of sparse arrays: a handle that is mapped into one stays charged until the
 * same region is unmapped again, and the stream that does it has come that far, or the array has
 * ended.
 *
 * Nobody tells us when a stream has come that far. It is asked here, by every call that maps or
 * unmaps on it, before the call and after it: so what leaves behind a busy stream stays charged
 * until such a call finds the stream idle. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/capture.h"
#include "hooks/hook.h"
#include "memory/vmm/sparse_array.h"
#include "memory/vmm/vmm.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/cuda_vmm.h"

#define FEW 8 /* entries that are copied without a mapping of their own */

struct list {
    CUarrayMapInfo few[FEW];
    struct vmm_call few_calls[FEW];
    CUarrayMapInfo *entries; /* our copy: what the driver does is what we write down */
    struct vmm_call *calls;
    uint32_t count;
    uint64_t mapped_bytes; /* 0: all in few */
};

static bool copy(struct list *list, const CUarrayMapInfo *entries, uint32_t count)
{
    uint64_t entry_bytes = (uint64_t)count * sizeof *entries;
    *list = (struct list){.count = count};
    list->entries = list->few;
    list->calls = list->few_calls;
    if (count > FEW) {
        list->mapped_bytes = entry_bytes + (uint64_t)count * sizeof *list->calls;
        list->entries = mmap(NULL, list->mapped_bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (list->entries == MAP_FAILED)
            return false;
        list->calls = (struct vmm_call *)(list->entries + count);
    }
    memcpy(list->entries, entries, entry_bytes);
    return true;
}

static uint64_t pack(const uint32_t *values, const unsigned int *bits, int count, bool *fits)
{
    uint64_t packed = 0;
    for (int i = 0; i < count; i++) {
        *fits = *fits && (uint64_t)values[i] >> bits[i] == 0;
        packed = packed << bits[i] | values[i];
    }
    return packed;
}

/* A region as a place. No array that can be made goes beyond these bits; false for one that does:
 * its place is that of all such, and nothing but the array's end ends what is there. */
static bool place_of(const CUarrayMapInfo *entry, struct vmm_place *place)
{
    static const unsigned int tail_bits[] = {12, 19, 32};
    static const unsigned int where_bits[] = {12, 18, 18, 15}; /* the top bit is a tail's */
    static const unsigned int size_bits[] = {5, 19, 19, 16};
    uint64_t array =
        (uint64_t)(uintptr_t)entry->resource.array; /* or the mipmap in the same place */
    bool fits = true;
    *place = (struct vmm_place){.kind = VMM_TILE, .whose = sparse_array_life(array)};
    if (entry->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        uint64_t offset = entry->subresource.miptail.offset;
        uint32_t where[] = {entry->subresource.miptail.layer, (uint32_t)(offset >> 32),
                            (uint32_t)offset};
        place->address = UINT64_C(1) << 63 | pack(where, tail_bits, 3, &fits);
        place->bytes = entry->subresource.miptail.size;
    } else {
        const __typeof__(entry->subresource.sparseLevel) *level = &entry->subresource.sparseLevel;
        uint32_t where[] = {level->layer, level->offsetX, level->offsetY, level->offsetZ};
        uint32_t size[] = {level->level, level->extentWidth, level->extentHeight,
                           level->extentDepth};
        place->address = pack(where, where_bits, 4, &fits);
        place->bytes = pack(size, size_bits, 4, &fits);
    }
    if (!fits) {
        place->address = UINT64_MAX;
        place->bytes = UINT64_MAX;
    }
    return fits;
}

static bool is_map(const CUarrayMapInfo *entry)
{
    return entry->memOperationType == CU_MEM_OPERATION_TYPE_MAP;
}

static void end_maps(struct list *list, uint32_t count, bool used)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_map(&list->entries[i]))
            vmm_use_end(&list->calls[i], used);
}

static bool begin_maps(struct list *list)
{
    struct vmm_place place;
    for (uint32_t i = 0; i < list->count; i++) {
        if (!is_map(&list->entries[i]))
            continue;
        place_of(&list->entries[i], &place);
        if (!vmm_use_begin(&list->calls[i], place, list->entries[i].memHandle.memHandle)) {
            end_maps(list, i, false);
            return false;
        }
    }
    return true;
}

/* The number that the driver gave to this stream and to no other, or, before CUDA 12, one that is
 * used this once. */
static uint64_t name_of(CUstream stream)
{
    unsigned long long id;
    if (real.cuStreamGetId != NULL && real.cuStreamGetId(stream, &id) == CUDA_SUCCESS)
        return id;
    return UINT64_MAX - vmm_new_number();
}

static bool is_idle(CUstream stream)
{
    if (real.cuStreamQuery == NULL || capture_is_active(stream))
        return false;
    struct capture_pause pause = capture_pause();
    CUresult result = real.cuStreamQuery(stream);
    capture_resume(pause);
    return result == CUDA_SUCCESS;
}

static void ask(CUstream stream, uint64_t name)
{
    uint64_t asked = vmm_now();
    if (is_idle(stream))
        vmm_stream_done(name, asked);
}

static CUresult run(struct list *list, CUstream stream,
                    CUresult (*call)(CUarrayMapInfo *, unsigned int, CUstream))
{
    struct vmm_place place;
    uint64_t name = name_of(stream);
    ask(stream, name);
    if (!begin_maps(list))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t before = vmm_now();
    CUresult result = call(list->entries, list->count, stream);
    /* Of a list that failed, nobody says how much of it was done. */
    end_maps(list, list->count, result == CUDA_SUCCESS || list->count > 1);
    if (result != CUDA_SUCCESS)
        return result;
    for (uint32_t i = 0; i < list->count; i++)
        if (!is_map(&list->entries[i]) && place_of(&list->entries[i], &place))
            vmm_tile_leaves(place, before, name);
    ask(stream, name);
    return result;
}

/* `named` is the stream under the name that it has in every entry point. */
#define MAP_ARRAY(symbol, named) \
    VGPU_EXPORT CUresult symbol(CUarrayMapInfo *entries, unsigned int count, CUstream stream) \
    { \
        NEEDS(symbol); \
        if (entries == NULL || region_open() == REGION_NONE) \
            return real.symbol(entries, count, stream); \
        struct list list; \
        if (!copy(&list, entries, count)) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        CUresult result = run(&list, named, real.symbol); \
        if (list.mapped_bytes > 0) \
            munmap(list.entries, list.mapped_bytes); \
        return result; \
    }

MAP_ARRAY(cuMemMapArrayAsync, stream)
MAP_ARRAY(cuMemMapArrayAsync_ptsz, stream != NULL ? stream : CU_STREAM_PER_THREAD)
