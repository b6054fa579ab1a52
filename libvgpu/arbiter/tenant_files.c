#include "tenant_files.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "slice/limits_file.h"
#include "slice/usage_file.h"

static int check_usage(int usage_fd, uint32_t device_index)
{
    struct stat status;
    struct vgpu_usage_header header;
    if (fstat(usage_fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode) ||
        pread(usage_fd, &header, sizeof header, 0) != (ssize_t)sizeof header)
        return -EINVAL;
    int error = usage_check_header(&header, (uint64_t)status.st_size);
    if (error != 0)
        return error;
    return device_index < header.device_capacity ? 0 : -ENODEV;
}

static int map_limits(struct tenant_files *files, int limits_fd, uint32_t device_index)
{
    struct stat status;
    if (fstat(limits_fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || (uint64_t)status.st_size < sizeof(struct vgpu_limits_header))
        return -EINVAL;
    uint64_t bytes = (uint64_t)status.st_size;
    void *limits = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, limits_fd, 0);
    if (limits == MAP_FAILED)
        return -errno;
    const struct vgpu_limits_header *header = limits;
    int error = limits_check_header(limits, bytes);
    if (error == 0 && device_index >= header->device_capacity)
        error = -ENODEV;
    if (error != 0) {
        munmap(limits, bytes);
        return error;
    }
    files->limits = limits;
    files->limits_bytes = bytes;
    files->grant =
        (struct vgpu_grant *)((unsigned char *)limits + header->grant_offset) + device_index;
    return 0;
}

int tenant_files_open(struct tenant_files *files, int limits_fd, int usage_fd, int ring_fd,
                      uint32_t device_index)
{
    struct stat status;
    if (fstat(ring_fd, &status) != 0)
        return -errno;
    if (!S_ISFIFO(status.st_mode))
        return -EINVAL;
    int error = check_usage(usage_fd, device_index);
    if (error == 0)
        error = map_limits(files, limits_fd, device_index);
    if (error != 0)
        return error;
    files->usage_fd = usage_fd;
    files->ring_fd = ring_fd;
    files->device_index = device_index;
    files->usage_at =
        (off_t)(sizeof(struct vgpu_usage_header) + device_index * sizeof(struct vgpu_usage_device));
    return 0;
}

void tenant_files_close(struct tenant_files *files)
{
    close(files->usage_fd);
    close(files->ring_fd);
    tenant_files_give_back(files);
}

void tenant_files_give_back(struct tenant_files *files)
{
    munmap(files->limits, files->limits_bytes);
    memset(files, 0, sizeof *files);
}

void tenant_files_read(const struct tenant_files *files, struct vgpu_usage_device *usage)
{
    if (pread(files->usage_fd, usage, sizeof *usage, files->usage_at) != (ssize_t)sizeof *usage)
        memset(usage, 0, sizeof *usage);
}

bool tenant_files_is_off(const struct tenant_files *files)
{
    const struct vgpu_device_limit *limit = limits_device(files->limits, files->device_index);
    return __atomic_load_n(&limit->compute_mode, __ATOMIC_RELAXED) == VGPU_COMPUTE_OFF;
}

uint32_t tenant_files_weight(const struct tenant_files *files)
{
    const struct vgpu_device_limit *limit = limits_device(files->limits, files->device_index);
    return __atomic_load_n(&limit->weight, __ATOMIC_RELAXED);
}

uint32_t tenant_files_drain(const struct tenant_files *files)
{
    unsigned char bytes[TENANT_RING_BYTES];
    ssize_t count = read(files->ring_fd, bytes, sizeof bytes);
    return count > 0 ? (uint32_t)count : 0;
}

void tenant_files_publish(const struct tenant_files *files, const struct vgpu_grant *grant)
{
    struct vgpu_grant *shown = files->grant;
    /* Odd while it changes, and odd still where an arbiter died in the middle of this. */
    uint64_t odd = __atomic_load_n(&shown->number, __ATOMIC_RELAXED) | 1;
    __atomic_store_n(&shown->number, odd, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&shown->start_ns, grant->start_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->end_ns, grant->end_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->beat_ns, grant->beat_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->mode, grant->mode, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->window, grant->window, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->number, odd + 1, __ATOMIC_RELEASE);
    /* Little-endian: the low half of `number` comes first. Shared, across processes. */
    syscall(SYS_futex, &shown->number, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void tenant_files_beat(const struct tenant_files *files, uint64_t now_ns)
{
    __atomic_store_n(&files->grant->beat_ns, now_ns, __ATOMIC_RELAXED);
}
