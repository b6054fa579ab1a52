/*
 * Modules: an image in one context, and its variables as memory of that context, charged when the
 * module is loaded and given back with it or with the context, whichever ends first. A module of a
 * context that ended is only freed; its handle answers CUDA_ERROR_CONTEXT_IS_DESTROYED.
 */
#include <stdlib.h>
#include <string.h>

#include "context_memory.h"

#define VERSION_LAZY_BY_DEFAULT 12020

bool module_lives(const struct CUmod_st *module)
{
    return module->context->alive && module->context->id == module->context_id;
}

static CUresult check_module(const struct CUmod_st *module)
{
    DRIVER_CHECK();
    REFUSE_IF(!handle_is(MAGIC_MODULE, module), CUDA_ERROR_INVALID_HANDLE);
    return module_lives(module) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void module_free(struct CUmod_st *module)
{
    bool lives = module_lives(module);
    for (uint32_t i = 0; module->addresses && lives && i < module->image->global_count; i++)
        if (module->addresses[i])
            memory_forget(module->addresses[i]);
    if (lives)
        context_unload_code(module);
    free(module->addresses);
    handle_bury(module);
}

CUresult module_place(struct CUctx_st *context, struct image *image, struct CUmod_st **result)
{
    CUresult error = CUDA_SUCCESS;
    struct CUmod_st *module = handle_new(MAGIC_MODULE, sizeof *module);
    REFUSE_IF(!module, CUDA_ERROR_OUT_OF_MEMORY);
    *module = (struct CUmod_st){.magic = MAGIC_MODULE,
                                .context = context,
                                .context_id = context->id,
                                .image = image,
                                .addresses = calloc(image->global_count + 1, sizeof(CUdeviceptr))};
    if (!module->addresses)
        error = CUDA_ERROR_OUT_OF_MEMORY;
    for (struct module_global *global = image->globals; global && error == CUDA_SUCCESS;
         global = global->next)
        error = memory_allocate(context, global->bytes,
                                global->kind == GLOBAL_MANAGED ? ALLOCATION_OWN_MANAGED
                                                               : ALLOCATION_OWN,
                                &module->addresses[global->index]);
    if (error != CUDA_SUCCESS)
        module_free(module);
    else
        *result = module;
    return error;
}

CUresult module_global_of(const struct CUmod_st *module, const char *name, CUdeviceptr *address,
                          size_t *bytes)
{
    const struct module_global *global = image_find_global(module->image, name);
    REFUSE_IF(!global, CUDA_ERROR_NOT_FOUND);
    if (address)
        *address = module->addresses[global->index];
    if (bytes)
        *bytes = global->bytes;
    return CUDA_SUCCESS;
}

bool module_loads_lazily(void)
{
    const char *mode = getenv("CUDA_MODULE_LOADING");
    if (mode && strcmp(mode, "EAGER") == 0)
        return false;
    return (mode && strcmp(mode, "LAZY") == 0) || driver_version() >= VERSION_LAZY_BY_DEFAULT;
}

static CUresult load(CUmodule *result, const void *bytes, uint64_t length)
{
    struct CUctx_st *context;
    struct image *image;
    CHECK(context_current(&context));
    INVALID_IF(!result || !bytes);
    CHECK(image_read(bytes, length, image_architecture(), &image));
    /* What is declared and defined nowhere the compiler refuses; only a linker could add it. */
    CUresult error =
        image_is_complete(image) ? module_place(context, image, result) : CUDA_ERROR_INVALID_PTX;
    if (error != CUDA_SUCCESS) {
        image_free(image);
        return error;
    }
    image->module = *result;
    for (struct CUfunc_st *each = image->functions; each && !module_loads_lazily();
         each = each->next)
        each->loaded = true;
    return CUDA_SUCCESS;
}

/* Nothing is compiled: the logs are empty. */
void jit_options_answer(unsigned int count, const CUjit_option *options, void **values)
{
    for (unsigned int i = 0; i < count; i++)
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ||
            options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
            CUjit_option buffer = options[i] - 1; /* its number comes just before */
            for (unsigned int j = 0; j < count; j++)
                if (options[j] == buffer && values[j] && values[i])
                    *(char *)values[j] = 0;
            values[i] = NULL;
        }
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CALL_TAKES(cuModuleLoad);
    return load(module, image, 0);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int option_count,
                            CUjit_option *options, void **option_values)
{
    CALL_TAKES(cuModuleLoad);
    INVALID_IF(option_count && (!options || !option_values));
    jit_options_answer(option_count, options, option_values);
    return load(module, image, 0);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    CALL_TAKES(cuModuleLoad);
    return load(module, image, 0);
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    CALL_TAKES(cuModuleLoad);
    void *bytes;
    uint64_t length;
    CURRENT_CONTEXT(context);
    INVALID_IF(!module || !path);
    CUresult result = image_read_file(path, &bytes, &length);
    if (result == CUDA_SUCCESS) {
        result = load(module, bytes, length);
        free(bytes);
    }
    return result;
}

CUresult cuModuleUnload(CUmodule module)
{
    CALL_TAKES(cuModuleUnload);
    DRIVER_CHECK();
    REFUSE_IF(!handle_is(MAGIC_MODULE, module), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(module->image->library, CUDA_ERROR_NOT_PERMITTED); /* goes with its library */
    CHECK(capture_check_unsafe());
    CHECK(stream_calls_settle());
    struct image *image = module->image;
    module_free(module);
    image_free(image);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CHECK(check_module(module));
    INVALID_IF(!function || !name);
    *function = image_find_function(module->image, name);
    REFUSE_IF(!*function, CUDA_ERROR_NOT_FOUND);
    (*function)->loaded = true;
    return context_load_code(module->context, *function);
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
    CHECK(check_module(module));
    INVALID_IF(!count);
    *count = module->image->function_count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count, CUmodule module)
{
    CHECK(check_module(module));
    INVALID_IF(!functions);
    struct CUfunc_st *function = module->image->functions;
    for (unsigned int i = 0; i < count && function; i++, function = function->next)
        functions[i] = function;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name)
{
    CHECK(check_module(module));
    return name && (address || bytes) ? module_global_of(module, name, address, bytes)
                                      : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    DRIVER_CHECK();
    INVALID_IF(!mode);
    *mode = module_loads_lazily() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}
