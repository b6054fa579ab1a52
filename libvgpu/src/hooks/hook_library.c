/* Hooks of libraries: their load and unload, and the calls that hand out what is in them, from
 * which on they may be loaded into any context (library_charge.h). */
#include "code/library_charge.h"
#include "code/module_size.h"
#include "hooks/hook.h"
#include "hooks/hook_unload.h"
#include "memory/charge.h"
#include "memory/local_memory.h"
#include "slice/region.h"

/* A library that is being loaded. Code alone is not charged: with lazy loading it comes kernel by
 * kernel. */
struct load {
    struct library *charged; /* NULL: the driver fills the program's own variable */
    CUlibrary made;
};

/* Before the driver's call, which fills what load_target says: CUDA_SUCCESS, or what the hook
 * returns. `size` of a load that nobody charges is empty. */
static CUresult load_begin(struct load *load, const struct image_size *size)
{
    *load = (struct load){NULL, NULL};
    if (module_size_reserved(size) == 0 && !size->is_unknown)
        return CUDA_SUCCESS;
    return library_charge_begin(&load->charged, size);
}

static CUlibrary *load_target(struct load *load, CUlibrary *library)
{
    return load->charged != NULL ? &load->made : library;
}

static CUresult load_end(const struct load *load, CUresult result, CUlibrary *library)
{
    if (load->charged == NULL)
        return result;
    result = library_charge_loaded(load->charged, result, load->made);
    if (result == CUDA_SUCCESS)
        *library = load->made;
    return result;
}

static bool is_charged(const CUlibrary *library)
{
    return library != NULL && region_open() != REGION_NONE;
}

#define OPTIONS \
    CUjit_option *jit_options, void **jit_values, unsigned int jit_count, \
        CUlibraryOption *options, void **option_values, unsigned int option_count
#define OPTION_VALUES jit_options, jit_values, jit_count, options, option_values, option_count

VGPU_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, OPTIONS)
{
    if (!cuda_has(&real.cuLibraryLoadData))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct load load;
    struct image_size size = {0};
    if (is_charged(library))
        size = module_size_of_image(image, MODULE_ANY_DEVICE);
    CUresult result = load_begin(&load, &size);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuLibraryLoadData(load_target(&load, library), image, OPTION_VALUES);
    return load_end(&load, result, library);
}

VGPU_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, OPTIONS)
{
    if (!cuda_has(&real.cuLibraryLoadFromFile))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct load load;
    struct image_size size = {0};
    if (is_charged(library))
        size = module_size_of_file(path, MODULE_ANY_DEVICE);
    CUresult result = load_begin(&load, &size);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuLibraryLoadFromFile(load_target(&load, library), path, OPTION_VALUES);
    return load_end(&load, result, library);
}

VGPU_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    if (!cuda_has(&real.cuLibraryUnload))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge_free free = charge_free_begin(SPACE_MODULE, (uintptr_t)library);
    return charge_free_end(&free, code_unloaded(library, real.cuLibraryUnload(library)));
}

/* ---- what hands something of a library out: charged before the driver does ---- */

/* A name that is not there takes nothing: the driver looks first, as a kernel is no memory yet. */
VGPU_EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    if (!cuda_has(&real.cuLibraryGetKernel))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUkernel found = NULL;
    if (kernel == NULL)
        return real.cuLibraryGetKernel(kernel, library, name);
    CUresult result = real.cuLibraryGetKernel(&found, library, name);
    if (result == CUDA_SUCCESS)
        result = library_charge_use(library);
    if (result == CUDA_SUCCESS) {
        local_memory_handed_out_kernels(&found, 1, library);
        *kernel = found;
    }
    return result;
}

VGPU_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count,
                                               CUlibrary library)
{
    if (!cuda_has(&real.cuLibraryEnumerateKernels))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = library_charge_use(library);
    if (result != CUDA_SUCCESS)
        return result;
    unsigned int there = 0;
    result = real.cuLibraryEnumerateKernels(kernels, count, library);
    if (result == CUDA_SUCCESS && kernels != NULL && real.cuLibraryGetKernelCount != NULL &&
        real.cuLibraryGetKernelCount(&there, library) == CUDA_SUCCESS)
        local_memory_handed_out_kernels(kernels, there < count ? there : count, library);
    return result;
}

/* The library is charged since its kernel was handed out. */
VGPU_EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    if (!cuda_has(&real.cuKernelGetFunction))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = real.cuKernelGetFunction(function, kernel);
    if (result == CUDA_SUCCESS)
        local_memory_handed_out_function(*function, kernel);
    return result;
}

VGPU_EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    if (!cuda_has(&real.cuLibraryGetModule))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = library_charge_use(library);
    if (result != CUDA_SUCCESS)
        return result;
    return real.cuLibraryGetModule(module, library);
}

VGPU_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                        const char *name)
{
    if (!cuda_has(&real.cuLibraryGetGlobal))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = library_charge_use(library);
    if (result != CUDA_SUCCESS)
        return result;
    return real.cuLibraryGetGlobal(address, bytes, library, name);
}

VGPU_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                                         const char *name)
{
    if (!cuda_has(&real.cuLibraryGetManaged))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = library_charge_use(library);
    if (result != CUDA_SUCCESS)
        return result;
    return real.cuLibraryGetManaged(address, bytes, library, name);
}

VGPU_EXPORT CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary library,
                                                 const char *name)
{
    if (!cuda_has(&real.cuLibraryGetUnifiedFunction))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = library_charge_use(library);
    if (result != CUDA_SUCCESS)
        return result;
    return real.cuLibraryGetUnifiedFunction(function, library, name);
}
