/* The null driver of benchmarks, which also writes of each launch of the clients' kernel what it
 * was given: "DURATION_NS ROUNDS BUSY_BLOCKS" a line on stderr. */
#define cuLaunchKernel null_launch
#include "../../benchmarks/native/null_driver.c"
#undef cuLaunchKernel

#include <stdio.h>

static CUresult record(void **params)
{
    fprintf(stderr, "%llu %llu %u\n", *(unsigned long long *)params[0],
            *(unsigned long long *)params[1], *(unsigned *)params[2]);
    return null_launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra)
{
    return record(params);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra)
{
    return record(params);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **params)
{
    return record(params);
}
