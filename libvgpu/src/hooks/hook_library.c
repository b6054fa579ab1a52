/* Hooks of libraries: code that belongs to no context. Its load is charged until the unload, and what
 * the calls load that hand something of it out is looked for at the next quiet moment (code_load.h). */
#include "hooks/hook_code.h"

#define OPTIONS \
    CUjit_option *jit_options, void **jit_values, unsigned int jit_count, \
        CUlibraryOption *options, void **option_values, unsigned int option_count
#define OPTION_VALUES jit_options, jit_values, jit_count, options, option_values, option_count

static void keep(const struct charge *charge, uint64_t library)
{
    charge_keep_lasting(charge, SPACE_MODULE, library, NULL);
}

LOAD(cuLibraryLoadData, library, (CUlibrary * library, const void *image, OPTIONS),
     real.cuLibraryUnload, keep, image, OPTION_VALUES)
LOAD(cuLibraryLoadFromFile, library, (CUlibrary * library, const char *path, OPTIONS),
     real.cuLibraryUnload, keep, path, OPTION_VALUES)

VGPU_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    NEEDS(cuLibraryUnload);
    struct charge_free free = charge_free_begin(SPACE_MODULE, (uintptr_t)library);
    CUresult result = charge_free_end(&free, code_unloaded(library, real.cuLibraryUnload(library)));
    reconcile_soon(); /* in every context */
    return result;
}

/* ---- what may be loaded by this, or by the launch that comes next ---- */

static void handed_out(const CUkernel *kernels, unsigned int count, const char *name,
                       CUlibrary library)
{
    for (unsigned int i = 0; i < count; i++)
        collective_named(kernels[i], name);
    local_memory_handed_out_kernels(kernels, count, library);
}

VGPU_EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    NEEDS(cuLibraryGetKernel);
    CUresult result = real.cuLibraryGetKernel(kernel, library, name);
    if (result == CUDA_SUCCESS && kernel != NULL)
        handed_out(kernel, 1, name, library);
    reconcile_soon();
    return result;
}

VGPU_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count,
                                               CUlibrary library)
{
    NEEDS(cuLibraryEnumerateKernels);
    unsigned int there = 0;
    CUresult result = real.cuLibraryEnumerateKernels(kernels, count, library);
    if (result == CUDA_SUCCESS && kernels != NULL && real.cuLibraryGetKernelCount != NULL &&
        real.cuLibraryGetKernelCount(&there, library) == CUDA_SUCCESS)
        handed_out(kernels, there < count ? there : count, NULL, library);
    reconcile_soon();
    return result;
}

/* The kernel was handed out, with its library; its function of the current context is another
 * handle. */
VGPU_EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    NEEDS(cuKernelGetFunction);
    CUresult result = real.cuKernelGetFunction(function, kernel);
    if (result == CUDA_SUCCESS && function != NULL) {
        bool is_collective = collective_is_function((CUfunction)kernel); /* one handle for both? */
        collective_named(*function, NULL);
        collective_keep(*function, is_collective);
        local_memory_handed_out_function(*function, kernel);
    }
    reconcile_soon();
    return result;
}

#define HAND_OUT(symbol, parameters, ...) \
    VGPU_EXPORT CUresult symbol parameters \
    { \
        NEEDS(symbol); \
        CUresult result = real.symbol(__VA_ARGS__); \
        reconcile_soon(); \
        return result; \
    }

HAND_OUT(cuLibraryGetModule, (CUmodule * module, CUlibrary library), module, library)
HAND_OUT(cuLibraryGetGlobal,
         (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name), address,
         bytes, library, name)
HAND_OUT(cuLibraryGetManaged,
         (CUdeviceptr * address, size_t *bytes, CUlibrary library, const char *name), address,
         bytes, library, name)
HAND_OUT(cuLibraryGetUnifiedFunction, (void **function, CUlibrary library, const char *name),
         function, library, name)
