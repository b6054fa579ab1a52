#include "slice/usage_file.h"

#include <errno.h>
#include <string.h>

static uint32_t slot_stride_for(uint32_t device_capacity)
{
    return (uint32_t)sizeof(struct vgpu_usage_slot) +
           device_capacity * (uint32_t)sizeof(struct vgpu_usage_slot_device);
}

uint64_t usage_file_bytes(uint32_t device_capacity)
{
    if (device_capacity == 0 || device_capacity > VGPU_MAX_DEVICES)
        return 0;
    return sizeof(struct vgpu_usage_header) + device_capacity * sizeof(struct vgpu_usage_device) +
           (uint64_t)VGPU_SLOT_COUNT * slot_stride_for(device_capacity);
}

void usage_format(void *file, uint32_t device_capacity, const char *allocation_id)
{
    struct vgpu_usage_header *header = file;
    header->layout_version = VGPU_LAYOUT_VERSION;
    header->header_bytes = sizeof *header;
    header->file_bytes = usage_file_bytes(device_capacity);
    header->device_capacity = device_capacity;
    header->slot_count = VGPU_SLOT_COUNT;
    header->device_offset = sizeof *header;
    header->device_stride = sizeof(struct vgpu_usage_device);
    header->slot_offset = header->device_offset + device_capacity * header->device_stride;
    header->slot_stride = slot_stride_for(device_capacity);
    header->slot_device_offset = sizeof(struct vgpu_usage_slot);
    header->slot_device_stride = sizeof(struct vgpu_usage_slot_device);
    strncpy(header->allocation_id, allocation_id, sizeof header->allocation_id - 1);
    __atomic_store_n(&header->magic, VGPU_USAGE_MAGIC, __ATOMIC_RELEASE);
}

int usage_check_header(const void *file, uint64_t file_bytes)
{
    const struct vgpu_usage_header *header = file;
    if (file_bytes < sizeof *header || header->magic != VGPU_USAGE_MAGIC)
        return -EINVAL;
    if (header->layout_version < VGPU_OLDEST_LAYOUT_VERSION ||
        header->layout_version > VGPU_LAYOUT_VERSION)
        return -EPROTO;
    uint32_t capacity = header->device_capacity;
    uint64_t expected = usage_file_bytes(capacity);
    if (expected == 0 || expected != file_bytes || header->file_bytes != file_bytes ||
        header->slot_count != VGPU_SLOT_COUNT || header->device_offset != sizeof *header ||
        header->device_stride != sizeof(struct vgpu_usage_device) ||
        header->slot_offset != sizeof *header + capacity * sizeof(struct vgpu_usage_device) ||
        header->slot_stride != slot_stride_for(capacity) ||
        header->slot_device_offset != sizeof(struct vgpu_usage_slot) ||
        header->slot_device_stride != sizeof(struct vgpu_usage_slot_device))
        return -EINVAL;
    return 0;
}

struct vgpu_usage_device *usage_device(void *file, uint32_t device)
{
    const struct vgpu_usage_header *header = file;
    size_t at = header->device_offset + (size_t)device * sizeof(struct vgpu_usage_device);
    return (struct vgpu_usage_device *)((unsigned char *)file + at);
}

struct vgpu_usage_slot *usage_slot(void *file, uint32_t slot)
{
    const struct vgpu_usage_header *header = file;
    size_t at = header->slot_offset + (size_t)slot * header->slot_stride;
    return (struct vgpu_usage_slot *)((unsigned char *)file + at);
}

struct vgpu_usage_slot_device *usage_slot_device(void *file, uint32_t slot, uint32_t device)
{
    unsigned char *at = (unsigned char *)usage_slot(file, slot) + sizeof(struct vgpu_usage_slot);
    return (struct vgpu_usage_slot_device *)at + device;
}

void usage_count_kind(struct vgpu_usage_slot_device *row, uint32_t kind, int64_t bytes)
{
    if (kind != VGPU_KIND_PLAIN)
        __atomic_fetch_add(&row->kind_bytes[kind], (uint64_t)bytes, __ATOMIC_RELAXED);
}

uint64_t usage_kind_bytes(const struct vgpu_usage_slot_device *row, uint32_t kind)
{
    if (kind != VGPU_KIND_PLAIN)
        return __atomic_load_n(&row->kind_bytes[kind], __ATOMIC_RELAXED);
    uint64_t rest = __atomic_load_n(&row->bytes, __ATOMIC_ACQUIRE);
    for (uint32_t other = VGPU_KIND_PLAIN + 1; other < VGPU_KIND_COUNT; other++) {
        uint64_t bytes = usage_kind_bytes(row, other);
        rest = bytes < rest ? rest - bytes : 0;
    }
    return rest;
}
