#include "compute/measure/copy_place.h"

#include "driver/capture.h"
#include "driver/real.h"
#include "slice/devices.h"
#include "slice/region.h"

static bool is_device_memory(struct copy_side side)
{
    unsigned int type = 0;
    if (side.type == CU_MEMORYTYPE_ARRAY)
        return true;
    /* Also what is called device memory: the host's has device addresses, too. */
    return side.type != CU_MEMORYTYPE_HOST && real.cuPointerGetAttribute != NULL &&
           real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, side.address) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

static bool is_one_device(struct copy_side target, struct copy_side source)
{
    if (region_device_count() < 2 || target.type == CU_MEMORYTYPE_ARRAY ||
        source.type == CU_MEMORYTYPE_ARRAY)
        return true;
    return devices_of_pointer(target.address) == devices_of_pointer(source.address);
}

bool copy_is_inside(struct copy_side target, struct copy_side source)
{
    if (region_open() != REGION_MAPPED)
        return true; /* the gate has the answer to that */
    struct capture_pause pause = capture_pause();
    bool is_inside =
        is_device_memory(target) && is_device_memory(source) && is_one_device(target, source);
    capture_resume(pause);
    return is_inside;
}
