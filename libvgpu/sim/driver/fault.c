/* Faults on request (`vgpuctl sim inject`), as a program meets them. */
#include <errno.h>
#include <time.h>

#include "driver.h"

#define NS_PER_SECOND 1000000000u

static void take_time(uint64_t delay_ns)
{
    struct timespec left = {.tv_sec = (time_t)(delay_ns / NS_PER_SECOND),
                            .tv_nsec = (long)(delay_ns % NS_PER_SECOND)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

struct sim_device_faults *fault_of(const struct driver_device *device)
{
    uint32_t gpu = device->identity->gpu;
    return gpu ? &sim_machine_device(driver.machine, gpu - 1)->header->faults
               : &device->device->header->faults;
}

CUresult fault_answer(const struct CUctx_st *context)
{
    const struct sim_call_faults *calls = &driver.machine->header->call_faults;
    uint32_t code;
    if (calls->delay_ns)
        take_time(calls->delay_ns);
    if (sim_fault_take_code(driver.machine, &code))
        return (CUresult)code;
    if (!context)
        return CUDA_SUCCESS;
    const struct sim_device_faults *faults = fault_of(context->device);
    REFUSE_IF(faults->lost, CUDA_ERROR_DEVICE_UNAVAILABLE);
    if (faults->broken_code && context->begun_ns <= faults->broken_ns) {
        mps_client_tell_fault();
        return (CUresult)faults->broken_code;
    }
    return sim_device_failed(context->device->device) ? CUDA_ERROR_MPS_RPC_FAILURE : CUDA_SUCCESS;
}

bool fault_fails_allocation(struct driver_device *device)
{
    return sim_fault_take(&fault_of(device)->failing_allocations);
}
