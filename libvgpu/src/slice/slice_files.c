#include "slice/slice_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "slice/limits_file.h"
#include "slice/usage_file.h"

#define STAT_BLOCK_BYTES 512
#define REASON_BYTES 128

/* A mapped file. */
struct mapping {
    void *address; /* NULL: none */
    uint64_t bytes;
};

static void unmap(struct mapping *mapping)
{
    if (mapping->address != NULL)
        munmap(mapping->address, mapping->bytes);
    mapping->address = NULL;
}

/* Has the filesystem set all bytes aside. It did when the file was made, so this costs nothing but
 * for one that was copied with holes. Returns 0 or an errno. */
static int allocate_all(int descriptor, const struct stat *status)
{
    if (status->st_blocks * STAT_BLOCK_BYTES >= status->st_size)
        return 0;
    if (fallocate(descriptor, 0, 0, status->st_size) == 0)
        return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : errno; /* cannot be asked for there */
}

/* Maps a whole file. Returns 0 or an errno. */
static int map_file(const char *path, bool writable, struct mapping *mapping)
{
    int descriptor = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0)
        return errno;
    struct stat status;
    int error = fstat(descriptor, &status) == 0 ? 0 : errno;
    if (error == 0 && S_ISDIR(status.st_mode))
        error = EISDIR;
    else if (error == 0 && (!S_ISREG(status.st_mode) || status.st_size <= 0))
        error = EINVAL;
    if (error == 0 && writable)
        error = allocate_all(descriptor, &status);
    if (error == 0) {
        int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        void *address = mmap(NULL, (size_t)status.st_size, protection, MAP_SHARED, descriptor, 0);
        if (address == MAP_FAILED)
            error = errno;
        else
            *mapping = (struct mapping){address, (uint64_t)status.st_size};
    }
    close(descriptor);
    return error;
}

static int open_limits(const char *path, struct mapping *mapping, struct vgpu_limits_copy *head,
                       struct vgpu_device_limit *devices)
{
    int error = map_file(path, false, mapping);
    if (error == 0)
        error = -limits_check_header(mapping->address, mapping->bytes);
    if (error == 0)
        error = -limits_read(mapping->address, head, devices, VGPU_MAX_DEVICES);
    return error;
}

static int open_usage(const char *path, struct mapping *mapping, uint32_t device_count)
{
    int error = map_file(path, true, mapping);
    if (error == 0)
        error = -usage_check_header(mapping->address, mapping->bytes);
    const struct vgpu_usage_header *header = mapping->address;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): mmap's errno is never 0 */
    if (error == 0 && header->device_capacity < device_count)
        error = EINVAL;
    return error;
}

int slice_files_open(const char *directory, struct slice_files *files,
                     struct vgpu_limits_copy *head, struct vgpu_device_limit *devices,
                     struct slice_fault *fault)
{
    struct mapping limits = {0};
    struct mapping usage = {0};
    char path[PATH_MAX];
    *fault = (struct slice_fault){"limits", ENAMETOOLONG};
    if (snprintf(path, sizeof path, "%s/limits", directory) < (int)sizeof path)
        fault->error = open_limits(path, &limits, head, devices);
    if (fault->error == 0) {
        *fault = (struct slice_fault){"usage", ENAMETOOLONG};
        if (snprintf(path, sizeof path, "%s/usage", directory) < (int)sizeof path)
            fault->error = open_usage(path, &usage, head->device_count);
    }
    /* It is opened again for every look at a lock, when the program may be in another folder. */
    if (fault->error == 0 && realpath(path, files->usage_path) == NULL)
        fault->error = errno;
    if (fault->error != 0) {
        unmap(&limits);
        unmap(&usage);
        return -1;
    }
    files->limits = limits.address;
    files->usage = usage.address;
    return 0;
}

static const char *known_text(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return "is missing";
    case EISDIR:
        return "is a directory";
    case EINVAL:
        return "is damaged or truncated";
    case EPROTO:
        return "is of another layout version than this libvgpu";
    case EAGAIN:
        return "is being changed without an end";
    case EROFS:
        return "is on a read-only filesystem";
    case ENOSPC:
    case EDQUOT:
        return "is not fully allocated and its filesystem is full";
    default:
        return NULL;
    }
}

const char *slice_fault_text(const struct slice_fault *fault, char *text, size_t bytes)
{
    const char *known = known_text(fault->error);
    char reason[REASON_BYTES];
    if (known != NULL)
        snprintf(text, bytes, "%s", known);
    else
        snprintf(text, bytes, "cannot be used (%s)",
                 strerror_r(fault->error, reason, sizeof reason));
    return text;
}
