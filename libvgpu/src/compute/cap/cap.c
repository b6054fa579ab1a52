#include "compute/cap/cap.h"

#include "slice/limits_file.h"
#include "slice/region.h"

#define WHOLE_PERCENT 100

static const struct vgpu_device_limit *limit_of(uint32_t device)
{
    return limits_device(region_limits(), device);
}

static bool is_whole(const struct vgpu_device_limit *limit)
{
    return limit->core_percent >= WHOLE_PERCENT;
}

bool cap_is_set(uint32_t device)
{
    const struct vgpu_device_limit *limit = limit_of(device);
    /* MPS keeps the cap of its family by itself: two caps would multiply. Left-overs (core 0) are
     * whatever the driver gives. */
    if (region_family() == VGPU_FAMILY_MPS || limit->compute_mode == VGPU_COMPUTE_OFF ||
        limit->core_percent == 0)
        return false;
    /* An arbiter attends to a whole share only while somebody is there to have what it leaves over:
     * the two take turns, for which each launch must be seen. */
    return !is_whole(limit) || window_is_arbitrated(device);
}

uint32_t cap_percent(uint32_t device)
{
    const struct vgpu_device_limit *limit = limit_of(device);
    return cap_is_set(device) && !is_whole(limit) ? limit->core_percent : WHOLE_PERCENT;
}

bool cap_is_kept(uint32_t device, const struct window *window)
{
    const struct vgpu_device_limit *limit = limit_of(device);
    return (limit->compute_mode != VGPU_COMPUTE_ELASTIC && !is_whole(limit)) ||
           (window->state != WINDOW_FREE && window->state != WINDOW_SHARED &&
            window->state != WINDOW_OPEN);
}
