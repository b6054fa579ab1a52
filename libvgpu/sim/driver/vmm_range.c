/* Reservations of addresses, and what is mapped into them. */
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vmm.h"

struct reservation {
    uint64_t address, bytes; /* first: the key of the tree */
};

static void *reservations; /* of struct reservation, by range */
static void *mappings;     /* of struct vmm_mapping, by range */

/* Ranges that touch are equal, as in memory.c. Both kinds of node begin with their range. */
static int compare_ranges(const void *left, const void *right)
{
    const struct reservation *one = left, *other = right;
    if (one->address + one->bytes <= other->address)
        return -1;
    return one->address >= other->address + other->bytes ? 1 : 0;
}

static void *find_range(void *const *tree, uint64_t address, uint64_t bytes)
{
    struct reservation key = {address, bytes};
    void **node = tfind(&key, tree, compare_ranges);
    return node ? *node : NULL;
}

bool vmm_whole_granules(uint64_t address, uint64_t bytes)
{
    return bytes && address % VMM_GRANULARITY_BYTES == 0 && bytes % VMM_GRANULARITY_BYTES == 0 &&
           address + bytes > address;
}

/* ---- reservations ---------------------------------------------------------------------------- */

static void *map_reserved(uint64_t hint, uint64_t bytes, uint64_t alignment)
{
    uint64_t wide_bytes = bytes + alignment;
    char *wide = mmap(hint ? (void *)hint : memory_place(wide_bytes), wide_bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (wide == MAP_FAILED)
        return NULL;
    uint64_t front = (alignment - (uint64_t)wide % alignment) % alignment;
    if (front)
        munmap(wide, front);
    if (alignment - front)
        munmap(wide + front + bytes, alignment - front);
    return wide + front;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    DRIVER_CHECK();
    INVALID_IF(!address || flags || bytes == 0 || bytes % SIM_PAGE || hint % SIM_PAGE ||
               alignment & (alignment - 1));
    if (alignment < VMM_GRANULARITY_BYTES)
        alignment = VMM_GRANULARITY_BYTES;
    struct reservation *reservation =
        bytes + alignment > bytes ? malloc(sizeof *reservation) : NULL;
    void *mapped = reservation ? map_reserved(hint, bytes, alignment) : NULL;
    if (!mapped) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *reservation = (struct reservation){(uint64_t)mapped, bytes};
    pthread_mutex_lock(&vmm_mutex);
    bool known = tsearch(reservation, &reservations, compare_ranges) != NULL;
    pthread_mutex_unlock(&vmm_mutex);
    if (!known) {
        munmap(mapped, bytes);
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = (CUdeviceptr)mapped;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    DRIVER_CHECK();
    INVALID_IF(bytes == 0 || address + bytes < address);
    pthread_mutex_lock(&vmm_mutex);
    struct reservation *found = find_range(&reservations, address, 1);
    if (found && (found->address != address || found->bytes != bytes ||
                  find_range(&mappings, address, bytes)))
        found = NULL; /* not that one, or in use */
    if (found) {
        tdelete(found, &reservations, compare_ranges);
        munmap((void *)address, bytes);
    }
    pthread_mutex_unlock(&vmm_mutex);
    free(found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* Makes the place of a mapping a part of its reservation and nothing else. */
static void reserve_again(const struct vmm_mapping *mapping)
{
    (void)mmap((void *)mapping->address, mapping->bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static CUresult map_locked(struct vmm_mapping *mapping)
{
    const struct multicast *multicast = mapping->physical->multicast;
    REFUSE_IF(multicast && !multicast_complete(multicast), CUDA_ERROR_ILLEGAL_STATE);
    const struct reservation *within = find_range(&reservations, mapping->address, 1);
    INVALID_IF(!within || mapping->address + mapping->bytes > within->address + within->bytes ||
               find_range(&mappings, mapping->address, mapping->bytes));
    REFUSE_IF(!tsearch(mapping, &mappings, compare_ranges), CUDA_ERROR_OUT_OF_MEMORY);
    void *place = (void *)mapping->address;
    if (mremap(mapping->physical->window, 0, mapping->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               place) != place) {
        reserve_again(mapping);
        tdelete(mapping, &mappings, compare_ranges);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mapping->physical->mappings++;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CALL_TAKES(cuMemMap);
    DRIVER_CHECK();
    INVALID_IF(flags || offset ||
               !vmm_whole_granules(address, bytes)); /* documented: the offset must be zero */
    struct vmm_mapping *mapping = calloc(1, sizeof *mapping);
    REFUSE_IF(!mapping, CUDA_ERROR_OUT_OF_MEMORY);
    *mapping = (struct vmm_mapping){.address = address, .bytes = bytes};
    pthread_mutex_lock(&vmm_mutex);
    mapping->physical = physical_find_locked(handle);
    CUresult result = mapping->physical && bytes <= mapping->physical->bytes
                          ? map_locked(mapping)
                          : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&vmm_mutex);
    if (result != CUDA_SUCCESS)
        free(mapping);
    return result;
}

/* Whether mappings fill the range without a gap and without standing out of it. */
bool vmm_filled_locked(uint64_t address, uint64_t bytes)
{
    uint64_t at = address;
    while (at < address + bytes) {
        const struct vmm_mapping *mapping = find_range(&mappings, at, 1);
        if (!mapping || mapping->address != at)
            return false;
        at += mapping->bytes;
    }
    return at == address + bytes;
}

static void unmap_locked(struct vmm_mapping *mapping)
{
    if (mapping->listed)
        memory_forget(mapping->address);
    reserve_again(mapping);
    tdelete(mapping, &mappings, compare_ranges);
    mapping->physical->mappings--;
    physical_drop_locked(mapping->physical);
    free(mapping);
}

/* Several mappings that lie side by side may go in one call, as allocators that grow do it. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CALL_TAKES(cuMemUnmap);
    DRIVER_CHECK();
    INVALID_IF(!vmm_whole_granules(address, bytes));
    CHECK(stream_calls_settle());
    pthread_mutex_lock(&vmm_mutex);
    bool filled = vmm_filled_locked(address, bytes);
    for (uint64_t end = address + bytes; filled && address < end;) {
        struct vmm_mapping *mapping = find_range(&mappings, address, 1);
        address += mapping->bytes;
        unmap_locked(mapping);
    }
    pthread_mutex_unlock(&vmm_mutex);
    return filled ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- for pointer attributes ------------------------------------------------------------------ */

struct vmm_mapping *vmm_mapping_locked(uint64_t address)
{
    return find_range(&mappings, address, 1);
}

struct physical *vmm_physical_locked(uint64_t address)
{
    const struct vmm_mapping *mapping = vmm_mapping_locked(address);
    return mapping ? mapping->physical : NULL;
}

bool vmm_view(uint64_t address, struct vmm_view *view)
{
    pthread_mutex_lock(&vmm_mutex);
    const struct reservation *reservation = find_range(&reservations, address, 1);
    const struct vmm_mapping *mapping = find_range(&mappings, address, 1);
    if (reservation)
        *view = (struct vmm_view){.reserved_address = reservation->address,
                                  .reserved_bytes = reservation->bytes};
    if (reservation && mapping) {
        view->mapped = true;
        view->mapping = *mapping;
        view->handle = mapping->physical->handle;
        view->handle_types = mapping->physical->properties.requestedHandleTypes;
        view->device = mapping->physical->device;
    }
    pthread_mutex_unlock(&vmm_mutex);
    return reservation != NULL;
}
