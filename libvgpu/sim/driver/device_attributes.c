/*
 * CU_DEVICE_ATTRIBUTE_*: what the profile says of a model, what all models have in common (sizes
 * from the tables of NVIDIA's programming guide), and whether this driver does a thing. Where it
 * does not, the answer is no, also for models of which the real driver would say yes: programs that
 * ask first then do without.
 */
#include <stdlib.h>

#include "vmm.h"

#define REGISTERS_PER_SM 65536
#define AMPERE_MAJOR 8
#define HOPPER_MAJOR 9
#define LAST_ATTRIBUTE 147 /* of CUDA 13.0 */

static int compute_mode_of(struct driver_device *device)
{
    struct sim_device_books *books = malloc(sizeof *books);
    int mode = 0;
    if (books && sim_machine_books(driver.machine, device->device->index, books) == 0)
        mode = (int)books->compute_mode;
    free(books);
    return mode;
}

/* How many times as fast single precision is as double: 2 on the models made for it. */
static int double_ratio(const struct sim_profile *profile)
{
    if (profile->compute_minor == 0)
        return 2;
    return profile->compute_major >= AMPERE_MAJOR ? 64 : 32;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    INVALID_IF(!value || (int)attribute < 1 || (int)attribute > LAST_ATTRIBUTE);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    const struct sim_profile *profile = &device->identity->profile;
    const bool ampere = profile->compute_major >= AMPERE_MAJOR;
    const bool hopper = profile->compute_major >= HOPPER_MAJOR;
    switch ((int)attribute) {
#define IS(name, expression) \
    case CU_DEVICE_ATTRIBUTE_##name: \
        *value = (int)(expression); \
        return CUDA_SUCCESS;
        /* shape of launches */
        IS(MAX_THREADS_PER_BLOCK, DRIVER_MAX_BLOCK_THREADS)
        IS(MAX_BLOCK_DIM_X, 1024)
        IS(MAX_BLOCK_DIM_Y, 1024)
        IS(MAX_BLOCK_DIM_Z, 64)
        IS(MAX_GRID_DIM_X, 0x7fffffff)
        IS(MAX_GRID_DIM_Y, 65535)
        IS(MAX_GRID_DIM_Z, 65535)
        IS(WARP_SIZE, DRIVER_WARP_THREADS)
        IS(CLUSTER_LAUNCH, hopper)
        IS(COOPERATIVE_LAUNCH, 1)
        IS(COOPERATIVE_MULTI_DEVICE_LAUNCH, 1)
        /* what a device and an SM have */
        IS(MULTIPROCESSOR_COUNT, profile->sm_count)
        IS(MAX_THREADS_PER_MULTIPROCESSOR, profile->threads_per_sm)
        IS(MAX_BLOCKS_PER_MULTIPROCESSOR, profile->blocks_per_sm)
        IS(MAX_REGISTERS_PER_BLOCK, REGISTERS_PER_SM)
        IS(MAX_REGISTERS_PER_MULTIPROCESSOR, REGISTERS_PER_SM)
        IS(MAX_SHARED_MEMORY_PER_BLOCK, DRIVER_STATIC_SHARED_BYTES)
        IS(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, profile->shared_bytes_per_block)
        IS(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, profile->shared_bytes_per_sm)
        IS(RESERVED_SHARED_MEMORY_PER_BLOCK, driver_reserved_shared_bytes(profile))
        IS(TOTAL_CONSTANT_MEMORY, 65536)
        IS(L2_CACHE_SIZE, profile->l2_bytes)
        IS(MAX_PERSISTING_L2_CACHE_SIZE, ampere ? profile->l2_bytes / 4 * 3 : 0)
        IS(MAX_ACCESS_POLICY_WINDOW_SIZE, ampere ? 134213632 : 0)
        IS(GLOBAL_L1_CACHE_SUPPORTED, 1)
        IS(LOCAL_L1_CACHE_SUPPORTED, 1)
        IS(CLOCK_RATE, profile->clock_khz)
        IS(MEMORY_CLOCK_RATE, profile->memory_clock_khz)
        IS(GLOBAL_MEMORY_BUS_WIDTH, profile->memory_bus_bits)
        IS(ASYNC_ENGINE_COUNT, 2)
        IS(GPU_OVERLAP, 1)
        IS(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, double_ratio(profile))
        IS(COMPUTE_CAPABILITY_MAJOR, profile->compute_major)
        IS(COMPUTE_CAPABILITY_MINOR, profile->compute_minor)
        IS(MEM_SYNC_DOMAIN_COUNT, hopper ? 4 : 1)
        /* where it is, and in which state */
        IS(COMPUTE_MODE, compute_mode_of(device))
        IS(ECC_ENABLED, 1)
        IS(PCI_BUS_ID, device->identity->pci_bus)
        IS(GPU_PCI_DEVICE_ID, profile->pci_device_id)
        IS(NUMA_ID, -1)
        IS(HOST_NUMA_ID, device->identity->numa_node)
        IS(MPS_ENABLED, device->percentage != 0)
        /* memory, streams */
        IS(MAX_PITCH, 0x7fffffff)
        IS(CAN_MAP_HOST_MEMORY, 1)
        IS(CONCURRENT_KERNELS, 1)
        IS(UNIFIED_ADDRESSING, 1)
        IS(MANAGED_MEMORY, 1)
        IS(CONCURRENT_MANAGED_ACCESS, 1)
        IS(COMPUTE_PREEMPTION_SUPPORTED, 1)
        IS(STREAM_PRIORITIES_SUPPORTED, 1)
        IS(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1)
        IS(HOST_REGISTER_SUPPORTED, 1)
        IS(CAN_USE_64_BIT_STREAM_MEM_OPS, 1)
        IS(CAN_USE_STREAM_WAIT_VALUE_NOR, 1)
        IS(MEMORY_POOLS_SUPPORTED, 1)
        IS(HOST_MEMORY_POOLS_SUPPORTED, 1)
        IS(HOST_NUMA_MEMORY_POOLS_SUPPORTED, 1)
        IS(MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        IS(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1)
        IS(MULTICAST_SUPPORTED, multicast_supported(device))
        IS(IPC_EVENT_SUPPORTED, 1)
        IS(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1)
        /* arrays and textures */
        IS(SPARSE_CUDA_ARRAY_SUPPORTED, 1)
        IS(DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 1)
        IS(TEXTURE_ALIGNMENT, 512)
        IS(TEXTURE_PITCH_ALIGNMENT, 32)
        IS(SURFACE_ALIGNMENT, 512)
        IS(CAN_TEX2D_GATHER, 1)
        IS(MAXIMUM_TEXTURE1D_WIDTH, 131072)
        IS(MAXIMUM_TEXTURE1D_LINEAR_WIDTH, DRIVER_LINEAR_TEXTURE_ELEMENTS)
        IS(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768)
        IS(MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768)
        IS(MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048)
        IS(MAXIMUM_TEXTURE2D_WIDTH, 131072)
        IS(MAXIMUM_TEXTURE2D_HEIGHT, 65536)
        IS(MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072)
        IS(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000)
        IS(MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120)
        IS(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768)
        IS(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768)
        IS(MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768)
        IS(MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768)
        IS(MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768)
        IS(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768)
        IS(MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048)
        IS(MAXIMUM_TEXTURE3D_WIDTH, 16384)
        IS(MAXIMUM_TEXTURE3D_HEIGHT, 16384)
        IS(MAXIMUM_TEXTURE3D_DEPTH, 16384)
        IS(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192)
        IS(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192)
        IS(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768)
        IS(MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768)
        IS(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768)
        IS(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046)
        IS(MAXIMUM_SURFACE1D_WIDTH, 32768)
        IS(MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768)
        IS(MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048)
        IS(MAXIMUM_SURFACE2D_WIDTH, 131072)
        IS(MAXIMUM_SURFACE2D_HEIGHT, 65536)
        IS(MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768)
        IS(MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768)
        IS(MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048)
        IS(MAXIMUM_SURFACE3D_WIDTH, 16384)
        IS(MAXIMUM_SURFACE3D_HEIGHT, 16384)
        IS(MAXIMUM_SURFACE3D_DEPTH, 16384)
        IS(MAXIMUM_SURFACECUBEMAP_WIDTH, 32768)
        IS(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768)
        IS(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046)
#undef IS
    default: /* No: unified function pointers, HMM, RDMA, fabric, tensor maps,
              * compression, timeline semaphores, remote flushes, graphics */
        *value = 0;
        return CUDA_SUCCESS;
    }
}
