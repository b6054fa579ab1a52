/* Advice about managed memory (managed_advice.c), kept per range of an allocation under
 * memory_mutex. It changes nothing of what the simulated memory does: all of it is always there. */
#ifndef VGPU_SIM_MANAGED_H
#define VGPU_SIM_MANAGED_H

#include "driver.h"

#define MANAGED_BY_HOST (1u << 31) /* in accessed_by, besides a bit for each device */

struct managed_policy {
    bool read_mostly;
    CUmemLocation preferred, prefetched; /* of type INVALID: none */
    uint32_t accessed_by;
};

/* Applies `edit` to the whole pages of a range. CUDA_ERROR_INVALID_VALUE: it is not in one managed
 * allocation. */
typedef void (*managed_edit)(struct managed_policy *policy, const void *argument);
CUresult managed_change(CUdeviceptr address, uint64_t bytes, managed_edit edit,
                        const void *argument);
/* What all pages of a range have in common; what they have not is none. */
CUresult managed_common(CUdeviceptr address, uint64_t bytes, struct managed_policy *common);
/* Checks a location, and turns the NUMA node of the calling thread into its number. */
CUresult managed_settle_location(CUmemLocation *location);
/* Of a device as the old calls name it: the host is one to them. */
CUmemLocation managed_location_of(CUdevice device);
void managed_forget(struct managed_advice *advice);

/* managed_touch.c: memory that is charged as it is touched. Other memory is passed by. */
void managed_touch_expect(void); /* some is allocated now */
void managed_touch(uint64_t address, uint64_t bytes);
void managed_leave(uint64_t address, uint64_t bytes);

#endif
