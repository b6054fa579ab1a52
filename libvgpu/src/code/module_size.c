#include "code/module_size.h"

#include <string.h>

#include "code/image_file.h"
#include "hooks/real.h"

/* The driver takes memory from the GPU in pieces of this size: less code than that cannot be seen
 * by measuring, and is not worth the time. */
#define PIECE_BYTES (2ull << 20)
#define MOST_DEVICES 64

static uint32_t architecture_of(CUdevice device)
{
    int major = 0, minor = 0;
    if (real.cuDeviceGetAttribute == NULL ||
        real.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
            CUDA_SUCCESS ||
        real.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
            CUDA_SUCCESS)
        return 0;
    return (uint32_t)(major * 10 + minor);
}

/* The most it takes on any GPU. */
static struct image_size size_on_devices(const struct image_view *view)
{
    struct image_size size = {0};
    uint32_t seen[MOST_DEVICES];
    int seen_count = 0, device_count = 0;
    if (real.cuDeviceGetCount == NULL || real.cuDeviceGetCount(&device_count) != CUDA_SUCCESS)
        return size;
    for (CUdevice device = 0; device < device_count && device < MOST_DEVICES; device++) {
        uint32_t architecture = architecture_of(device);
        int known = 0;
        while (known < seen_count && seen[known] != architecture)
            known++;
        if (known < seen_count)
            continue;
        seen[seen_count++] = architecture;
        struct image_size own = image_size(view, architecture);
        image_size_raise(&size, &own);
    }
    return size;
}

static struct image_size size_on(const struct image_view *view, enum module_target target)
{
    CUdevice device;
    if (target == MODULE_ANY_DEVICE)
        return size_on_devices(view);
    if (real.cuCtxGetDevice == NULL || real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return (struct image_size){0};
    return image_size(view, architecture_of(device));
}

struct image_size module_size_of_image(const void *image, enum module_target target)
{
    if (image == NULL)
        return (struct image_size){0};
    struct image_view view = image_view_unbounded(image);
    return size_on(&view, target);
}

struct image_size module_size_of_file(const char *path, enum module_target target)
{
    struct image_view view;
    if (path == NULL)
        return (struct image_size){0};
    if (!image_file_read(path, &view))
        return (struct image_size){.is_unknown = true};
    struct image_size size = size_on(&view, target);
    image_file_free(&view);
    return size;
}

bool module_size_matters(const struct image_size *size)
{
    return size->variable_bytes > 0 || size->is_unknown || size->code_bytes >= PIECE_BYTES;
}

uint64_t module_size_reserved(const struct image_size *size)
{
    return size->is_unknown && size->variable_bytes < size->image_bytes ? size->image_bytes
                                                                        : size->variable_bytes;
}

void module_load_begin(struct module_load *load)
{
    load->cost = (struct load_cost){.source = LOAD_COST_NONE};
    if (load->charge.device >= 0 && (load->size.is_unknown || load->size.code_bytes >= PIECE_BYTES))
        load_cost_begin(&load->cost, (uint32_t)load->charge.device, load->size.is_unknown);
}

bool module_load_end(struct module_load *load)
{
    load->measured_bytes = 0;
    if (!load_cost_end(&load->cost, load->size.is_unknown, &load->measured_bytes))
        return true;
    uint64_t bytes = load->measured_bytes;
    /* What was read is a bound already, and what others free would hide a part from a guess. */
    uint64_t least = load->size.is_unknown && load->cost.source == LOAD_COST_OWN
                         ? load->size.variable_bytes
                         : load->charge.bytes;
    return charge_resize(&load->charge, bytes > least ? bytes : least) == CUDA_SUCCESS;
}
