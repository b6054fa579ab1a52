/* A slice that somebody damaged: whole files of one to three devices, then edited as the input says,
 * and laid into a folder of this process's own in any form that a name can have there. */
#ifndef FUZZ_SLICE_INPUT_H
#define FUZZ_SLICE_INPUT_H

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"
#include "slice/checksum.h"
#include "slice/limits_file.h"
#include "slice/usage_file.h"

#define SLICE_MOST_DEVICES 3
#define SLICE_USED_SLOTS 4
#define NOW_NS 1000000000000
#define SLICE_PART_BYTES 256 /* all parts of the two files but a slot's beginning have so many */

struct slice_input {
    uint32_t devices;
    uint64_t limits_bytes, usage_bytes; /* as the files are laid out; 0: no regular file */
    void *limits, *usage;
};

/* A part of a file: its header, a device's row, a slot or a slot's device. */
static inline unsigned char *slice_part(struct slice_input *slice, uint64_t which, uint64_t index)
{
    const struct vgpu_limits_header *limits = slice->limits;
    uint32_t device = (uint32_t)(index % slice->devices);
    uint32_t slot = (uint32_t)(index / slice->devices % VGPU_SLOT_COUNT);
    unsigned char *of_limits = slice->limits;
    switch (which % 8) {
    case 0:
        return of_limits;
    case 1:
        return of_limits + limits->grant_offset + device * sizeof(struct vgpu_grant);
    case 2:
        return of_limits + limits->copy_offset[slot & 1];
    case 3:
        return of_limits + limits->copy_offset[slot & 1] + sizeof(struct vgpu_limits_copy) +
               device * sizeof(struct vgpu_device_limit);
    case 4:
        return slice->usage;
    case 5:
        return (unsigned char *)usage_device(slice->usage, device);
    case 6:
        return (unsigned char *)usage_slot(slice->usage, slot);
    default:
        return (unsigned char *)usage_slot_device(slice->usage, slot, device);
    }
}

static inline void slice_edit(struct slice_input *slice, struct input *input)
{
    unsigned char *edited[64];
    uint64_t values[64];
    size_t sizes[64], count = 0;
    while (input->at < input->end && count < 64) { /* found first: edits must not lead elsewhere */
        uint64_t which = take(input, 1), index = take(input, 1), at = take(input, 1) * 4;
        edited[count] = slice_part(slice, which, index) + at % SLICE_PART_BYTES;
        sizes[count] = which & 8 ? 4 : 8;
        values[count++] = which & 16 ? NOW_NS - take(input, 2) * (1u << 20) : take_odd(input);
    }
    for (size_t i = 0; i < count; i++) {
        unsigned char *file =
            edited[i] < (unsigned char *)slice->usage ||
                    edited[i] >= (unsigned char *)slice->usage + slice->usage_bytes
                ? slice->limits
                : slice->usage;
        uint64_t bytes = file == slice->usage ? slice->usage_bytes : slice->limits_bytes;
        if (edited[i] + sizes[i] <= file + bytes)
            memcpy(edited[i], &values[i], sizes[i]);
    }
}

/* Makes the images, edited; `seals` puts the copies' checksums right again. */
static inline struct slice_input slice_make(struct input *input)
{
    uint64_t form = take(input, 1);
    struct slice_input slice = {.devices = (uint32_t)form % SLICE_MOST_DEVICES + 1};
    struct vgpu_limits_copy head = {
        .device_count = slice.devices, .family = VGPU_FAMILY_VGPU, .allocation_id = "a"};
    struct vgpu_device_limit devices[SLICE_MOST_DEVICES] = {0};
    for (uint32_t i = 0; i < slice.devices; i++) {
        devices[i].memory_limit_bytes = devices[i].physical_bytes = 64u << 20;
        devices[i].core_percent = 50;
        devices[i].weight = 1;
        devices[i].mps_pinned_bytes = form & 64 ? i << 20 : 0;
        snprintf(devices[i].uuid, sizeof devices[i].uuid, "GPU-%u", i);
    }
    slice.limits_bytes = limits_file_bytes(slice.devices);
    slice.usage_bytes = usage_file_bytes(slice.devices);
    slice.limits = calloc(1, slice.limits_bytes);
    slice.usage = calloc(1, slice.usage_bytes);
    HOLDS(slice.limits != NULL && slice.usage != NULL);
    limits_format(slice.limits, slice.devices);
    limits_publish(slice.limits, &head, devices);
    usage_format(slice.usage, slice.devices, "a");
    ((struct vgpu_usage_header *)slice.usage)->hi_slot = SLICE_USED_SLOTS;
    for (uint32_t i = 0; i < slice.devices && form & 32; i++) { /* samples were taken */
        struct vgpu_usage_device *row = usage_device(slice.usage, i);
        row->sampling_ns = NOW_NS - 1;
        row->sample_count = 2;
        row->sampled_at_ns[0] = NOW_NS - (take(input, 2) << 15);
        row->sampled_at_ns[1] = NOW_NS - (take(input, 2) << 15);
    }
    const struct vgpu_limits_header header = *(const struct vgpu_limits_header *)slice.limits;
    slice_edit(&slice, input);
    for (int i = 0; i < 2 && form & 128; i++) {
        unsigned char *copy = (unsigned char *)slice.limits + header.copy_offset[i];
        ((struct vgpu_limits_copy *)copy)->checksum =
            vgpu_checksum(copy + sizeof(uint64_t), header.copy_bytes - sizeof(uint64_t));
    }
    return slice;
}

static inline void slice_free(struct slice_input *slice)
{
    free(slice->limits);
    free(slice->usage);
}

/* Returns the folder that all inputs use, one after the other. */
static inline const char *slice_folder(void)
{
    static char folder[PATH_MAX];
    if (folder[0] != '\0')
        return folder;
    const char *above = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/vgpu-fuzz-XXXXXX", above != NULL ? above : "/tmp");
    HOLDS(mkdtemp(folder) != NULL && chdir(folder) == 0);
    return folder;
}

/* Lays something of a name into the folder: mostly the image. */
static inline void slice_lay(const char *name, const void *image, uint64_t *bytes, uint64_t kind)
{
    rmdir(name);
    unlink(name);
    if (kind % 16 == 1)
        *bytes = 0;
    else if (kind % 16 == 2)
        *bytes = (uint64_t)mkdir(name, 0700) * 0;
    else if (kind % 16 == 3)
        *bytes = (uint64_t)mkfifo(name, 0600) * 0;
    else if (kind % 16 == 4)
        *bytes = (uint64_t)symlink("nowhere", name) * 0;
    else {
        int file = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (kind % 16 == 5)
            *bytes = *bytes / 2;
        if (kind % 16 == 8 && *bytes > 16)
            *bytes = 16;                                /* of a header */
        uint64_t written = kind % 16 == 6 ? 0 : *bytes; /* or of holes alone */
        HOLDS(file >= 0 && write(file, image, written) == (ssize_t)written &&
              ftruncate(file, (off_t)*bytes) == 0);
        close(file);
    }
}

#endif
