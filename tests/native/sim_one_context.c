/* Makes a context and ends. */
#include "vgpu/cuda_api.h"

int main(void)
{
    CUcontext context;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0);
}
