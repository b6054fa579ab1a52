#include "charge.h"

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "allocation_map.h"
#include "devices.h"
#include "log.h"
#include "real.h"
#include "region.h"
#include "vgpu/contract.h"

#define MIB (1024.0 * 1024.0)

static const char *const kind_names[VGPU_KIND_COUNT] = {
    "plain", "async", "managed", "context", "vmm", "array", "module", "other",
};

static void count(const struct charge *charge, int64_t bytes)
{
    struct vgpu_usage_slot_device *counters = region_counters((uint32_t)charge->device);
    region_add(&counters->kind_bytes[charge->kind], bytes);
    uint64_t held = __atomic_load_n(&counters->bytes, __ATOMIC_RELAXED);
    if (bytes > 0 && held > counters->peak_bytes)
        counters->peak_bytes = held; /* a race of two threads loses one sample of a statistic */
}

static void count_refusal(const struct charge *charge, const struct ledger_refusal *refusal)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct vgpu_usage_slot_device *counters = region_counters((uint32_t)charge->device);
    counters->refused_asked_bytes = charge->bytes;
    counters->refused_used_bytes = refusal->used_bytes;
    counters->refused_limit_bytes = refusal->limit_bytes;
    counters->refused_kind = charge->kind;
    counters->refused_at_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    region_add(&counters->refused_count, 1);
    log_line(LOG_INFO,
             "refused %.2f MiB (%s) on device %d of the slice: %.2f of %.2f MiB are in use; the "
             "limit is the container's, set by the node",
             (double)charge->bytes / MIB, kind_names[charge->kind], charge->device,
             (double)refusal->used_bytes / MIB, (double)refusal->limit_bytes / MIB);
}

CUresult charge_reserve(struct charge *charge, int device, uint16_t kind, uint64_t bytes)
{
    *charge = (struct charge){device, kind, bytes};
    if (region_open() == REGION_NONE) {
        charge->device = CHARGE_NONE;
        return CUDA_SUCCESS;
    }
    if (device < 0 || !region_claim())
        return CUDA_ERROR_OUT_OF_MEMORY; /* a GPU that the slice does not name has limit 0 */
    struct ledger ledger = region_ledger((uint32_t)device);
    struct ledger_refusal refusal;
    if (ledger_reserve(&ledger, region_slot(), bytes, &refusal) != 0) {
        count_refusal(charge, &refusal);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    count(charge, (int64_t)bytes);
    return CUDA_SUCCESS;
}

/* `device` as devices.h gives it. */
static CUresult reserve_found(struct charge *charge, int device, uint16_t kind, uint64_t bytes)
{
    if (device != DEVICE_UNKNOWN)
        return charge_reserve(charge, device, kind, bytes);
    *charge = (struct charge){CHARGE_NONE, kind, bytes};
    return CUDA_SUCCESS;
}

CUresult charge_reserve_current(struct charge *charge, uint16_t kind, uint64_t bytes)
{
    bool counts = region_open() != REGION_NONE;
    return reserve_found(charge, counts ? devices_current() : DEVICE_UNKNOWN, kind, bytes);
}

CUresult charge_reserve_stream(struct charge *charge, CUstream stream, uint64_t bytes)
{
    bool counts = region_open() != REGION_NONE;
    return reserve_found(charge, counts ? devices_of_stream(stream) : DEVICE_UNKNOWN,
                         VGPU_KIND_ASYNC, bytes);
}

CUresult charge_move(struct charge *charge, CUdeviceptr address)
{
    int device = region_open() == REGION_NONE ? DEVICE_UNKNOWN : devices_of_pointer(address);
    if (device == DEVICE_UNKNOWN || device == charge->device)
        return CUDA_SUCCESS;
    struct charge moved;
    CUresult result = charge_reserve(&moved, device, charge->kind, charge->bytes);
    if (result != CUDA_SUCCESS)
        return result; /* the caller frees, and cancels what it has */
    charge_cancel(charge);
    *charge = moved;
    return CUDA_SUCCESS;
}

CUresult charge_grow(struct charge *charge, uint64_t bytes)
{
    if (charge->device < 0 || bytes <= charge->bytes)
        return CUDA_SUCCESS;
    struct charge more;
    CUresult result = charge_reserve(&more, charge->device, charge->kind, bytes - charge->bytes);
    if (result == CUDA_SUCCESS)
        charge->bytes = bytes;
    return result;
}

static void give_back(const struct charge *charge)
{
    struct ledger ledger = region_ledger((uint32_t)charge->device);
    ledger_release(&ledger, region_slot(), charge->bytes);
    count(charge, -(int64_t)charge->bytes);
}

void charge_cancel(const struct charge *charge)
{
    if (charge->device >= 0)
        give_back(charge);
}

static void give_back(const struct charge *charge);

/* Puts an entry into the map. What stood at that address was freed in a way nobody told us. */
static void keep(const struct allocation *allocation)
{
    struct allocation displaced = {0};
    if (!allocation_map_insert(allocation, &displaced))
        log_line(LOG_ERROR, "out of host memory: %llu bytes stay charged until this process ends",
                 (unsigned long long)allocation->bytes);
    if (displaced.address != 0)
        give_back(&(struct charge){displaced.device, displaced.kind, displaced.bytes});
}

void charge_keep(const struct charge *charge, CUdeviceptr address)
{
    if (charge->device < 0)
        return;
    CUcontext context = NULL;
    /* Memory of pools belongs to the device and outlives contexts. */
    if (charge->kind != VGPU_KIND_ASYNC && real.cuCtxGetCurrent != NULL)
        real.cuCtxGetCurrent(&context);
    struct allocation allocation = {
        .address = address,
        .bytes = charge->bytes,
        .context = (uint64_t)(uintptr_t)context,
        .device = (uint16_t)charge->device,
        .kind = charge->kind,
    };
    keep(&allocation);
}

CUresult charge_settle(const struct charge *charge, CUresult result, const CUdeviceptr *address)
{
    if (result == CUDA_SUCCESS)
        charge_keep(charge, *address);
    else
        charge_cancel(charge);
    return result;
}

void charge_force(struct charge *charge, int device, uint16_t kind, uint64_t bytes)
{
    *charge = (struct charge){device, kind, bytes};
    if (device < 0 || !region_claim()) {
        charge->device = CHARGE_NONE;
        return;
    }
    struct ledger ledger = region_ledger((uint32_t)device);
    ledger_force(&ledger, region_slot(), bytes);
    count(charge, (int64_t)bytes);
}

bool charge_take(CUdeviceptr address, struct allocation *taken)
{
    return allocation_map_take(address, taken);
}

void charge_taken(const struct allocation *taken, bool freed)
{
    if (taken == NULL)
        return;
    struct charge charge = {taken->device, taken->kind, taken->bytes};
    if (freed)
        give_back(&charge);
    else
        keep(taken);
}

void charge_drop_context(CUcontext context)
{
    struct allocation taken;
    struct allocation_walk walk = {0};
    while (context != NULL &&
           allocation_map_take_of_context((uint64_t)(uintptr_t)context, &walk, &taken))
        charge_taken(&taken, true);
}
