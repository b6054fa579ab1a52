/* Which size of an image counts for this process's GPUs, and the charge of one load of it: reserved
 * before the driver acts, corrected by what can be measured afterwards. No state; any thread. */
#ifndef VGPU_MODULE_SIZE_H
#define VGPU_MODULE_SIZE_H

#include "code/image_size.h"
#include "code/load_cost.h"
#include "memory/charge.h"

/* Of an image in memory, or of a file: on the GPU of the current context, or the most on any of
 * those that CUDA shows. A call that cannot succeed takes nothing: the driver says why. */
enum module_target { MODULE_CURRENT_DEVICE, MODULE_ANY_DEVICE };
struct image_size module_size_of_image(const void *image, enum module_target target);
struct image_size module_size_of_file(const char *path, enum module_target target);

/* True when a load of it may take memory that must be charged, or measured. */
bool module_size_matters(const struct image_size *size);

/* What is reserved for one load before the driver is asked. */
uint64_t module_size_reserved(const struct image_size *size);

struct module_load {
    struct image_size size;
    struct charge charge;
    struct load_cost cost;
    uint64_t measured_bytes; /* after module_load_end; 0: was not measured */
};

/* Measures the load of an image that `charge` was reserved for; the current context is the one it
 * goes into. _end corrects the charge; false when what was taken does not fit, and the load must be
 * undone and the charge cancelled. */
void module_load_begin(struct module_load *load);
bool module_load_end(struct module_load *load);

#endif
