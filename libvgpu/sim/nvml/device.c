/* Which devices there are, and what they are. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "nvml.h"

bool nvml_is_device(nvmlDevice_t device)
{
    return device >= nvml.devices && device < nvml.devices + nvml.device_count;
}

bool nvml_is_lost(nvmlDevice_t device)
{
    struct sim_device_faults faults;
    return sim_machine_faulty(nvml.machine) &&
           sim_machine_read_device_faults(nvml.machine, device->machine_index, &faults) == 0 &&
           faults.lost;
}

nvmlReturn_t nvml_check(nvmlDevice_t device, const void *result)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!nvml_is_device(device) || !result)
        return NVML_ERROR_INVALID_ARGUMENT;
    return nvml_is_lost(device) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

const struct sim_device_identity *nvml_identity_of(nvmlDevice_t device)
{
    return &sim_machine_device(nvml.machine, device->machine_index)->header->identity;
}

const struct sim_profile *nvml_profile_of(nvmlDevice_t device)
{
    return &nvml_identity_of(device)->profile;
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

/* ---- finding one ----------------------------------------------------------------------------- */

typedef bool (*match_function)(const struct sim_device_identity *identity, const void *wanted);

/* The first visible device that matches. One that is lost is there, but cannot be had. */
static nvmlReturn_t find_device(match_function matches, const void *wanted, nvmlDevice_t *device)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!wanted || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < nvml.device_count; i++)
        if (matches(nvml_identity_of(&nvml.devices[i]), wanted)) {
            NVML_CHECK(&nvml.devices[i], device);
            *device = &nvml.devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

static bool has_uuid(const struct sim_device_identity *identity, const void *wanted)
{
    return strcmp(identity->uuid, wanted) == 0;
}

static bool has_serial(const struct sim_device_identity *identity, const void *wanted)
{
    return strcmp(identity->serial, wanted) == 0;
}

static bool is_on_bus(const struct sim_device_identity *identity, const void *wanted)
{
    return identity->pci_bus == *(const unsigned int *)wanted;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (index >= nvml.device_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    NVML_CHECK(&nvml.devices[index], device);
    *device = &nvml.devices[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    return find_device(has_uuid, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    return find_device(has_serial, serial, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
    unsigned int domain = 0, bus = 0, slot = 0, function = 0;
    if (!nvml.references)
        return NVML_ERROR_UNINITIALIZED;
    if (!id || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        if (sscanf(id, "%x:%x.%x", &bus, &slot, &function) < 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    return domain || slot || function ? NVML_ERROR_NOT_FOUND : find_device(is_on_bus, &bus, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

/* ---- what it is ------------------------------------------------------------------------------ */

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
    return nvml_copy_text(uuid, length, nvml_identity_of(device)->uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    NVML_CHECK(device, name);
    return nvml_copy_text(name, length, nvml_identity_of(device)->profile.product);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    NVML_CHECK(device, serial);
    return nvml_copy_text(serial, length, nvml_identity_of(device)->serial);
}

/* Nobody shall take these for a real board's. */
static nvmlReturn_t simulated_text(nvmlDevice_t device, char *text, unsigned int length)
{
    NVML_CHECK(device, text);
    return nvml_copy_text(text, length, "simulated");
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    return simulated_text(device, version, length);
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *version,
                                              unsigned int length)
{
    return simulated_text(device, version, length);
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *number, unsigned int length)
{
    return simulated_text(device, number, length);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    NVML_CHECK(device, version);
    strcpy(version, nvml_driver_version()); /* the caller's buffer has 80 bytes at least */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled,
                                          unsigned int *by_default)
{
    NVML_CHECK(device, enabled);
    NVML_CHECK(device, by_default);
    *enabled = *by_default = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand)
{
    NVML_CHECK(device, brand);
    *brand = NVML_BRAND_NVIDIA;
    return NVML_SUCCESS;
}

void nvml_fill_pci(nvmlPciInfo_t *pci, unsigned int bus, unsigned int pci_device_id)
{
    *pci =
        (nvmlPciInfo_t){.bus = bus, .pciDeviceId = pci_device_id, .pciSubSystemId = pci_device_id};
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", bus);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", bus);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    NVML_CHECK(device, pci);
    nvml_fill_pci(pci, nvml_identity_of(device)->pci_bus, nvml_profile_of(device)->pci_device_id);
    return NVML_SUCCESS;
}

/* The older ones are called with older structures, which are the first part of this one. */
static nvmlReturn_t old_pci_info(nvmlDevice_t device, nvmlPciInfo_t *pci, size_t bytes)
{
    nvmlPciInfo_t whole;
    NVML_CHECK(device, pci);
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &whole);
    if (result == NVML_SUCCESS)
        memcpy(pci, &whole, bytes);
    return result;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return old_pci_info(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return old_pci_info(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
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
    *major = (int)nvml_identity_of(device)->profile.compute_major;
    *minor = (int)nvml_identity_of(device)->profile.compute_minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *result)
{
    NVML_CHECK(device, result);
    const struct sim_profile *profile = &nvml_identity_of(device)->profile;
    *result = profile->compute_major >= 9                                  ? NVML_DEVICE_ARCH_HOPPER
              : profile->compute_major == 8 && profile->compute_minor == 9 ? NVML_DEVICE_ARCH_ADA
              : profile->compute_major == 8 ? NVML_DEVICE_ARCH_AMPERE
                                            : NVML_DEVICE_ARCH_TURING;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
    NVML_CHECK(device, cores);
    *cores =
        nvml_identity_of(device)->profile.sm_count * nvml_identity_of(device)->profile.cores_per_sm;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits)
{
    NVML_CHECK(device, bits);
    *bits = nvml_profile_of(device)->memory_bus_bits;
    return NVML_SUCCESS;
}

/* Every board has one GPU, so that it is known by the place of that. */
nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *board)
{
    NVML_CHECK(device, board);
    *board = nvml_identity_of(device)->pci_bus << 8;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multiple)
{
    NVML_CHECK(device, multiple);
    *multiple = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int *same)
{
    NVML_CHECK(one, same);
    NVML_CHECK(other, same);
    *same = one == other;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *module)
{
    NVML_CHECK(device, module);
    *module = device->machine_index;
    return NVML_SUCCESS;
}
