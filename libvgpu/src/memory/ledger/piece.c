#include "memory/ledger/piece.h"

#include <stddef.h>

#include "driver/capture.h"
#include "driver/real.h"
#include "memory/ledger/block.h"
#include "memory/ledger/slabs.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    uint64_t above;
    return __builtin_add_overflow(bytes, step - 1, &above) ? UINT64_MAX : above / step * step;
}

/* Managed memory lies apart. */
static bool shares_slabs(uint16_t kind, uint64_t bytes, uint64_t block_bytes)
{
    return kind != VGPU_KIND_MANAGED && block_bytes > BLOCK_STEP_BYTES && bytes > 0 &&
           bytes <= block_bytes / 2;
}

/* Says in *piece what is to be reserved, with nothing charged yet; on no device where the slice does not
 * name the current one, or this process can be charged nothing. */
static CUresult plan_current(struct piece *piece, uint16_t kind, uint64_t bytes)
{
    int device = DEVICE_UNKNOWN;
    CUresult result = region_open() != REGION_NONE ? devices_ask_current(&device) : CUDA_SUCCESS;
    *piece = (struct piece){.charge = {.device = CHARGE_NONE, .kind = kind}};
    if (device == DEVICE_UNKNOWN)
        return result;
    uint64_t block_bytes = BLOCK_STEP_BYTES;
    if (device >= 0 && region_claim()) {
        piece->charge.device = device;
        block_bytes = block_bytes_of((uint32_t)device);
    }
    piece->charge.bytes = round_up(bytes, block_bytes);
    piece->bytes = charge_rounded(bytes);
    piece->block_bytes = shares_slabs(kind, bytes, block_bytes) ? block_bytes : 0;
    return result;
}

/* Nobody answers for what is planned on no device. */
static bool is_charged(const struct piece *piece)
{
    return piece->charge.device != CHARGE_NONE || piece->bytes != 0;
}

static inline bool try_planned(void *what)
{
    struct piece *piece = what;
    return piece->charge.device != CHARGE_NONE && charge_try_claimed(&piece->charge);
}

CUresult piece_reserve_current(struct piece *piece, uint16_t kind, uint64_t bytes)
{
    CUresult result = plan_current(piece, kind, bytes);
    if (result != CUDA_SUCCESS || !is_charged(piece) ||
        charge_attempt(piece->charge.device, try_planned, piece))
        return result;
    if (piece->block_bytes == 0 ||
        !slabs_have_room(piece->charge.device, piece->bytes, piece->block_bytes))
        return charge_refuse(&piece->charge);
    piece->charge.bytes = 0; /* a slab that is charged has room */
    return CUDA_SUCCESS;
}

CUresult piece_try_current(struct piece *piece, uint16_t kind, uint64_t bytes, bool *fits)
{
    CUresult result = plan_current(piece, kind, bytes);
    *fits = result == CUDA_SUCCESS && (!is_charged(piece) || try_planned(piece));
    return result;
}

CUresult piece_resize(struct piece *piece, uint64_t bytes)
{
    if (piece->charge.device < 0 || charge_rounded(bytes) == piece->bytes)
        return CUDA_SUCCESS;
    uint64_t block_bytes = block_bytes_of((uint32_t)piece->charge.device);
    bool is_small = shares_slabs(piece->charge.kind, bytes, block_bytes);
    piece->bytes = charge_rounded(bytes);
    piece->block_bytes = is_small ? block_bytes : 0;
    return is_small && piece->charge.bytes == 0
               ? CUDA_SUCCESS
               : charge_resize(&piece->charge, round_up(bytes, block_bytes));
}

void piece_give_back(CUdeviceptr address)
{
    struct capture_pause pause = capture_pause();
    real.cuMemFree_v2(address);
    capture_resume(pause);
}

static CUresult undo(const struct piece *piece, struct charge_owner *owner, CUdeviceptr address)
{
    struct allocation allocation = {.bytes = piece->bytes};
    piece_give_back(address);
    owner->release(owner, &allocation);
    return charge_refuse(&(struct charge){.device = piece->charge.device,
                                          .kind = piece->charge.kind,
                                          .bytes = piece->block_bytes,
                                          .refusal = piece->charge.refusal});
}

static CUresult settle_small(const struct piece *piece, CUdeviceptr address)
{
    struct charge slab = piece->charge;
    struct charge part = {
        .device = piece->charge.device, .kind = piece->charge.kind, .bytes = piece->bytes};
    bool is_new;
    struct charge_owner *owner =
        slabs_join(address, piece->bytes, piece->block_bytes, &slab, &is_new);
    if (owner == NULL) { /* without a record it keeps its slab for itself */
        charge_keep(&slab, SPACE_ADDRESS, address, NULL);
        return CUDA_SUCCESS;
    }
    if (!is_new)
        charge_cancel(&slab);
    else if (slab.bytes == 0) { /* the driver opened one although another had room */
        if (!charge_try(&slab, part.device, part.kind, piece->block_bytes))
            return undo(piece, owner, address);
        slabs_pay(owner, &slab);
    }
    charge_keep(&part, SPACE_ADDRESS, address, owner);
    return CUDA_SUCCESS;
}

CUresult piece_settle(const struct piece *piece, CUresult result, CUdeviceptr address)
{
    if (result != CUDA_SUCCESS) {
        charge_cancel(&piece->charge);
        return result;
    }
    if (piece->block_bytes != 0 && piece->charge.device >= 0)
        return settle_small(piece, address);
    charge_keep(&piece->charge, SPACE_ADDRESS, address, NULL);
    return CUDA_SUCCESS;
}
