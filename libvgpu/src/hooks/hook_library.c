/* Hooks of libraries: their load and unload, and the calls that hand out what is in them, from
 * which on they may be loaded into any context (library_charge.h). */
#include "code/library_charge.h"
#include "code/module_size.h"
#include "compute/collective.h"
#include "hooks/hook.h"
#include "memory/charge.h"
#include "slice/region.h"

/* As LOAD of modules: `call_made` fills `made`. Code alone is not charged: with lazy loading it
 * comes kernel by kernel. */
#define LOAD(symbol, library, size_call, call_made, call) \
    do { \
        NEED(symbol); \
        if (library == NULL || region_open() == REGION_NONE) \
            return call; \
        struct image_size size = size_call; \
        if (module_size_reserved(&size) == 0 && !size.is_unknown) \
            return call; \
        struct library *charged; \
        CUlibrary made = NULL; \
        CUresult result = library_charge_begin(&charged, &size); \
        if (result != CUDA_SUCCESS) \
            return result; \
        result = call_made; \
        result = library_charge_loaded(charged, result, made); \
        if (result == CUDA_SUCCESS) \
            *library = made; \
        return result; \
    } while (0)

#define OPTIONS \
    CUjit_option *jit_options, void **jit_values, unsigned int jit_count, \
        CUlibraryOption *options, void **option_values, unsigned int option_count
#define OPTION_VALUES jit_options, jit_values, jit_count, options, option_values, option_count

VGPU_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, OPTIONS)
{
    LOAD(cuLibraryLoadData, library, module_size_of_image(image, MODULE_ANY_DEVICE),
         real.cuLibraryLoadData(&made, image, OPTION_VALUES),
         real.cuLibraryLoadData(library, image, OPTION_VALUES));
}

VGPU_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, OPTIONS)
{
    LOAD(cuLibraryLoadFromFile, library, module_size_of_file(path, MODULE_ANY_DEVICE),
         real.cuLibraryLoadFromFile(&made, path, OPTION_VALUES),
         real.cuLibraryLoadFromFile(library, path, OPTION_VALUES));
}

VGPU_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    NEED(cuLibraryUnload);
    CHARGE_FREE(SPACE_MODULE, library, collective_after_unload(real.cuLibraryUnload(library)));
}

/* Before the driver hands something of a library out. */
#define USE(symbol, call) \
    do { \
        NEED(symbol); \
        CUresult result_ = library_charge_use(library); \
        return result_ == CUDA_SUCCESS ? call : result_; \
    } while (0)

/* A name that is not there takes nothing: the driver looks first, as a kernel is no memory yet. */
VGPU_EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    NEED(cuLibraryGetKernel);
    CUkernel found = NULL;
    if (kernel == NULL)
        return real.cuLibraryGetKernel(kernel, library, name);
    CUresult result = real.cuLibraryGetKernel(&found, library, name);
    if (result == CUDA_SUCCESS)
        result = library_charge_use(library);
    if (result == CUDA_SUCCESS)
        *kernel = found;
    return result;
}

VGPU_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count,
                                               CUlibrary library)
{
    USE(cuLibraryEnumerateKernels, real.cuLibraryEnumerateKernels(kernels, count, library));
}

VGPU_EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    USE(cuLibraryGetModule, real.cuLibraryGetModule(module, library));
}

VGPU_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                        const char *name)
{
    USE(cuLibraryGetGlobal, real.cuLibraryGetGlobal(address, bytes, library, name));
}

VGPU_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                         const char *name)
{
    USE(cuLibraryGetManaged, real.cuLibraryGetManaged(address, bytes, library, name));
}

VGPU_EXPORT CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary library,
                                                 const char *name)
{
    USE(cuLibraryGetUnifiedFunction, real.cuLibraryGetUnifiedFunction(function, library, name));
}
