/* Hooks of modules: code in one context, charged from the load to the unload or the context's end
 * (code_load.h). */
#include "code/code_load.h"
#include "compute/capture.h"
#include "hooks/hook.h"
#include "hooks/hook_unload.h"
#include "memory/local_memory.h"
#include "memory/reconcile.h"

/* Undoes a load that does not count. */
static void unload(CUmodule module)
{
    struct capture_pause pause = capture_pause();
    real.cuModuleUnload(module);
    capture_resume(pause);
}

#define LOAD(symbol, parameters, ...) \
    VGPU_EXPORT CUresult symbol parameters \
    { \
        if (!cuda_has(&real.symbol)) \
            return CUDA_ERROR_NOT_INITIALIZED; \
        struct code_load load = {0}; \
        enum code_load_verdict verdict; \
        CUmodule made = NULL; /* a refusal leaves the program's as it was */ \
        CUresult result; \
        do { \
            code_load_begin(&load); \
            result = real.symbol(module != NULL ? &made : NULL, __VA_ARGS__); \
            verdict = code_load_end(&load, result); \
            if (verdict != CODE_LOADED) \
                unload(made); \
        } while (verdict == CODE_TRY_AGAIN); \
        if (verdict == CODE_REFUSED) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        if (result == CUDA_SUCCESS) { \
            *module = made; \
            charge_keep(&load.charge, SPACE_MODULE, (uintptr_t)made); \
        } \
        return result; \
    }

LOAD(cuModuleLoad, (CUmodule * module, const char *path), path)
LOAD(cuModuleLoadData, (CUmodule * module, const void *image), image)
LOAD(cuModuleLoadDataEx,
     (CUmodule * module, const void *image, unsigned int option_count, CUjit_option *options,
      void **option_values),
     image, option_count, options, option_values)
LOAD(cuModuleLoadFatBinary, (CUmodule * module, const void *image), image)

VGPU_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    if (!cuda_has(&real.cuModuleUnload))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge_free free = charge_free_begin(SPACE_MODULE, (uintptr_t)module);
    return charge_free_end(&free, code_unloaded(module, real.cuModuleUnload(module)));
}

/* ---- what hands functions out: their first launch may take memory ---- */

VGPU_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    if (!cuda_has(&real.cuModuleGetFunction))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = real.cuModuleGetFunction(function, module, name);
    if (result == CUDA_SUCCESS)
        local_memory_handed_out(function, 1, module);
    reconcile_soon();
    return result;
}

VGPU_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count,
                                                CUmodule module)
{
    if (!cuda_has(&real.cuModuleEnumerateFunctions))
        return CUDA_ERROR_NOT_INITIALIZED;
    unsigned int there = 0;
    CUresult result = real.cuModuleEnumerateFunctions(functions, count, module);
    if (result == CUDA_SUCCESS && functions != NULL && real.cuModuleGetFunctionCount != NULL &&
        real.cuModuleGetFunctionCount(&there, module) == CUDA_SUCCESS)
        local_memory_handed_out(functions, there < count ? there : count, module);
    reconcile_soon();
    return result;
}
