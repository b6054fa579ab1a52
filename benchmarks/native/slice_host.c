/*
 * What a host does of a slice, for a Python that has no cffi: plain values in, plain values out.
 *
 * A shared library over the C of the shim and of the arbiter themselves; slices.py loads it. The
 * arbiter's own functions take plain values already and are exported as they are.
 */
#include <errno.h>
#include <string.h>

#include "slice/ledger.h"
#include "slice/limits_file.h"
#include "slice/usage_file.h"

/* One device's limits; slices.py has the same fields in the same order. */
struct slice_limits {
    const char *allocation_id;
    const char *uuid;
    uint64_t memory_limit_bytes;
    uint64_t context_bytes;
    uint32_t core_percent;
    uint32_t compute_mode;
    uint32_t weight;
};

uint32_t slice_usage_head_bytes(void)
{
    return sizeof(struct vgpu_usage_header);
}

/* Writes all of `limits`, and how `usage` begins, into zeroed images of limits_file_bytes(1) and
 * slice_usage_head_bytes(). Returns 0, or -EINVAL for a name that is too long. */
int slice_contents(void *limits_image, void *usage_head, const struct slice_limits *limits)
{
    struct vgpu_limits_copy head = {.device_count = 1, .family = VGPU_FAMILY_VGPU};
    struct vgpu_device_limit device = {
        .memory_limit_bytes = limits->memory_limit_bytes,
        .physical_bytes = limits->memory_limit_bytes,
        .context_bytes = limits->context_bytes,
        .core_percent = limits->core_percent,
        .compute_mode = limits->compute_mode,
        .weight = limits->weight,
    };
    if (strlen(limits->allocation_id) >= sizeof head.allocation_id ||
        strlen(limits->uuid) >= sizeof device.uuid)
        return -EINVAL;
    strcpy(head.allocation_id, limits->allocation_id);
    strcpy(device.uuid, limits->uuid);
    limits_format(limits_image, 1);
    usage_format(usage_head, 1, limits->allocation_id);
    return limits_publish(limits_image, &head, &device);
}

/* Returns what the ledger in a copy of a whole `usage` says is held on the first device, or a
 * negative errno for a file that is damaged. */
int64_t slice_used_bytes(void *usage, uint64_t usage_bytes)
{
    int problem = usage_check_header(usage, usage_bytes);
    if (problem != 0)
        return problem;
    return (int64_t)(usage_device(usage, 0)->total_low & LEDGER_MAX_BYTES);
}
