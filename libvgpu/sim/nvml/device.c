/* What a device is. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "nvml.h"

TELL(nvmlDeviceGetIndex, unsigned int, device->index)
TELL(nvmlDeviceGetMinorNumber, unsigned int, device->machine_index)

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    NVML_CHECK_ANY(device, uuid);
    return nvml_copy_text(uuid, length, nvml_identity_of(device)->uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    NVML_CHECK_ANY(device, name);
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

SAME_AS(nvmlDeviceGetVbiosVersion, simulated_text);
SAME_AS(nvmlDeviceGetInforomImageVersion, simulated_text);
SAME_AS(nvmlDeviceGetBoardPartNumber, simulated_text);

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

TELL(nvmlDeviceGetBrand, nvmlBrandType_t, NVML_BRAND_NVIDIA)

/* A GPU without displays, as `lspci` lists it. */
#define PCI_CLASS_DISPLAY 0x03
#define PCI_SUBCLASS_3D 0x02

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
    CHECK(nvmlDeviceGetPciInfo_v3(device, &whole));
    memcpy(pci, &whole, bytes);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return old_pci_info(device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return old_pci_info(device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci)
{
    nvmlPciInfo_t plain;
    NVML_CHECK(device, pci);
    REFUSE_IF(pci->version != nvmlPciInfoExt_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    CHECK(nvmlDeviceGetPciInfo_v3(device, &plain));
    pci->domain = plain.domain;
    pci->bus = plain.bus;
    pci->device = plain.device;
    pci->pciDeviceId = plain.pciDeviceId;
    pci->pciSubSystemId = plain.pciSubSystemId;
    pci->baseClass = PCI_CLASS_DISPLAY;
    pci->subClass = PCI_SUBCLASS_3D;
    memcpy(pci->busId, plain.busId, sizeof pci->busId);
    return NVML_SUCCESS;
}

TELL(nvmlDeviceGetBusType, nvmlBusType_t, NVML_BUS_TYPE_PCIE)

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

TELL(nvmlDeviceGetMemoryBusWidth, unsigned int, nvml_profile_of(device)->memory_bus_bits)

/* Every board has one GPU, so that it is known by the place of that. */
TELL(nvmlDeviceGetBoardId, unsigned int, nvml_identity_of(device)->pci_bus << 8)
TELL(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int *same)
{
    NVML_CHECK(one, same);
    NVML_CHECK(other, same);
    *same = one == other;
    return NVML_SUCCESS;
}

TELL(nvmlDeviceGetModuleId, unsigned int, device->machine_index)
