/* cuDevice*: what the profile says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define REGISTERS_PER_SM 65536

struct driver_device *device_of(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < driver.device_count ? &driver.devices[ordinal] : NULL;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    DRIVER_CHECK();
    INVALID_IF(!device);
    REFUSE_IF(!device_of(ordinal), CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    DRIVER_CHECK();
    INVALID_IF(!count);
    *count = driver.device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    DRIVER_CHECK();
    INVALID_IF(!name || length <= 0);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)length, "%s", device_of(device)->identity->profile.product);
    return CUDA_SUCCESS;
}

static void read_uuid(CUuuid *uuid, const struct sim_device_identity *identity)
{
    const char *digits = identity->uuid + strlen("GPU-"); /* or "MIG-" */
    memset(uuid, 0, sizeof *uuid);
    for (size_t i = 0; i < sizeof uuid->bytes; i++) {
        char pair[3] = {0};
        while (*digits == '-')
            digits++;
        if (!digits[0] || !digits[1])
            break;
        memcpy(pair, digits, 2);
        uuid->bytes[i] = (char)strtol(pair, NULL, 16);
        digits += 2;
    }
}

/* The GPU's, also for an instance of it. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    DRIVER_CHECK();
    INVALID_IF(!uuid);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    const struct sim_device_identity *identity = device_of(device)->identity;
    read_uuid(uuid, identity->gpu
                        ? &sim_machine_device(driver.machine, identity->gpu - 1)->header->identity
                        : identity);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    DRIVER_CHECK();
    INVALID_IF(!uuid);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    read_uuid(uuid, device_of(device)->identity);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    DRIVER_CHECK();
    INVALID_IF(!bytes);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    *bytes = device_of(device)->identity->profile.memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t wide = 0;
    CUresult result = bytes ? cuDeviceTotalMem_v2(&wide, device) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) /* all that fits into the old type */
        *bytes = wide > 0xffffffffu ? 0xffffffffu : (unsigned int)wide;
    return result;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    DRIVER_CHECK();
    INVALID_IF(!major || !minor);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    *major = (int)device_of(device)->identity->profile.compute_major;
    *minor = (int)device_of(device)->identity->profile.compute_minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice device)
{
    DRIVER_CHECK();
    INVALID_IF(!properties);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    *properties = (CUdevprop){
        .maxThreadsPerBlock = DRIVER_MAX_BLOCK_THREADS,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {0x7fffffff, 65535, 65535},
        .sharedMemPerBlock = DRIVER_STATIC_SHARED_BYTES,
        .totalConstantMemory = 65536,
        .SIMDWidth = DRIVER_WARP_THREADS,
        .memPitch = 0x7fffffff,
        .regsPerBlock = REGISTERS_PER_SM,
        .clockRate = (int)device_of(device)->identity->profile.clock_khz,
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    DRIVER_CHECK();
    INVALID_IF(!id || length <= 0);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(id, (size_t)length, "0000:%02X:00.0", device_of(device)->identity->pci_bus);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
    DRIVER_CHECK();
    unsigned int domain = 0, bus = 0, slot = 0, function = 0;
    INVALID_IF(!device || !id);
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3 &&
        sscanf(id, "%x:%x.%x", &bus, &slot, &function) < 2)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < driver.device_count; i++)
        if (driver.devices[i].identity->pci_bus == bus && slot == 0) {
            *device = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* The same for all formats here: which of them the driver makes narrower is not documented. */
CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *elements, CUarray_format format,
                                            unsigned int channels, CUdevice device)
{
    DRIVER_CHECK();
    (void)format;
    INVALID_IF(!elements || (channels != 1 && channels != 2 && channels != 4));
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    *elements = DRIVER_LINEAR_TEXTURE_ELEMENTS;
    return CUDA_SUCCESS;
}

/* No: cuCtxCreate_v3 with an affinity is not modelled. */
CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice device)
{
    DRIVER_CHECK();
    INVALID_IF(!supported || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT);
    REFUSE_IF(!device_of(device), CUDA_ERROR_INVALID_DEVICE);
    *supported = 0;
    return CUDA_SUCCESS;
}

static CUresult no_atomics(unsigned int *capabilities, const CUatomicOperation *operations,
                           unsigned int count)
{
    INVALID_IF(!capabilities || !operations || count == 0);
    for (unsigned int i = 0; i < count; i++)
        INVALID_IF((unsigned int)operations[i] > CU_ATOMIC_OPERATION_FLOAT_MAX);
    memset(capabilities, 0, count * sizeof *capabilities);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities,
                                           const CUatomicOperation *operations, unsigned int count,
                                           CUdevice device)
{
    DRIVER_CHECK();
    return device_of(device) ? no_atomics(capabilities, operations, count)
                             : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
                                          const CUatomicOperation *operations, unsigned int count,
                                          CUdevice source, CUdevice target)
{
    DRIVER_CHECK();
    return device_of(source) && device_of(target) && source != target
               ? no_atomics(capabilities, operations, count)
               : CUDA_ERROR_INVALID_DEVICE;
}
