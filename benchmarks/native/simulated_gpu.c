/*
 * Makes a simulated machine with one GPU, for a Python that has no cffi; simulated_gpu.py loads it.
 *
 * GPU_FILE is the GPU as C initialises it, which libvgpu/sim/identity.py writes.
 */
#include <string.h>

#include "machine_api.h"

static const struct sim_device_identity gpu =
#include GPU_FILE
    ;

const char *simulated_uuid(void)
{
    return gpu.uuid;
}

/* Returns 0 or a negative errno. */
int simulated_create(const char *directory, const char *identifier, uint64_t backing_bytes,
                     uint32_t cuda_version, const char *version, uint32_t process_entry_bytes,
                     uint32_t lists_unseen)
{
    struct sim_machine_options options = {
        .driver_version = cuda_version,
        .backing_bytes = backing_bytes,
        .release = {.process_entry_bytes = process_entry_bytes, .lists_unseen = lists_unseen},
    };
    strncpy(options.release.version, version, sizeof options.release.version - 1);
    return sim_machine_create(directory, identifier, &options, &gpu, 1);
}
