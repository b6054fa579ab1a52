/* A kernel that takes the time it is told, on a real GPU too, for programs that are linked with libcuda, and what ends them where
 * a call fails. */
#ifndef VGPU_TEST_SPIN_KERNEL_H
#define VGPU_TEST_SPIN_KERNEL_H

#include <stdio.h>
#include <stdlib.h>

#include "vgpu/cuda_api.h"

#define MUST(call) \
    do { \
        int result_ = (call); \
        if (result_ != CUDA_SUCCESS) { \
            fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, result_); \
            exit(1); \
        } \
    } while (0)

static const char spin_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry spin_ns(.param .u64 ns)\n{\n"
                               ".reg .pred %p;\n.reg .u64 %begin, %now, %wanted;\n"
                               "ld.param.u64 %wanted, [ns];\nmov.u64 %begin, %globaltimer;\n"
                               "again:\nmov.u64 %now, %globaltimer;\n"
                               "sub.u64 %now, %now, %begin;\nsetp.lt.u64 %p, %now, %wanted;\n"
                               "@%p bra again;\nret;\n}\n";

static inline CUfunction load_spin_kernel(void)
{
    CUmodule module;
    CUfunction function;
    MUST(cuModuleLoadData(&module, spin_ptx));
    MUST(cuModuleGetFunction(&function, module, "spin_ns"));
    return function;
}

#endif
