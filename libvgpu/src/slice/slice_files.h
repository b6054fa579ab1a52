/* Opening and checking the two files of a slice, for region.c.
 *
 * Whatever lies in their place must end in an error that can be said in one sentence, and never in
 * a signal or in a wait: a pipe is not opened for reading until somebody writes, and bytes of
 * `usage` that the filesystem has not set aside are asked for here, since a full disk would
 * otherwise end the program by SIGBUS at its first store. No state, no lock. */
#ifndef VGPU_SLICE_FILES_H
#define VGPU_SLICE_FILES_H

#include <limits.h>
#include <stddef.h>

#include "vgpu/contract.h"

struct slice_files {
    const void *limits; /* mapped, checked */
    void *usage;        /* mapped for writing, checked */
    char usage_path[PATH_MAX];
};

/* What is wrong with which of the two. */
struct slice_fault {
    const char *name; /* "limits" or "usage" */
    int error;        /* errno */
};

/* Maps both files of `directory` and reads the active copy of `limits`. `devices` has room for
 * VGPU_MAX_DEVICES. Returns 0, or -1 with *fault filled and nothing mapped. */
int slice_files_open(const char *directory, struct slice_files *files,
                     struct vgpu_limits_copy *head, struct vgpu_device_limit *devices,
                     struct slice_fault *fault);

/* Writes the fault as the end of a sentence that begins with the file's name; returns `text`. */
const char *slice_fault_text(const struct slice_fault *fault, char *text, size_t bytes);

#endif
