/* cuDevice*: what the profile says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define WARP_THREADS 32
#define REGISTERS_PER_SM 65536
#define RESERVED_SHARED_BYTES 1024

struct driver_device *device_of(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < driver.device_count ? &driver.devices[ordinal] : NULL;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    DRIVER_CHECK();
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    DRIVER_CHECK();
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = driver.device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    DRIVER_CHECK();
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s", device_of(device)->identity->profile.product);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    DRIVER_CHECK();
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    const char *digits = device_of(device)->identity->uuid + strlen("GPU-");
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
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    DRIVER_CHECK();
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
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

static int compute_mode_of(struct driver_device *device)
{
    struct sim_device_books *books = malloc(sizeof *books);
    int mode = 0;
    if (books && sim_machine_books(driver.machine, device->device->index, books) == 0)
        mode = (int)books->compute_mode;
    free(books);
    return mode;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    if (!value || (int)attribute < 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    const struct sim_profile *profile = &device->identity->profile;
    switch (attribute) {
#define IS(name, expression) \
    case CU_DEVICE_ATTRIBUTE_##name: \
        *value = (int)(expression); \
        return CUDA_SUCCESS;
        IS(MAX_THREADS_PER_BLOCK, DRIVER_MAX_BLOCK_THREADS)
        IS(MAX_BLOCK_DIM_X, 1024)
        IS(MAX_BLOCK_DIM_Y, 1024)
        IS(MAX_BLOCK_DIM_Z, 64)
        IS(MAX_GRID_DIM_X, 0x7fffffff)
        IS(MAX_GRID_DIM_Y, 65535)
        IS(MAX_GRID_DIM_Z, 65535)
        IS(MAX_SHARED_MEMORY_PER_BLOCK, DRIVER_STATIC_SHARED_BYTES)
        IS(TOTAL_CONSTANT_MEMORY, 65536)
        IS(WARP_SIZE, WARP_THREADS)
        IS(MAX_PITCH, 0x7fffffff)
        IS(MAX_REGISTERS_PER_BLOCK, REGISTERS_PER_SM)
        IS(CLOCK_RATE, profile->clock_khz)
        IS(TEXTURE_ALIGNMENT, 512)
        IS(GPU_OVERLAP, 1)
        IS(MULTIPROCESSOR_COUNT, profile->sm_count)
        IS(CAN_MAP_HOST_MEMORY, 1)
        IS(COMPUTE_MODE, compute_mode_of(device))
        IS(CONCURRENT_KERNELS, 1)
        IS(ECC_ENABLED, 1)
        IS(PCI_BUS_ID, device->identity->pci_bus)
        IS(PCI_DEVICE_ID, 0)
        IS(MEMORY_CLOCK_RATE, profile->memory_clock_khz)
        IS(GLOBAL_MEMORY_BUS_WIDTH, profile->memory_bus_bits)
        IS(L2_CACHE_SIZE, profile->l2_bytes)
        IS(MAX_THREADS_PER_MULTIPROCESSOR, profile->threads_per_sm)
        IS(ASYNC_ENGINE_COUNT, 2)
        IS(UNIFIED_ADDRESSING, 1)
        IS(TEXTURE_PITCH_ALIGNMENT, 32)
        IS(COMPUTE_CAPABILITY_MAJOR, profile->compute_major)
        IS(COMPUTE_CAPABILITY_MINOR, profile->compute_minor)
        IS(STREAM_PRIORITIES_SUPPORTED, 1)
        IS(GLOBAL_L1_CACHE_SUPPORTED, 1)
        IS(LOCAL_L1_CACHE_SUPPORTED, 1)
        IS(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, profile->shared_bytes_per_sm)
        IS(MAX_REGISTERS_PER_MULTIPROCESSOR, REGISTERS_PER_SM)
        IS(MANAGED_MEMORY, 1)
        IS(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2)
        IS(COMPUTE_PREEMPTION_SUPPORTED, 1)
        IS(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1)
        IS(COOPERATIVE_LAUNCH, 1)
        IS(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, profile->shared_bytes_per_block)
        IS(HOST_REGISTER_SUPPORTED, 1)
        IS(MAX_BLOCKS_PER_MULTIPROCESSOR, profile->blocks_per_sm)
        IS(RESERVED_SHARED_MEMORY_PER_BLOCK, RESERVED_SHARED_BYTES)
        IS(MEMORY_POOLS_SUPPORTED, 1)
        IS(CLUSTER_LAUNCH, 0)
        IS(NUMA_ID, -1)
        IS(HOST_NUMA_ID, device->identity->numa_node)
        IS(MPS_ENABLED, device->percentage != 0)
#undef IS
    default: /* what this driver does not do, the real one may answer with no as well */
        *value = 0;
        return CUDA_SUCCESS;
    }
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    DRIVER_CHECK();
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *major = (int)device_of(device)->identity->profile.compute_major;
    *minor = (int)device_of(device)->identity->profile.compute_minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *properties, CUdevice device)
{
    DRIVER_CHECK();
    if (!properties)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *properties = (CUdevprop){
        .maxThreadsPerBlock = DRIVER_MAX_BLOCK_THREADS,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {0x7fffffff, 65535, 65535},
        .sharedMemPerBlock = DRIVER_STATIC_SHARED_BYTES,
        .totalConstantMemory = 65536,
        .SIMDWidth = WARP_THREADS,
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
    if (!id || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(id, (size_t)length, "0000:%02X:00.0", device_of(device)->identity->pci_bus);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
    DRIVER_CHECK();
    unsigned int domain = 0, bus = 0, slot = 0, function = 0;
    if (!device || !id)
        return CUDA_ERROR_INVALID_VALUE;
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
