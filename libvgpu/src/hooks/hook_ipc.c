/* Hooks of memory that goes from process to process: CUDA IPC, and allocations of shared pools.
 * Physical memory of cuMemCreate is in hook_vmm_export.c; shared_memory.h tells how a piece is
 * charged only once. */
#include "hooks/hook_ipc.h"

#include "driver/capture.h"
#include "hooks/hook.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/charge.h"
#include "memory/ledger/piece.h"
#include "memory/pools/pool.h"
#include "memory/shared/shared_memory.h"
#include "slice/devices.h"
#include "slice/locks.h"
#include "slice/region.h"
#include "vgpu/contract.h"

/* Opening and closing change how often a pointer is open: one at a time. */
static pthread_mutex_t opens_lock = PTHREAD_MUTEX_INITIALIZER;

void ipc_after_fork(void)
{
    lock_reset(&opens_lock);
}

/* Moves what the allocation at `address` was charged to a slot that others can join. */
static void export_piece(CUdeviceptr address, const void *handle, size_t handle_bytes)
{
    struct allocation found;
    if (!allocation_map_take(SPACE_ADDRESS, address, &found))
        return;
    struct pool *parent = pool_owning(found.owner);
    if (found.owner == NULL || parent != NULL) { /* else it is shared already */
        uint64_t bytes = parent != NULL ? charge_rounded(found.bytes) : found.bytes;
        struct charge charge = {.device = found.device, .kind = found.kind, .bytes = bytes};
        struct charge_owner *owner =
            shared_memory_export(&charge, shared_memory_key_of_bytes(handle, handle_bytes), parent);
        if (owner != NULL && parent != NULL)
            pool_hand_over(parent, bytes);
        else if (owner != NULL)
            charge_cancel(&charge);
        if (owner != NULL)
            found.owner = owner;
    }
    charge_taken(&found, false);
}

VGPU_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    NEEDS(cuIpcGetMemHandle);
    ALONE_WITHOUT(handle, cuIpcGetMemHandle(handle, address));
    CUdeviceptr base;
    size_t bytes;
    CUresult result = real.cuIpcGetMemHandle(handle, address);
    if (result == CUDA_SUCCESS && region_open() == REGION_MAPPED &&
        real.cuMemGetAddressRange_v2(&base, &bytes, address) == CUDA_SUCCESS)
        export_piece(base, handle, sizeof *handle);
    return result;
}

VGPU_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *exported, CUdeviceptr address)
{
    NEEDS(cuMemPoolExportPointer);
    ALONE_WITHOUT(exported, cuMemPoolExportPointer(exported, address));
    CUresult result = real.cuMemPoolExportPointer(exported, address);
    if (result == CUDA_SUCCESS && region_open() == REGION_MAPPED)
        export_piece(address, exported, sizeof *exported);
    return result;
}

/* What an import is charged to: the piece, if it was exported in this container. */
struct import {
    struct charge charge;
    struct charge_owner *owner;
};

static struct import import_begin(const void *handle, size_t handle_bytes)
{
    struct import import = {.charge = {.device = CHARGE_NONE, .kind = VGPU_KIND_OTHER}};
    if (region_open() == REGION_MAPPED && handle != NULL)
        import.owner =
            shared_memory_join(shared_memory_key_of_bytes(handle, handle_bytes), &import.charge);
    return import;
}

static void import_give_up(const struct import *import)
{
    if (import->owner != NULL)
        import->owner->release(import->owner, NULL);
}

/* After the driver opened it: charges what was not matched. CUDA_SUCCESS, or the refusal. */
static CUresult import_charge(struct import *import, CUdeviceptr address)
{
    CUdeviceptr base;
    size_t bytes = 0;
    if (region_open() == REGION_NONE || import->owner != NULL)
        return CUDA_SUCCESS;
    if (real.cuMemGetAddressRange_v2(&base, &bytes, address) != CUDA_SUCCESS)
        bytes = 0;
    int device = devices_of_pointer(address);
    return charge_reserve(&import->charge, device == DEVICE_UNKNOWN ? 0 : device, VGPU_KIND_OTHER,
                          charge_rounded(bytes));
}

static void import_keep(const struct import *import, CUdeviceptr address, CUcontext context)
{
    struct allocation allocation = {.address = address,
                                    .bytes = import->charge.bytes,
                                    .context = charge_context(context),
                                    .owner = import->owner,
                                    .device = (uint16_t)import->charge.device,
                                    .kind = VGPU_KIND_OTHER,
                                    .space = SPACE_ADDRESS};
    if (import->charge.device >= 0)
        charge_taken(&allocation, false);
}

/* The same handle opened again in the same context gives the same pointer. */
static bool open_again(CUdeviceptr address)
{
    struct allocation found;
    if (!allocation_map_take(SPACE_ADDRESS, address, &found))
        return false;
    found.opens++;
    charge_taken(&found, false);
    return true;
}

static CUresult opened(struct import *import, CUdeviceptr address)
{
    CUcontext context = NULL;
    if (open_again(address)) {
        import_give_up(import);
        return CUDA_SUCCESS;
    }
    CUresult result = import_charge(import, address);
    if (result != CUDA_SUCCESS) {
        struct capture_pause pause = capture_pause();
        real.cuIpcCloseMemHandle(address);
        capture_resume(pause);
        return result;
    }
    real.cuCtxGetCurrent(&context);
    import_keep(import, address, context);
    return CUDA_SUCCESS;
}

#define OPEN_HANDLE(symbol) \
    VGPU_EXPORT CUresult symbol(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags) \
    { \
        NEEDS(symbol); \
        ALONE_WITHOUT(address, symbol(address, handle, flags)); \
        reconcile_quiet(); \
        lock_take(&opens_lock, LOCK_OPENS); \
        struct import import = import_begin(&handle, sizeof handle); \
        CUresult result = real.symbol(address, handle, flags); \
        if (result == CUDA_SUCCESS) \
            result = opened(&import, *address); \
        else \
            import_give_up(&import); \
        lock_give_back(&opens_lock); \
        return result; \
    }

OPEN_HANDLE(cuIpcOpenMemHandle)
OPEN_HANDLE(cuIpcOpenMemHandle_v2)

VGPU_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    NEEDS(cuIpcCloseMemHandle);
    struct allocation found;
    lock_take(&opens_lock, LOCK_OPENS);
    bool known = allocation_map_take(SPACE_ADDRESS, address, &found);
    CUresult result = real.cuIpcCloseMemHandle(address);
    if (known) {
        bool last = result == CUDA_SUCCESS && found.opens == 0;
        if (result == CUDA_SUCCESS && !last)
            found.opens--;
        charge_taken(&found, last);
    }
    lock_give_back(&opens_lock);
    return result;
}

VGPU_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool,
                                            CUmemPoolPtrExportData *exported)
{
    NEEDS(cuMemPoolImportPointer);
    ALONE_WITHOUT(address, cuMemPoolImportPointer(address, pool, exported));
    struct import import = import_begin(exported, sizeof *exported);
    CUresult result = real.cuMemPoolImportPointer(address, pool, exported);
    if (result != CUDA_SUCCESS) {
        import_give_up(&import);
        return result;
    }
    result = import_charge(&import, *address);
    if (result == CUDA_SUCCESS)
        import_keep(&import, *address, NULL);
    else
        piece_give_back(*address);
    return result;
}
