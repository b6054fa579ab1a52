/* Which devices a process sees, as with the real driver and container runtime: of the machine's
 * those in VGPU_SIM_VISIBLE (what the runtime mounted), of those the ones CUDA_VISIBLE_DEVICES
 * names, in its order, up to its first entry that names none. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "visible.h"

static void add_device(uint32_t index)
{
    struct driver_device *device = &driver.devices[driver.device_count];
    device->device = sim_machine_device(driver.machine, index);
    device->identity = &device->device->header->identity;
    device->ordinal = driver.device_count++;
    device->device->on_done = event_done;
    pool_initialise(&device->pool, device);
    device->current_pool = &device->pool;
}

/* Returns the index that `entry` names among the `count` of `indexes`, or -1. A UUID may be cut
 * short as long as it is the only one that begins so. */
static int named_device(const char *entry, const uint32_t *indexes, int count)
{
    if (isdigit((unsigned char)entry[0])) {
        char *end;
        long ordinal = strtol(entry, &end, 10);
        return *end == '\0' && ordinal < count ? (int)indexes[ordinal] : -1;
    }
    int found = -1;
    if (strncmp(entry, "GPU-", 4) != 0)
        return -1;
    for (int i = 0; i < count; i++) {
        const char *uuid = sim_machine_device(driver.machine, indexes[i])->header->identity.uuid;
        if (strncmp(uuid, entry, strlen(entry)) == 0) {
            if (found >= 0)
                return -1;
            found = (int)indexes[i];
        }
    }
    return found;
}

int visible_find_devices(void)
{
    uint32_t indexes[SIM_MAX_DEVICES];
    int count = 0;
    driver.device_count = 0;
    for (uint32_t i = 0; i < sim_machine_device_count(driver.machine); i++)
        if (visible_on_machine(sim_machine_device(driver.machine, i)->header->identity.uuid))
            indexes[count++] = i;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) {
        for (int i = 0; i < count; i++)
            add_device(indexes[i]);
        return driver.device_count;
    }
    char *copy = strdup(list), *rest = NULL;
    uint32_t seen = 0;
    for (char *entry = copy ? strtok_r(copy, ", ", &rest) : NULL; entry;
         entry = strtok_r(NULL, ", ", &rest)) {
        int index = named_device(entry, indexes, count);
        if (index < 0)
            break;
        if (seen & 1u << index) { /* the real driver then shows none */
            driver.device_count = 0;
            break;
        }
        seen |= 1u << index;
        add_device((uint32_t)index);
    }
    free(copy);
    return driver.device_count;
}
