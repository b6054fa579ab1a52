/* Modes, and what has the same answer on every simulated GPU. */
#include <stdlib.h>

#include "nvml.h"

#define PCIE_LANES 16
#define POWER_SOURCE_AC 0

#define CONSTANT(function, type, value) \
    nvmlReturn_t function(nvmlDevice_t device, type *result) \
    { \
        NVML_CHECK(device, result); \
        *result = value; \
        return NVML_SUCCESS; \
    }

CONSTANT(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
CONSTANT(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
CONSTANT(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
CONSTANT(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t,
         NVML_GPU_VIRTUALIZATION_MODE_NONE)
CONSTANT(nvmlDeviceGetPowerSource, unsigned int, POWER_SOURCE_AC)
CONSTANT(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, PCIE_LANES)
CONSTANT(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, PCIE_LANES)
CONSTANT(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)

/* ---- PCIe ------------------------------------------------------------------------------------ */

/* Generations by what x16 of them carries: 16, 32 and 64 GB/s, less what the protocol takes. */
static unsigned int pcie_generation(nvmlDevice_t device)
{
    uint64_t rate = nvml_profile_of(device)->pcie_bytes_per_second;
    return rate > 32000000000u ? 5 : rate > 16000000000u ? 4 : 3;
}

CONSTANT(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, pcie_generation(device))
CONSTANT(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, pcie_generation(device))
CONSTANT(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, pcie_generation(device))
/* NVML numbers the speeds of a lane as the generations: 8000 MB/s is 3. */
CONSTANT(nvmlDeviceGetPcieLinkMaxSpeed, unsigned int, pcie_generation(device))
CONSTANT(nvmlDeviceGetPcieSpeed, unsigned int, 1000u << pcie_generation(device))

/* ---- compute mode ---------------------------------------------------------------------------- */

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    NVML_CHECK(device, mode);
    struct sim_device_books *books = nvml_read_books(device);
    REFUSE_IF(!books, NVML_ERROR_MEMORY);
    *mode = (nvmlComputeMode_t)books->compute_mode;
    free(books);
    return NVML_SUCCESS;
}

/* The real one lets root alone change a GPU; whoever can write the machine's file is that here. What
 * this library has only looks. */
struct sim_machine *nvml_open_to_change(void)
{
    const char *directory = getenv("VGPU_SIM_MACHINE");
    struct sim_machine *machine;
    return directory && sim_machine_open(directory, &machine) == 0 ? machine : NULL;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
    NVML_CHECK(device, device);
    INVALID_IF((unsigned int)mode > NVML_COMPUTEMODE_EXCLUSIVE_PROCESS);
    struct sim_machine *machine = nvml_open_to_change();
    REFUSE_IF(!machine, NVML_ERROR_UNKNOWN);
    int error = sim_machine_set_compute_mode(machine, device->machine_index, (uint32_t)mode);
    sim_machine_close(machine);
    return error ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}
