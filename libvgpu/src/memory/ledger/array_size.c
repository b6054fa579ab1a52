/* Arrays lie in blocks: 64 bytes by 8 rows, of which up to 16 stand on each other and, in an array
 * with depth, up to 32 behind each other, so that every extent is padded to whole blocks. The
 * driver takes smaller blocks where the array is small; the bound takes the smallest that covers
 * an extent, as it does. Each level is padded on its own, and each has all layers and faces. */
#include "memory/ledger/array_size.h"

#include <stdbool.h>
#include <stddef.h>

#define BLOCK_WIDTH_BYTES 64
#define BLOCK_ROWS 8
#define MOST_BLOCK_ROWS 128
#define MOST_BLOCK_SLICES 32
#define ALLOCATION_BYTES 512
#define MOST_CHANNELS 4
#define MOST_ELEMENT_BYTES 16 /* four channels of 32 bits: no format has more */
#define MOST_LEVELS 64

static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t round_up(uint64_t value, uint64_t step)
{
    uint64_t above = add(value, step - 1);
    return above == UINT64_MAX ? UINT64_MAX : above / step * step;
}

/* Rounds up to the block that covers `extent`: a power of two from `least` to `most`. */
static uint64_t pad(uint64_t extent, uint64_t least, uint64_t most)
{
    uint64_t block = least;
    while (block < extent && block < most)
        block *= 2;
    return round_up(extent, block);
}

/* Formats that are not named here (normalised, compressed, planar) have no larger elements. */
static uint64_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *form)
{
    uint64_t channels = form->NumChannels == 0              ? 1
                        : form->NumChannels > MOST_CHANNELS ? MOST_CHANNELS
                                                            : form->NumChannels;
    switch ((int)form->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * channels;
    default:
        return MOST_ELEMENT_BYTES;
    }
}

static uint64_t halved(uint64_t extent, unsigned int level)
{
    uint64_t smaller = level < 64 ? extent >> level : 0;
    return smaller > 0 ? smaller : 1; /* an extent of 0 counts once, too */
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int level)
{
    bool is_layered = form->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    uint64_t width_bytes = multiply(halved(form->Width, level), element_bytes(form));
    uint64_t rows = pad(halved(form->Height, level), BLOCK_ROWS, MOST_BLOCK_ROWS);
    uint64_t slices = is_layered || form->Depth == 0
                          ? halved(form->Depth, 0)
                          : pad(halved(form->Depth, level), 1, MOST_BLOCK_SLICES);
    return multiply(multiply(round_up(width_bytes, BLOCK_WIDTH_BYTES), rows), slices);
}

/* More levels than halve the largest extent to one element the driver does not make. */
static unsigned int level_count(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int levels)
{
    size_t largest = form->Width > form->Height ? form->Width : form->Height;
    if (form->Depth > largest)
        largest = form->Depth;
    unsigned int most = 1;
    while (most < MOST_LEVELS && largest >> most > 0)
        most++;
    return levels < 1 ? 1 : levels > most ? most : levels;
}

uint64_t array_size_bound(const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int levels)
{
    uint64_t bytes = 0;
    unsigned int count = level_count(form, levels);
    for (unsigned int level = 0; level < count; level++)
        bytes = add(bytes, level_bytes(form, level));
    return round_up(bytes, ALLOCATION_BYTES);
}
