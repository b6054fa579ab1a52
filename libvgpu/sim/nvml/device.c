/* Which devices there are, what and where they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

#define BITS_PER_WORD (8 * sizeof(unsigned long))

bool nvml_is_device(nvmlDevice_t device)
{
    return device >= nvml.devices && device < nvml.devices + nvml.device_count;
}

nvmlReturn_t nvml_check(nvmlDevice_t device, const void *result)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    return nvml_is_device(device) && result ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static const struct sim_device_identity *identity_of(nvmlDevice_t device)
{
    return &sim_machine_device(nvml.machine, device->machine_index)->header->identity;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = nvml.device_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= nvml.device_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &nvml.devices[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < nvml.device_count; i++)
        if (strcmp(identity_of(&nvml.devices[i])->uuid, uuid) == 0) {
            *device = &nvml.devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!serial || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < nvml.device_count; i++)
        if (strcmp(identity_of(&nvml.devices[i])->serial, serial) == 0) {
            *device = &nvml.devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
    unsigned int domain = 0, bus = 0, slot = 0, function = 0;
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!id || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3 &&
        sscanf(id, "%x:%x.%x", &bus, &slot, &function) < 2)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < nvml.device_count; i++)
        if (identity_of(&nvml.devices[i])->pci_bus == bus && slot == 0) {
            *device = &nvml.devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    NVML_CHECK(device, index);
    *index = device->index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    NVML_CHECK(device, minor);
    *minor = device->machine_index;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    NVML_CHECK(device, uuid);
    return nvml_copy_text(uuid, length, identity_of(device)->uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    NVML_CHECK(device, name);
    return nvml_copy_text(name, length, identity_of(device)->profile.product);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    NVML_CHECK(device, serial);
    return nvml_copy_text(serial, length, identity_of(device)->serial);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    NVML_CHECK(device, version);
    return nvml_copy_text(version, length, "simulated");
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand)
{
    NVML_CHECK(device, brand);
    *brand = NVML_BRAND_NVIDIA;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    NVML_CHECK(device, pci);
    const struct sim_device_identity *identity = identity_of(device);
    *pci = (nvmlPciInfo_t){.bus = identity->pci_bus,
                           .pciDeviceId = identity->profile.pci_device_id,
                           .pciSubSystemId = identity->profile.pci_device_id};
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", identity->pci_bus);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", identity->pci_bus);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t *type)
{
    NVML_CHECK(device, type);
    *type = NVML_BUS_TYPE_PCIE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    NVML_CHECK(device, major);
    NVML_CHECK(device, minor);
    *major = (int)identity_of(device)->profile.compute_major;
    *minor = (int)identity_of(device)->profile.compute_minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *result)
{
    NVML_CHECK(device, result);
    const struct sim_profile *profile = &identity_of(device)->profile;
    *result = profile->compute_major >= 9                                  ? NVML_DEVICE_ARCH_HOPPER
              : profile->compute_major == 8 && profile->compute_minor == 9 ? NVML_DEVICE_ARCH_ADA
              : profile->compute_major == 8 ? NVML_DEVICE_ARCH_AMPERE
                                            : NVML_DEVICE_ARCH_TURING;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
    NVML_CHECK(device, cores);
    *cores = identity_of(device)->profile.sm_count * identity_of(device)->profile.cores_per_sm;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                 nvmlGpuTopologyLevel_t *level)
{
    NVML_CHECK(one, level);
    NVML_CHECK(other, level);
    *level = one == other                                                   ? NVML_TOPOLOGY_INTERNAL
             : identity_of(one)->numa_node == identity_of(other)->numa_node ? NVML_TOPOLOGY_NODE
                                                                            : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

/* ---- where: every CPU of this host is near, as on a host with one NUMA node ------------------ */

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    NVML_CHECK(device, node);
    *node = (unsigned int)identity_of(device)->numa_node;
    return NVML_SUCCESS;
}

static void set_bits(unsigned long *set, unsigned int words, unsigned long count)
{
    memset(set, 0, words * sizeof *set);
    for (unsigned long bit = 0; bit < count && bit < words * BITS_PER_WORD; bit++)
        set[bit / BITS_PER_WORD] |= 1ul << bit % BITS_PER_WORD;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set)
{
    NVML_CHECK(device, set);
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    if (cpus > 0 && words * BITS_PER_WORD < (unsigned long)cpus)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    set_bits(set, words, cpus > 0 ? (unsigned long)cpus : 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words,
                                                 unsigned long *set, nvmlAffinityScope_t scope)
{
    (void)scope;
    return nvmlDeviceGetCpuAffinity(device, words, set);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words,
                                         unsigned long *set, nvmlAffinityScope_t scope)
{
    NVML_CHECK(device, set);
    (void)scope;
    if (words == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(set, 0, words * sizeof *set);
    set[0] = 1ul << identity_of(device)->numa_node;
    return NVML_SUCCESS;
}
