/* Modules and libraries: named functions and globals out of PTX text or a cubin. Nothing is
 * compiled. A module's globals are device memory, charged when it is loaded; a library's when they
 * are first asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define ELF_MAGIC "\177ELF"
#define FATBIN_MAGIC 0xba55ed50u

struct CUfunc_st *module_add_function(struct CUmod_st *module, const char *name, size_t length)
{
    struct CUfunc_st *function = calloc(1, sizeof *function);
    if (!function || !(function->name = strndup(name, length))) {
        free(function);
        return NULL;
    }
    function->magic = MAGIC_FUNCTION;
    function->module = module;
    function->spins = strcmp(function->name, "spin_ns") == 0;
    function->parameter_count = UINT32_MAX;
    function->next = module->functions;
    module->functions = function;
    return function;
}

static CUresult place_global(struct CUctx_st *context, struct module_global *global)
{
    return global->address
               ? CUDA_SUCCESS
               : memory_allocate(context, global->bytes, ALLOCATION_DEVICE, &global->address);
}

CUresult module_unload(struct CUmod_st *module)
{
    while (module->globals) {
        struct module_global *global = module->globals;
        module->globals = global->next;
        if (global->address)
            memory_free(module->context, global->address, false);
        free(global->name);
        free(global);
    }
    while (module->functions) {
        struct CUfunc_st *function = module->functions;
        module->functions = function->next;
        function->magic = 0;
        free(function->parameters);
        free(function->name);
        free(function);
    }
    module->magic = 0;
    free(module);
    return CUDA_SUCCESS;
}

CUresult module_load(struct CUctx_st *context, const void *image, struct CUmod_st **result)
{
    struct CUmod_st *module = calloc(1, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->magic = MAGIC_MODULE;
    module->context = context;
    CUresult error = CUDA_SUCCESS;
    uint32_t first_word;
    memcpy(&first_word, image, sizeof first_word);
    if (first_word == FATBIN_MAGIC)
        error = CUDA_ERROR_NO_BINARY_FOR_GPU; /* bundles of images are not unpacked */
    else if (memcmp(image, ELF_MAGIC, 4) == 0)
        error = cubin_parse(module, image) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
    else
        error = ptx_parse(module, image) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
    for (struct module_global *global = module->globals; global && error == CUDA_SUCCESS && context;
         global = global->next)
        error = place_global(context, global);
    if (error != CUDA_SUCCESS)
        module_unload(module);
    else
        *result = module;
    return error;
}

struct CUfunc_st *module_find_function(struct CUmod_st *module, const char *name)
{
    struct CUfunc_st *function = module->functions;
    while (function && strcmp(function->name, name) != 0)
        function = function->next;
    return function;
}

CUresult module_find_global(struct CUmod_st *module, const char *name, CUdeviceptr *address,
                            size_t *bytes)
{
    struct module_global *global = module->globals;
    while (global && strcmp(global->name, name) != 0)
        global = global->next;
    if (!global)
        return CUDA_ERROR_NOT_FOUND;
    if (!module->context) {
        CUresult result = context_current(&module->context);
        if (result != CUDA_SUCCESS)
            return result;
    }
    CUresult result = place_global(module->context, global);
    if (result != CUDA_SUCCESS)
        return result;
    if (address)
        *address = global->address;
    if (bytes)
        *bytes = global->bytes;
    return CUDA_SUCCESS;
}

/* Reads a whole file, with a NUL behind it. */
static CUresult read_image(const char *path, void **image)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    char *bytes = NULL;
    long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    rewind(file);
    if (length >= 0 && (bytes = calloc(1, (size_t)length + 8)) != NULL &&
        fread(bytes, 1, (size_t)length, file) != (size_t)length) {
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    *image = bytes;
    return bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static bool is_module(const struct CUmod_st *module)
{
    return module && module->magic == MAGIC_MODULE;
}

/* ---- modules --------------------------------------------------------------------------------- */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    struct CUctx_st *context;
    CUresult result = context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return module && image ? module_load(context, image, module) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int option_count,
                            CUjit_option *options, void **option_values)
{
    if (option_count && (!options || !option_values))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned int i = 0; i < option_count; i++) /* nothing is compiled: empty logs */
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
            options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            option_values[i] = NULL;
    return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return cuModuleLoadData(module, image);
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    void *image;
    DRIVER_CHECK();
    if (!module || !path)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = read_image(path, &image);
    if (result == CUDA_SUCCESS) {
        result = cuModuleLoadData(module, image);
        free(image);
    }
    return result;
}

CUresult cuModuleUnload(CUmodule module)
{
    DRIVER_CHECK();
    return is_module(module) ? module_unload(module) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    DRIVER_CHECK();
    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_module(module))
        return CUDA_ERROR_INVALID_HANDLE;
    *function = module_find_function(module, name);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name)
{
    DRIVER_CHECK();
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    return is_module(module) ? module_find_global(module, name, address, bytes)
                             : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    DRIVER_CHECK();
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

/* ---- libraries: the same, not tied to a context ---------------------------------------------- */

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit_options,
                           void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                           void **option_values, unsigned int option_count)
{
    DRIVER_CHECK();
    if (!library || !image || (jit_count && !(jit_options && jit_values)) ||
        (option_count && !(options && option_values)))
        return CUDA_ERROR_INVALID_VALUE;
    return module_load(NULL, image, (struct CUmod_st **)library);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit_options,
                               void **jit_values, unsigned int jit_count, CUlibraryOption *options,
                               void **option_values, unsigned int option_count)
{
    void *image;
    DRIVER_CHECK();
    if (!library || !path)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = read_image(path, &image);
    if (result == CUDA_SUCCESS) {
        result = cuLibraryLoadData(library, image, jit_options, jit_values, jit_count, options,
                                   option_values, option_count);
        free(image);
    }
    return result;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    return cuModuleUnload((CUmodule)library);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    DRIVER_CHECK();
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_module((CUmodule)library))
        return CUDA_ERROR_INVALID_HANDLE;
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    return cuModuleGetFunction((CUfunction *)kernel, (CUmodule)library, name);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
                            const char *name)
{
    return cuModuleGetGlobal_v2(address, bytes, (CUmodule)library, name);
}
