/*
 * Libraries: an image that belongs to no context. Each context gets a module of it, with variables
 * of its own, when one of its kernels is launched there or its module or variables are asked for;
 * with CUDA_MODULE_LOADING=EAGER in the context that is current at the load, too, where the driver
 * would load it into every context at once.
 * A kernel is the same handle in all contexts, and as a function as well.
 */
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct CUlib_st {
    uint64_t magic;
    struct image *image;
    struct CUmod_st *modules; /* the one that was made last comes first */
};

static pthread_mutex_t modules_mutex = PTHREAD_MUTEX_INITIALIZER;

static bool is_library(const struct CUlib_st *library)
{
    return library && library->magic == MAGIC_LIBRARY;
}

static struct CUmod_st *module_in(const struct CUlib_st *library, const struct CUctx_st *context)
{
    struct CUmod_st *module = __atomic_load_n(&library->modules, __ATOMIC_ACQUIRE);
    while (module && (module->context != context || module->context_id != context->id))
        module = module->next;
    return module;
}

CUresult library_module(struct CUlib_st *library, struct CUctx_st *context,
                        struct CUmod_st **result)
{
    CUresult error = CUDA_SUCCESS;
    struct CUmod_st *module = module_in(library, context); /* modules only go with the library */
    if (!module) {
        pthread_mutex_lock(&modules_mutex);
        module = module_in(library, context);
        if (!module)
            error = module_place(context, library->image, &module);
        if (error == CUDA_SUCCESS && !module_in(library, context)) {
            module->next = library->modules;
            __atomic_store_n(&library->modules, module, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&modules_mutex);
    }
    if (error == CUDA_SUCCESS && result)
        *result = module;
    return error;
}

static CUresult load(CUlibrary *result, const void *bytes, uint64_t length)
{
    struct image *image;
    CUresult error = image_read(bytes, length, image_architecture(), &image);
    if (error == CUDA_SUCCESS && !image_is_complete(image)) {
        image_free(image);
        error = CUDA_ERROR_INVALID_PTX;
    }
    if (error != CUDA_SUCCESS)
        return error;
    struct CUlib_st *library = calloc(1, sizeof *library);
    if (!library) {
        image_free(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    library->magic = MAGIC_LIBRARY;
    library->image = image;
    image->library = library;
    struct CUctx_st *context;
    if (!module_loads_lazily() && context_current(&context) == CUDA_SUCCESS)
        error = library_module(library, context, NULL);
    if (error != CUDA_SUCCESS) {
        image_free(image);
        free(library);
        return error;
    }
    *result = library;
    return CUDA_SUCCESS;
}

/* The module of a library in the current context. */
static CUresult current_module(struct CUlib_st *library, struct CUmod_st **module)
{
    CURRENT_CONTEXT(context);
    return is_library(library) ? library_module(library, context, module)
                               : CUDA_ERROR_INVALID_HANDLE;
}

/* "Preserved" takes no value, so cuBLAS gives no array of values with it. It is for images in memory
 * alone (cuda.h, CUlibraryOption). */
static bool options_are_valid(const CUlibraryOption *options, void **values, unsigned int count,
                              bool is_file)
{
    if (count && !options)
        return false;
    for (unsigned int i = 0; i < count; i++) {
        bool takes_value = options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE;
        bool is_known = takes_value || options[i] == CU_LIBRARY_BINARY_IS_PRESERVED;
        if (!is_known || (takes_value ? !values : is_file))
            return false;
    }
    return true;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit_options,
                           void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                           void **option_values, unsigned int option_count)
{
    CALL_TAKES(cuModuleLoad);
    DRIVER_CHECK();
    INVALID_IF(!library || !image || (jit_count && !(jit_options && jit_values)) ||
               !options_are_valid(options, option_values, option_count, false));
    jit_options_answer(jit_count, jit_options, jit_values);
    return load(library, image, 0);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **option_values, unsigned int option_count)
{
    CALL_TAKES(cuModuleLoad);
    void *bytes;
    uint64_t length;
    DRIVER_CHECK();
    INVALID_IF(!library || !path || (jit_count && !(jit_options && jit_values)) ||
               !options_are_valid(options, option_values, option_count, true));
    jit_options_answer(jit_count, jit_options, jit_values);
    CUresult result = image_read_file(path, &bytes, &length);
    if (result == CUDA_SUCCESS) {
        result = load(library, bytes, length);
        free(bytes);
    }
    return result;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    CALL_TAKES(cuModuleUnload);
    DRIVER_CHECK();
    REFUSE_IF(!is_library(library), CUDA_ERROR_INVALID_HANDLE);
    CHECK(capture_check_unsafe());
    CUresult result = stream_calls_settle(); /* before the mutex: what is waited for may need it */
    if (result != CUDA_SUCCESS)
        return result;
    library->magic = 0;
    pthread_mutex_lock(&modules_mutex);
    while (library->modules) {
        struct CUmod_st *module = library->modules;
        library->modules = module->next;
        module_free(module);
    }
    pthread_mutex_unlock(&modules_mutex);
    image_free(library->image);
    free(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    DRIVER_CHECK();
    return module ? current_module(library, module) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    DRIVER_CHECK();
    INVALID_IF(!kernel || !name);
    REFUSE_IF(!is_library(library), CUDA_ERROR_INVALID_HANDLE);
    *kernel = (CUkernel)image_find_function(library->image, name);
    return *kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
    DRIVER_CHECK();
    INVALID_IF(!count);
    REFUSE_IF(!is_library(library), CUDA_ERROR_INVALID_HANDLE);
    *count = library->image->function_count;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int count, CUlibrary library)
{
    DRIVER_CHECK();
    INVALID_IF(!kernels);
    REFUSE_IF(!is_library(library), CUDA_ERROR_INVALID_HANDLE);
    struct CUfunc_st *function = library->image->functions;
    for (unsigned int i = 0; i < count && function; i++, function = function->next)
        kernels[i] = (CUkernel)function;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name)
{
    struct CUmod_st *module;
    CHECK(current_module(library, &module));
    return name && (address || bytes) ? module_global_of(module, name, address, bytes)
                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                             const char *name)
{
    struct CUmod_st *module = NULL;
    DRIVER_CHECK();
    INVALID_IF(!name || (!address && !bytes));
    REFUSE_IF(!is_library(library), CUDA_ERROR_INVALID_HANDLE);
    const struct module_global *global = image_find_global(library->image, name);
    REFUSE_IF(!global || global->kind != GLOBAL_MANAGED, CUDA_ERROR_NOT_FOUND);
    /* Here each context has managed variables of its own; the driver's are the same in all. */
    CHECK(current_module(library, &module));
    return module_global_of(module, name, address, bytes);
}

/* Pointers that host code could call through exist on devices with unified function pointers
 * (CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS), which no profile is. */
CUresult cuLibraryGetUnifiedFunction(void **function, CUlibrary library, const char *name)
{
    DRIVER_CHECK();
    INVALID_IF(!function || !name);
    return is_library(library) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}
