/* Contexts: made, ended, retained, reset, made current. */
#include "shim_fuzz.h"

#define GREEN_SMS 16

static CUgreenCtx greens[3];

static void forget(void)
{
    memory_forget();
    array_forget();
}

static void make(void)
{
    CUcontext made = (CUcontext)UNTOUCHED, *place = ANY(fuzz.made);
    CUdevice device = one_in(10) ? 6 : (CUdevice)roll(GPUS);
    CUctxCreateParams params = {0};
    unsigned int flags = one_in(10) ? 1u << 30 : 0;
    int result;
    if (*place != NULL)
        return;
    switch (roll(4)) {
    case 0:
        result = SAY(cuCtxCreate(&made, flags, device));
        break;
    case 1:
        result = SAY(cuCtxCreate_v3(&made, NULL, 0, flags, device));
        break;
    case 2:
        result = SAY(cuCtxCreate_v4(&made, one_in(2) ? NULL : &params, flags, device));
        break;
    default:
        result = SAY(cuCtxCreate_v2(one_in(20) ? NULL : &made, flags, device));
    }
    fuzz_untouched(result, (uint64_t)(uintptr_t)made);
    if (result == CUDA_SUCCESS)
        *place = made;
}

static void end(void)
{
    CUcontext *place = ANY(fuzz.made);
    int result;
    if (*place == NULL)
        return;
    switch (roll(3)) {
    case 0:
        result = SAY(cuCtxDestroy(*place));
        break;
    case 1:
        result = SAY(cuCtxDetach(*place));
        break;
    default:
        result = SAY(cuCtxDestroy_v2(*place));
    }
    if (result != CUDA_SUCCESS)
        return;
    *place = NULL;
    forget();
}

static void green(void)
{
    CUgreenCtx made = (CUgreenCtx)UNTOUCHED, *place = ANY(greens);
    CUdevResource all, some, rest;
    CUdevResourceDesc description;
    unsigned int count = 1;
    CUdevice device = (CUdevice)roll(GPUS);
    if (*place != NULL) {
        if (SAY(cuGreenCtxDestroy(*place)) == CUDA_SUCCESS)
            *place = NULL;
        forget();
        return;
    }
    if (SAY(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM)) != CUDA_SUCCESS ||
        SAY(cuDevSmResourceSplitByCount(&some, &count, &all, &rest, 0, GREEN_SMS)) !=
            CUDA_SUCCESS ||
        SAY(cuDevResourceGenerateDesc(&description, &some, 1)) != CUDA_SUCCESS)
        return;
    int result = SAY(cuGreenCtxCreate(&made, description, one_in(10) ? 1 - device : device,
                                      one_in(10) ? 0 : CU_GREEN_CTX_DEFAULT_STREAM));
    fuzz_untouched(result, (uint64_t)(uintptr_t)made);
    if (result == CUDA_SUCCESS)
        *place = made;
}

static void change_primary(void)
{
    CUdevice device = (CUdevice)roll(GPUS);
    CUcontext again;
    switch (roll(8)) {
    case 0:
        if (SAY(cuDevicePrimaryCtxRetain(&again, device)) == CUDA_SUCCESS)
            SAY(cuDevicePrimaryCtxRelease_v2(device));
        return;
    case 1:
        SAY(cuDevicePrimaryCtxSetFlags_v2(device, (unsigned int)roll(5)));
        return;
    case 2:
        SAY(cuDevicePrimaryCtxRelease_v2(7));
        return;
    case 3:
        SAY(cuDevicePrimaryCtxRetain(&again, 9));
        return;
    default:
        SAY(cuCtxSetCurrent(fuzz.primary[device]));
    }
}

void context_step(void)
{
    CUcontext some = *ANY(fuzz.made), popped;
    switch (roll(8)) {
    case 0 ... 1:
        make();
        return;
    case 2:
        end();
        return;
    case 3:
        if (some != NULL)
            SAY(cuCtxSetCurrent(some));
        return;
    case 4:
        green();
        return;
    case 5:
        if (one_in(3) && SAY(cuCtxPopCurrent_v2(&popped)) == CUDA_SUCCESS && one_in(2))
            SAY(cuCtxPushCurrent_v2(fuzz.primary[0]));
        return;
    default:
        change_primary();
    }
}

void context_rest(void)
{
}
