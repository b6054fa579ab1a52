/* The host reads what a tenant wrote: the arbiter its files, the agent `usage` and `limits` (by the
 * same C). No answer is out of its bounds, and no tenant is given a grant outside its file. */
#include "slice_input.h"

#include <errno.h>

#include "compute/measure/utilisation.h"
#include "slice/ledger.h"
#include "tenant_files.h"

static void read_images(struct slice_input *slice)
{
    struct vgpu_limits_copy head;
    struct vgpu_device_limit devices[VGPU_MAX_DEVICES];
    const struct vgpu_usage_header *usage = slice->usage;
    if (limits_check_header(slice->limits, slice->limits_bytes) == 0 &&
        limits_read(slice->limits, &head, devices, 2) == 0)
        HOLDS(head.device_count <= 2);
    if (usage_check_header(slice->usage, slice->usage_bytes) != 0)
        return;
    for (uint32_t device = 0; device < usage->device_capacity; device++) {
        struct utilisation_window window = utilisation_window(slice->usage, device, NOW_NS);
        HOLDS(utilisation_of_container(slice->usage, device, &window) <= 100);
        for (uint32_t slot = 0; slot < SLICE_USED_SLOTS; slot++) {
            struct vgpu_usage_slot_device *row = usage_slot_device(slice->usage, slot, device);
            HOLDS(utilisation_of_slot(slice->usage, slot, device, &window) <= 100);
            for (uint32_t kind = 0; kind < VGPU_KIND_COUNT; kind++)
                usage_kind_bytes(row, kind);
        }
    }
}

/* What the arbiter does with files that it has taken. */
static void serve(struct tenant_files *files, struct input *input)
{
    struct vgpu_usage_device usage;
    struct vgpu_grant grant = {.start_ns = 1, .mode = VGPU_GRANT_WINDOWS};
    HOLDS(truncate("usage", (off_t)(take(input, 1) * 16)) == 0);
    tenant_files_read(files, &usage);
    tenant_files_drain(files);
    tenant_files_is_off(files);
    tenant_files_weight(files);
    HOLDS((unsigned char *)(files->grant + 1) <=
          (unsigned char *)files->limits + files->limits_bytes);
    tenant_files_publish(files, &grant);
    tenant_files_beat(files, NOW_NS);
    tenant_files_close(files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    uint64_t kinds = take(&input, 1), ring = take(&input, 1), ring_bytes = 1;
    struct input rest = input;
    struct tenant_files files;
    slice_folder();
    struct slice_input slice = slice_make(&input);
    slice_lay("limits", slice.limits, &slice.limits_bytes, kinds);
    slice_lay("usage", slice.usage, &slice.usage_bytes, kinds >> 4);
    slice_lay("ring", "", &ring_bytes, ring & 128 ? 3 : ring);
    int limits_fd = open("limits", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    int usage_fd = open("usage", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int ring_fd = open("ring", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int error = tenant_files_open(&files, limits_fd, usage_fd, ring_fd, (uint32_t)ring & 3);
    HOLDS(error == 0 || error == -EINVAL || error == -EPROTO || error == -ENODEV ||
          error == -EBADF);
    if (error == 0) {
        serve(&files, &rest);
    } else {
        close(usage_fd);
        close(ring_fd);
    }
    close(limits_fd);
    read_images(&slice);
    slice_free(&slice);
    return 0;
}
