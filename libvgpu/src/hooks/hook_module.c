/* Hooks of modules: code in one context, charged from the load to the unload or the context's end
 * (code_load.h). */
#include "hooks/hook_code.h"

static void keep(const struct charge *charge, uint64_t module)
{
    charge_keep(charge, SPACE_MODULE, module, NULL);
}

LOAD(cuModuleLoad, module, (CUmodule * module, const char *path), real.cuModuleUnload, keep, path)
LOAD(cuModuleLoadData, module, (CUmodule * module, const void *image), real.cuModuleUnload, keep,
     image)
LOAD(cuModuleLoadDataEx, module,
     (CUmodule * module, const void *image, unsigned int option_count, CUjit_option *options,
      void **option_values),
     real.cuModuleUnload, keep, image, option_count, options, option_values)
LOAD(cuModuleLoadFatBinary, module, (CUmodule * module, const void *image), real.cuModuleUnload,
     keep, image)

VGPU_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    NEEDS(cuModuleUnload);
    struct charge_free free = charge_free_begin(SPACE_MODULE, (uintptr_t)module);
    return charge_free_end(&free, code_unloaded(module, real.cuModuleUnload(module)));
}

/* ---- what hands functions out: their first launch may take memory ---- */

static void handed_out(const CUfunction *functions, unsigned int count, const char *name,
                       CUmodule module)
{
    for (unsigned int i = 0; i < count; i++)
        collective_named(functions[i], name);
    local_memory_handed_out(functions, count, module);
}

VGPU_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    NEEDS(cuModuleGetFunction);
    CUresult result = real.cuModuleGetFunction(function, module, name);
    if (result == CUDA_SUCCESS && function != NULL)
        handed_out(function, 1, name, module);
    reconcile_current_soon();
    return result;
}

VGPU_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int count,
                                                CUmodule module)
{
    NEEDS(cuModuleEnumerateFunctions);
    unsigned int there = 0;
    CUresult result = real.cuModuleEnumerateFunctions(functions, count, module);
    if (result == CUDA_SUCCESS && functions != NULL && real.cuModuleGetFunctionCount != NULL &&
        real.cuModuleGetFunctionCount(&there, module) == CUDA_SUCCESS)
        handed_out(functions, there < count ? there : count, NULL, module);
    reconcile_current_soon();
    return result;
}
