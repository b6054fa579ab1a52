#include "memory/ledger/charge.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "driver/log.h"
#include "driver/real.h"
#include "slice/devices.h"
#include "slice/limits_file.h"
#include "slice/region.h"
#include "slice/usage_file.h"
#include "vgpu/contract.h"

#define MIB (1024.0 * 1024.0)
#define MOST_RECLAIMERS 4

static const char *const kind_names[VGPU_KIND_COUNT] = {
    "plain", "async", "managed", "context", "vmm", "array", "module", "other",
};

static void count(const struct charge *charge, int64_t bytes)
{
    struct vgpu_usage_slot_device *counters = region_counters((uint32_t)charge->device);
    usage_count_kind(counters, charge->kind, bytes);
    uint64_t held = __atomic_load_n(&counters->bytes, __ATOMIC_RELAXED);
    if (bytes > 0 && held > counters->peak_bytes)
        counters->peak_bytes = held; /* a race of two threads loses one sample of a statistic */
}

/* Racing first callers register the same few functions; the array only grows. */
static void (*reclaimers[MOST_RECLAIMERS])(int device);

void charge_on_shortage(void (*reclaim)(int device))
{
    for (int i = 0; i < MOST_RECLAIMERS; i++) {
        void (*expected)(int) = NULL;
        if (__atomic_compare_exchange_n(&reclaimers[i], &expected, reclaim, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            expected == reclaim)
            return;
    }
}

bool charge_attempt_again(int device, bool (*attempt)(void *what), void *what)
{
    for (int i = 0; i < MOST_RECLAIMERS; i++) {
        void (*each)(int) = __atomic_load_n(&reclaimers[i], __ATOMIC_ACQUIRE);
        if (each != NULL)
            each(device);
    }
    return attempt(what);
}

static void count_refusal(const struct charge *charge)
{
    uint64_t used_bytes = charge->refusal.used_bytes;
    uint64_t limit_bytes = charge->refusal.limit_bytes;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct vgpu_usage_slot_device *counters = region_counters((uint32_t)charge->device);
    counters->refused_asked_bytes = charge->bytes;
    counters->refused_used_bytes = used_bytes;
    counters->refused_limit_bytes = limit_bytes;
    counters->refused_kind = charge->kind;
    counters->refused_at_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    region_add(&counters->refused_count, 1);
    log_line(LOG_WARN,
             "out of memory: %.2f MiB (%s) asked on %s, %.2f of the slice's %.2f MiB in use; the "
             "limit is set by %s",
             (double)charge->bytes / MIB, kind_names[charge->kind],
             limits_device(region_limits(), (uint32_t)charge->device)->uuid,
             (double)used_bytes / MIB, (double)limit_bytes / MIB, region_owner());
}

bool charge_try_claimed(struct charge *charge)
{
    struct ledger ledger = region_ledger((uint32_t)charge->device);
    if (ledger_reserve(&ledger, region_slot(), charge->bytes, &charge->refusal) != 0)
        return false;
    count(charge, (int64_t)charge->bytes);
    return true;
}

bool charge_try(struct charge *charge, int device, uint16_t kind, uint64_t bytes)
{
    *charge = (struct charge){.device = device, .kind = kind, .bytes = bytes};
    if (region_open() == REGION_NONE) {
        charge->device = CHARGE_NONE;
        return true;
    }
    /* a GPU that the slice does not name has limit 0 */
    return device >= 0 && region_claim() && charge_try_claimed(charge);
}

CUresult charge_refuse(const struct charge *charge)
{
    if (charge->device >= 0 && region_claim())
        count_refusal(charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool attempt_reserve(void *what)
{
    struct charge *charge = what;
    return charge_try(charge, charge->device, charge->kind, charge->bytes);
}

CUresult charge_reserve(struct charge *charge, int device, uint16_t kind, uint64_t bytes)
{
    *charge = (struct charge){.device = device, .kind = kind, .bytes = bytes};
    return charge_attempt(device, attempt_reserve, charge) ? CUDA_SUCCESS : charge_refuse(charge);
}

/* `device` as devices.h gives it. */
static CUresult reserve_found(struct charge *charge, int device, uint16_t kind, uint64_t bytes)
{
    if (device != DEVICE_UNKNOWN)
        return charge_reserve(charge, device, kind, bytes);
    *charge = (struct charge){.device = CHARGE_NONE, .kind = kind, .bytes = bytes};
    return CUDA_SUCCESS;
}

CUresult charge_reserve_current(struct charge *charge, uint16_t kind, uint64_t bytes)
{
    int device = DEVICE_UNKNOWN;
    CUresult result = region_open() != REGION_NONE ? devices_ask_current(&device) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? reserve_found(charge, device, kind, bytes) : result;
}

static void give_back(const struct charge *charge)
{
    struct ledger ledger = region_ledger((uint32_t)charge->device);
    ledger_release(&ledger, region_slot(), charge->bytes);
    count(charge, -(int64_t)charge->bytes);
}

CUresult charge_resize(struct charge *charge, uint64_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    struct charge difference = {.device = charge->device, .kind = charge->kind};
    if (charge->device < 0 || bytes == charge->bytes)
        return CUDA_SUCCESS;
    if (bytes > charge->bytes) {
        result = charge_reserve(&difference, charge->device, charge->kind, bytes - charge->bytes);
    } else {
        difference.bytes = charge->bytes - bytes;
        give_back(&difference);
    }
    if (result == CUDA_SUCCESS)
        charge->bytes = bytes;
    return result;
}

void charge_cancel(const struct charge *charge)
{
    if (charge->device >= 0 && charge->bytes > 0)
        give_back(charge);
}

void charge_force(struct charge *charge, int device, uint16_t kind, uint64_t bytes)
{
    *charge = (struct charge){.device = device, .kind = kind, .bytes = bytes};
    if (device < 0 || !region_claim()) {
        charge->device = CHARGE_NONE;
        return;
    }
    struct ledger ledger = region_ledger((uint32_t)device);
    ledger_force(&ledger, region_slot(), bytes);
    count(charge, (int64_t)bytes);
}

/* ---- charges that live as long as a handle ---- */

/* Of an allocation that stands in no map. */
static void end(const struct allocation *allocation)
{
    struct charge_owner *owner = allocation->owner;
    if (owner != NULL)
        owner->release(owner, allocation);
    else
        charge_cancel(&(struct charge){
            .device = allocation->device, .kind = allocation->kind, .bytes = allocation->bytes});
}

/* Puts an entry into the map. What stood at that address was freed in a way nobody told us. */
static void keep(const struct allocation *allocation)
{
    struct allocation displaced = {0};
    if (!allocation_map_insert(allocation, &displaced))
        log_line(LOG_ERROR, "out of host memory: %llu bytes stay charged until this process ends",
                 (unsigned long long)allocation->bytes);
    if (displaced.address != 0)
        end(&displaced);
}

void charge_keep_lasting(const struct charge *charge, enum allocation_space space, uint64_t handle,
                         struct charge_owner *owner)
{
    if (charge->device < 0)
        return;
    struct allocation allocation = {.address = handle,
                                    .bytes = charge->bytes,
                                    .owner = owner,
                                    .device = (uint16_t)charge->device,
                                    .kind = charge->kind,
                                    .space = space};
    keep(&allocation);
}

void charge_keep(const struct charge *charge, enum allocation_space space, uint64_t handle,
                 struct charge_owner *owner)
{
    if (charge->device < 0)
        return;
    CUcontext context = NULL;
    if (real.cuCtxGetCurrent != NULL)
        real.cuCtxGetCurrent(&context);
    struct allocation allocation = {.address = handle,
                                    .bytes = charge->bytes,
                                    .context = charge_context(context),
                                    .owner = owner,
                                    .device = (uint16_t)charge->device,
                                    .kind = charge->kind,
                                    .space = space};
    keep(&allocation);
}

CUresult charge_settle(const struct charge *charge, CUresult result, enum allocation_space space,
                       const void *handle)
{
    uint64_t made;
    if (result != CUDA_SUCCESS) {
        charge_cancel(charge);
        return result;
    }
    memcpy(&made, handle, sizeof made);
    charge_keep(charge, space, made, NULL);
    return result;
}

void charge_taken(const struct allocation *taken, bool ended)
{
    if (ended)
        end(taken);
    else
        keep(taken);
}

void charge_drop_context(CUcontext context)
{
    struct allocation taken;
    struct allocation_walk walk = {0};
    while (context != NULL &&
           allocation_map_take_of_context(charge_context(context), &walk, &taken))
        end(&taken);
}
