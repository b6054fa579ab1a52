/*
 * Tensor maps: how a kernel's bulk copies (TMA, from compute capability 9.0) walk over a tensor.
 * Programs pass them to kernels as 128 opaque bytes. No kernel reads them here, so they only keep
 * what they were made of, for a later change of the address; what counts is that a map that a real
 * device would not take is refused.
 */
#include <string.h>

#include "driver.h"

#define RANK_MAX 5
#define SIZE_MAX_ELEMENTS (1ull << 31)
#define STRIDE_MAX_BYTES (1ull << 40)
#define BOX_MAX_ELEMENTS 256
#define STEP_MAX 8
#define MAP_MAGIC 0x50414d54u /* TMAP as bytes */
#define TENSOR_CAPABILITY 9   /* the first major one with such copies */

struct map {
    uint32_t magic;
    uint32_t address_alignment;
    uint64_t address;
    uint64_t sizes[RANK_MAX];
    uint64_t strides_bytes[RANK_MAX - 1];
    uint8_t rank, type, interleave, swizzle, promotion, fill;
};
_Static_assert(sizeof(struct map) <= sizeof(CUtensorMap), "a map fits its opaque bytes");

struct element {
    unsigned int bytes; /* of plain types */
    bool packed, wide;  /* several to a unit; units of 16 bytes */
    bool floating;
};

static bool describe(CUtensorMapDataType type, struct element *element)
{
    static const struct element elements[] = {
        [CU_TENSOR_MAP_DATA_TYPE_UINT8] = {.bytes = 1},
        [CU_TENSOR_MAP_DATA_TYPE_UINT16] = {.bytes = 2},
        [CU_TENSOR_MAP_DATA_TYPE_UINT32] = {.bytes = 4},
        [CU_TENSOR_MAP_DATA_TYPE_INT32] = {.bytes = 4},
        [CU_TENSOR_MAP_DATA_TYPE_UINT64] = {.bytes = 8},
        [CU_TENSOR_MAP_DATA_TYPE_INT64] = {.bytes = 8},
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT16] = {.bytes = 2, .floating = true},
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT32] = {.bytes = 4, .floating = true},
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT64] = {.bytes = 8, .floating = true},
        [CU_TENSOR_MAP_DATA_TYPE_BFLOAT16] = {.bytes = 2, .floating = true},
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ] = {.bytes = 4, .floating = true},
        [CU_TENSOR_MAP_DATA_TYPE_TFLOAT32] = {.bytes = 4, .floating = true},
        [CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ] = {.bytes = 4, .floating = true},
        [CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B] = {.packed = true},
        [CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B] = {.packed = true, .wide = true},
        [CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B] = {.packed = true, .wide = true},
    };
    if ((unsigned int)type >= sizeof elements / sizeof elements[0])
        return false;
    *element = elements[type];
    return true;
}

/* The most bytes that a row of the box may have under a swizzle. */
static uint64_t swizzle_span(CUtensorMapSwizzle swizzle)
{
    return swizzle == CU_TENSOR_MAP_SWIZZLE_NONE  ? UINT64_MAX
           : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32
           : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                                                  : 128;
}

static bool modes_fit(const struct map *map, const struct element *element)
{
    bool apart = map->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
    return map->interleave <= CU_TENSOR_MAP_INTERLEAVE_32B &&
           map->swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B &&
           map->promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
           map->fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA &&
           map->rank >= (apart ? 1 : 3) && map->rank <= RANK_MAX &&
           (map->interleave != CU_TENSOR_MAP_INTERLEAVE_32B ||
            map->swizzle == CU_TENSOR_MAP_SWIZZLE_32B) &&
           (map->type != CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B || apart) &&
           (!map->fill || element->floating);
}

static bool tensor_fits(const struct map *map, const struct element *element)
{
    uint64_t unit = map->address_alignment; /* of strides, too */
    if (map->address % unit != 0)
        return false;
    for (unsigned int i = 0; i < map->rank; i++)
        if (map->sizes[i] == 0 || map->sizes[i] > SIZE_MAX_ELEMENTS)
            return false;
    for (unsigned int i = 0; i + 1 < map->rank; i++)
        if (map->strides_bytes[i] % unit != 0 || map->strides_bytes[i] >= STRIDE_MAX_BYTES)
            return false;
    return !element->packed || map->sizes[0] % (element->wide ? 128 : 2) == 0;
}

static bool box_fits(const struct map *map, const struct element *element, const cuuint32_t *box,
                     const cuuint32_t *steps)
{
    bool apart = map->interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
    for (unsigned int i = 0; i < map->rank; i++) {
        if (box[i] == 0 || box[i] > BOX_MAX_ELEMENTS)
            return false;
        if ((i > 0 || !apart) && (steps[i] == 0 || steps[i] > STEP_MAX))
            return false;
    }
    if (element->wide)
        return box[0] == 128;
    uint64_t row_bytes = element->packed ? box[0] / 2 : (uint64_t)box[0] * element->bytes;
    return !apart || (row_bytes % 16 == 0 && row_bytes <= swizzle_span(map->swizzle));
}

/* Maps belong to no context, but to a device that has such copies. */
static CUresult check_device(void)
{
    CURRENT_CONTEXT(context);
    return context->device->identity->profile.compute_major >= TENSOR_CAPABILITY
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *tensor_map, CUtensorMapDataType type, cuuint32_t rank,
                                void *address, const cuuint64_t *sizes,
                                const cuuint64_t *strides_bytes, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill)
{
    struct element element;
    CHECK(check_device());
    INVALID_IF(!tensor_map || !sizes || !box || !steps || rank == 0 || rank > RANK_MAX ||
               (rank > 1 && !strides_bytes) || !describe(type, &element) ||
               (interleave | swizzle | promotion | fill) > UINT8_MAX);
    bool aligned_32 = interleave == CU_TENSOR_MAP_INTERLEAVE_32B || element.wide;
    struct map map = {.magic = MAP_MAGIC,
                      .address_alignment = aligned_32 ? 32 : 16,
                      .address = (uint64_t)address,
                      .rank = (uint8_t)rank,
                      .type = (uint8_t)type,
                      .interleave = (uint8_t)interleave,
                      .swizzle = (uint8_t)swizzle,
                      .promotion = (uint8_t)promotion,
                      .fill = (uint8_t)fill};
    memcpy(map.sizes, sizes, rank * sizeof *sizes);
    if (rank > 1)
        memcpy(map.strides_bytes, strides_bytes, (rank - 1) * sizeof *strides_bytes);
    INVALID_IF(!modes_fit(&map, &element) || !tensor_fits(&map, &element) ||
               !box_fits(&map, &element, box, steps));
    memset(tensor_map, 0, sizeof *tensor_map);
    memcpy(tensor_map, &map, sizeof map);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapReplaceAddress(CUtensorMap *tensor_map, void *address)
{
    struct map map;
    CHECK(check_device());
    INVALID_IF(!tensor_map);
    memcpy(&map, tensor_map, sizeof map);
    INVALID_IF(map.magic != MAP_MAGIC || (uint64_t)address % map.address_alignment);
    map.address = (uint64_t)address;
    memcpy(tensor_map, &map, sizeof map);
    return CUDA_SUCCESS;
}
