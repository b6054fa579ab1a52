/* Calls on contexts that newer ones replaced: usage counts, and the width of shared memory banks,
 * which devices have not let programs choose for long. */
#include "driver.h"

static pthread_mutex_t attach_mutex = PTHREAD_MUTEX_INITIALIZER;

CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    CURRENT_CONTEXT(current);
    INVALID_IF(!context || flags);
    pthread_mutex_lock(&attach_mutex);
    context_settings_of(current)->attached++;
    pthread_mutex_unlock(&attach_mutex);
    *context = current;
    return CUDA_SUCCESS;
}

/* The first count is that of cuCtxCreate: without another one the context ends. */
CUresult cuCtxDetach(CUcontext context)
{
    CURRENT_CONTEXT(current);
    /* as documented: it must be current */
    REFUSE_IF(context != current, CUDA_ERROR_INVALID_CONTEXT);
    pthread_mutex_lock(&attach_mutex);
    bool attached = context_settings_of(current)->attached > 0;
    if (attached)
        context_settings_of(current)->attached--;
    pthread_mutex_unlock(&attach_mutex);
    return attached ? CUDA_SUCCESS : cuCtxDestroy_v2(context);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!config);
    *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    CURRENT_CONTEXT(context);
    return (unsigned int)config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
