/* Utilisation by domain, as the controller of the clocks sees it: the window that
 * nvmlDeviceGetUtilizationRates shows. Nothing uses video engines. */
#include "nvml.h"

nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info)
{
    nvmlUtilization_t utilization;
    NVML_CHECK(device, info);
    CHECK(nvmlDeviceGetUtilizationRates(device, &utilization));
    *info = (nvmlGpuDynamicPstatesInfo_t){0};
    for (int domain = 0; domain <= NVML_GPU_UTILIZATION_DOMAIN_BUS; domain++)
        info->utilization[domain].bIsPresent = 1;
    info->utilization[NVML_GPU_UTILIZATION_DOMAIN_GPU].percentage = utilization.gpu;
    info->utilization[NVML_GPU_UTILIZATION_DOMAIN_FB].percentage = utilization.memory;
    return NVML_SUCCESS;
}
