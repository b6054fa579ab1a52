#include "compute/cap/cap.h"

#include "slice/limits_file.h"
#include "slice/region.h"

#define WHOLE_PERCENT 100

bool cap_is_set(uint32_t device)
{
    const struct vgpu_device_limit *limit = limits_device(region_limits(), device);
    /* MPS keeps the cap of its family by itself: two caps would multiply. Left-overs (core 0) are
     * whatever the driver gives. */
    if (region_family() == VGPU_FAMILY_MPS || limit->compute_mode == VGPU_COMPUTE_OFF ||
        limit->core_percent == 0)
        return false;
    /* An arbiter attends to a whole share only while somebody is there to have what it leaves over:
     * the two take turns, for which each launch must be seen. */
    return limit->core_percent < WHOLE_PERCENT || window_is_arbitrated(device);
}

uint32_t cap_percent(uint32_t device)
{
    const struct vgpu_device_limit *limit = limits_device(region_limits(), device);
    return cap_is_set(device) && limit->core_percent < WHOLE_PERCENT ? limit->core_percent
                                                                     : WHOLE_PERCENT;
}

bool cap_is_kept(uint32_t device, const struct window *window)
{
    const struct vgpu_device_limit *limit = limits_device(region_limits(), device);
    return (limit->compute_mode != VGPU_COMPUTE_ELASTIC && limit->core_percent < WHOLE_PERCENT) ||
           (window->state != WINDOW_FREE && window->state != WINDOW_SHARED &&
            window->state != WINDOW_OPEN);
}
