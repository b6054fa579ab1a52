#include "slice/limits_file.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "slice/checksum.h"

#define READ_TRIES 64

static uint32_t copy_bytes_for(uint32_t device_capacity)
{
    return (uint32_t)sizeof(struct vgpu_limits_copy) +
           device_capacity * (uint32_t)sizeof(struct vgpu_device_limit);
}

uint64_t limits_file_bytes(uint32_t device_capacity)
{
    if (device_capacity == 0 || device_capacity > VGPU_MAX_DEVICES)
        return 0;
    return sizeof(struct vgpu_limits_header) + device_capacity * sizeof(struct vgpu_grant) +
           2u * copy_bytes_for(device_capacity);
}

void limits_format(void *file, uint32_t device_capacity)
{
    struct vgpu_limits_header *header = file;
    header->layout_version = VGPU_LAYOUT_VERSION;
    header->header_bytes = sizeof *header;
    header->file_bytes = limits_file_bytes(device_capacity);
    header->device_capacity = device_capacity;
    header->copy_bytes = copy_bytes_for(device_capacity);
    header->grant_offset = sizeof *header;
    header->grant_stride = sizeof(struct vgpu_grant);
    header->copy_offset[0] = header->grant_offset + device_capacity * header->grant_stride;
    header->copy_offset[1] = header->copy_offset[0] + header->copy_bytes;
    __atomic_store_n(&header->magic, VGPU_LIMITS_MAGIC, __ATOMIC_RELEASE);
}

int limits_check_header(const void *file, uint64_t file_bytes)
{
    const struct vgpu_limits_header *header = file;
    if (file_bytes < sizeof *header || header->magic != VGPU_LIMITS_MAGIC)
        return -EINVAL;
    if (header->layout_version < VGPU_OLDEST_LAYOUT_VERSION ||
        header->layout_version > VGPU_LAYOUT_VERSION)
        return -EPROTO;
    uint32_t capacity = header->device_capacity;
    uint64_t expected = limits_file_bytes(capacity);
    if (expected == 0 || expected != file_bytes || header->file_bytes != file_bytes ||
        header->copy_bytes != copy_bytes_for(capacity) || header->grant_offset != sizeof *header ||
        header->grant_stride != sizeof(struct vgpu_grant) ||
        header->copy_offset[0] != sizeof *header + capacity * sizeof(struct vgpu_grant) ||
        header->copy_offset[1] != header->copy_offset[0] + header->copy_bytes)
        return -EINVAL;
    return 0;
}

static unsigned char *copy_at(const void *file, uint64_t generation)
{
    const struct vgpu_limits_header *header = file;
    return (unsigned char *)file + header->copy_offset[generation & 1];
}

static uint64_t copy_checksum(const unsigned char *copy, uint32_t copy_bytes)
{
    size_t skip = offsetof(struct vgpu_limits_copy, generation);
    return vgpu_checksum(copy + skip, copy_bytes - skip);
}

int limits_publish(void *file, const struct vgpu_limits_copy *head,
                   const struct vgpu_device_limit *devices)
{
    struct vgpu_limits_header *header = file;
    if (head->device_count > header->device_capacity)
        return -EINVAL;
    uint64_t generation = header->active_generation + 1;
    unsigned char *idle = copy_at(file, generation);
    struct vgpu_limits_copy *copy = (struct vgpu_limits_copy *)idle;
    size_t used = sizeof *copy + head->device_count * sizeof *devices;
    memcpy(copy, head, sizeof *copy);
    memcpy(idle + sizeof *copy, devices, head->device_count * sizeof *devices);
    memset(idle + used, 0, header->copy_bytes - used);
    copy->generation = generation;
    copy->checksum = copy_checksum(idle, header->copy_bytes);
    __atomic_store_n(&header->active_generation, generation, __ATOMIC_RELEASE);
    return 0;
}

uint64_t limits_generation(const void *file)
{
    const struct vgpu_limits_header *header = file;
    return __atomic_load_n(&header->active_generation, __ATOMIC_ACQUIRE);
}

int limits_read(const void *file, struct vgpu_limits_copy *head, struct vgpu_device_limit *devices,
                uint32_t capacity)
{
    const struct vgpu_limits_header *header = file;
    /* A copy may be rewritten while it is read, so the check runs on a private one. */
    unsigned char image[sizeof *head + VGPU_MAX_DEVICES * sizeof *devices];
    for (int tries = 0; tries < READ_TRIES; tries++) {
        uint64_t generation = limits_generation(file);
        if (generation == 0)
            return -EINVAL;
        memcpy(image, copy_at(file, generation), header->copy_bytes);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        memcpy(head, image, sizeof *head);
        if (head->generation == generation &&
            head->checksum == copy_checksum(image, header->copy_bytes)) {
            uint32_t count = head->device_count;
            if (count > header->device_capacity || count > capacity)
                return -EINVAL;
            memcpy(devices, image + sizeof *head, count * sizeof *devices);
            return 0;
        }
        if (limits_generation(file) == generation)
            return -EINVAL; /* nobody wrote meanwhile: it is damaged, not torn */
    }
    return -EAGAIN;
}

const struct vgpu_device_limit *limits_device(const void *file, uint32_t device)
{
    const unsigned char *copy = copy_at(file, limits_generation(file));
    return (const struct vgpu_device_limit *)(copy + sizeof(struct vgpu_limits_copy)) + device;
}

bool limits_is_mps_client(const struct vgpu_device_limit *device)
{
    return device->mps_pipe_directory[0] != '\0';
}
