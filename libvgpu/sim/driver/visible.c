/*
 * Which devices a process sees, as with the real driver and container runtime: of the machine's
 * those in VGPU_SIM_VISIBLE (what the runtime mounted), of those the ones CUDA_VISIBLE_DEVICES
 * names, in its order, up to its first entry that names none.
 *
 * A GPU in MIG mode stands for its first instance. As NVIDIA's guide to MIG says, CUDA shows a
 * single instance, the first one of several, and next to an instance no GPU.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "visible.h"

#define NO_DEVICE (-1)

static const struct sim_device_identity *identity_at(uint32_t index)
{
    return &sim_machine_device(driver.machine, index)->header->identity;
}

static void add_device(uint32_t index)
{
    struct driver_device *device = &driver.devices[driver.device_count];
    device->device = sim_machine_device(driver.machine, index);
    device->identity = &device->device->header->identity;
    device->ordinal = driver.device_count++;
    device->primary.magic = MAGIC_CONTEXT; /* a handle from now on, which no handle_new makes */
    device->primary.device = device;
    device->primary.primary = true;
    device->device->on_done = event_done;
    pool_initialise(&device->pool, device);
    device->current_pool = &device->pool;
}

/* The GPU, or its first visible instance where it is in MIG mode. */
static int as_seen(uint32_t gpu)
{
    struct sim_mig_instance instances[SIM_MIG_SLOTS];
    if (sim_mig_mode(driver.machine, gpu) != 1)
        return (int)gpu;
    uint32_t count = sim_mig_instances(driver.machine, gpu, instances);
    for (uint32_t i = 0; i < count; i++)
        if (instances[i].has_compute && visible_on_machine(driver.machine, instances[i].device))
            return (int)instances[i].device;
    return NO_DEVICE;
}

/* Finds the visible device whose UUID begins with `entry`, if it is the only one. */
static int find_uuid(const char *entry)
{
    int found = NO_DEVICE;
    for (uint32_t i = 0; i < sim_machine_device_count(driver.machine); i++)
        if (visible_on_machine(driver.machine, i) &&
            strncmp(identity_at(i)->uuid, entry, strlen(entry)) == 0) {
            if (found != NO_DEVICE)
                return NO_DEVICE;
            found = (int)i;
        }
    return found;
}

/* Returns the index of the device that `entry` names, or NO_DEVICE. GPUs alone have ordinals. */
static int named_device(const char *entry, const uint32_t *gpus, int count)
{
    int found = NO_DEVICE;
    if (isdigit((unsigned char)entry[0])) {
        char *end;
        long ordinal = strtol(entry, &end, 10);
        if (*end == '\0' && ordinal < count)
            found = (int)gpus[ordinal];
    } else if (strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0) {
        found = find_uuid(entry);
    }
    return found == NO_DEVICE || identity_at((uint32_t)found)->gpu ? found
                                                                   : as_seen((uint32_t)found);
}

/* Reads CUDA_VISIBLE_DEVICES; returns how many devices it names. */
static int chosen_devices(const char *list, const uint32_t *gpus, int count, uint32_t *chosen)
{
    char *copy = strdup(list), *rest = NULL;
    int chosen_count = 0;
    bool seen[SIM_MAX_DEVICES] = {false};
    for (char *entry = copy ? strtok_r(copy, ", ", &rest) : NULL; entry;
         entry = strtok_r(NULL, ", ", &rest)) {
        int index = named_device(entry, gpus, count);
        if (index == NO_DEVICE)
            break;
        if (seen[index]) { /* the real driver then shows none */
            chosen_count = 0;
            break;
        }
        seen[index] = true;
        chosen[chosen_count++] = (uint32_t)index;
    }
    free(copy);
    return chosen_count;
}

int visible_find_devices(void)
{
    uint32_t gpus[SIM_MAX_GPUS], chosen[SIM_MAX_DEVICES];
    int gpu_count = 0, count = 0;
    driver.device_count = 0;
    for (uint32_t i = 0; i < sim_machine_device_count(driver.machine); i++)
        if (!identity_at(i)->gpu && visible_on_machine(driver.machine, i))
            gpus[gpu_count++] = i;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (list)
        count = chosen_devices(list, gpus, gpu_count, chosen);
    for (int i = 0; !list && i < gpu_count; i++) {
        int seen = as_seen(gpus[i]);
        if (seen != NO_DEVICE)
            chosen[count++] = (uint32_t)seen;
    }
    for (int i = 0; i < count; i++)
        if (identity_at(chosen[i])->gpu) {
            add_device(chosen[i]);
            return driver.device_count;
        }
    for (int i = 0; i < count; i++)
        add_device(chosen[i]);
    return driver.device_count;
}
