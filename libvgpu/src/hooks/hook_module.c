/* Hooks of modules: code in one context, whose variables are device memory from the load to the
 * unload or the context's end. With lazy loading too: the driver may take them later, the charge is
 * made at the load. */
#include "code/module_size.h"
#include "compute/capture.h"
#include "hooks/hook.h"
#include "hooks/hook_unload.h"
#include "memory/charge.h"
#include "memory/local_memory.h"
#include "slice/region.h"
#include "vgpu/contract.h"

/* A module that is being loaded. */
struct load {
    struct module_load measured;
    CUmodule made;
    bool is_charged; /* else the driver fills the program's own variable */
};

/* Before the driver's call, which fills what load_target says: reserves for `size` in the current
 * context and begins to measure. CUDA_SUCCESS, or what the hook returns. */
static CUresult load_begin(struct load *load, const struct image_size *size)
{
    *load = (struct load){.measured.size = *size, .is_charged = module_size_matters(size)};
    if (!load->is_charged)
        return CUDA_SUCCESS;
    CUresult result = charge_reserve_current(&load->measured.charge, VGPU_KIND_MODULE,
                                             module_size_reserved(size));
    if (result == CUDA_SUCCESS)
        module_load_begin(&load->measured);
    return result;
}

static CUmodule *load_target(struct load *load, CUmodule *module)
{
    return load->is_charged ? &load->made : module;
}

static CUresult load_end(struct load *load, CUresult result, CUmodule *module)
{
    if (!load->is_charged)
        return result;
    if (result == CUDA_SUCCESS && !module_load_end(&load->measured)) {
        struct capture_pause pause = capture_pause();
        real.cuModuleUnload(load->made);
        capture_resume(pause);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *module = load->made;
    return charge_settle(&load->measured.charge, result, SPACE_MODULE, &load->made);
}

/* Of a load that nobody charges the size is empty. */
static bool is_charged(const CUmodule *module)
{
    return module != NULL && region_open() != REGION_NONE;
}

VGPU_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    if (!cuda_has(&real.cuModuleLoad))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct load load;
    struct image_size size = {0};
    if (is_charged(module))
        size = module_size_of_file(path, MODULE_CURRENT_DEVICE);
    CUresult result = load_begin(&load, &size);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuModuleLoad(load_target(&load, module), path);
    return load_end(&load, result, module);
}

VGPU_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    if (!cuda_has(&real.cuModuleLoadData))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct load load;
    struct image_size size = {0};
    if (is_charged(module))
        size = module_size_of_image(image, MODULE_CURRENT_DEVICE);
    CUresult result = load_begin(&load, &size);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuModuleLoadData(load_target(&load, module), image);
    return load_end(&load, result, module);
}

VGPU_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image,
                                        unsigned int option_count, CUjit_option *options,
                                        void **option_values)
{
    if (!cuda_has(&real.cuModuleLoadDataEx))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct load load;
    struct image_size size = {0};
    if (is_charged(module))
        size = module_size_of_image(image, MODULE_CURRENT_DEVICE);
    CUresult result = load_begin(&load, &size);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuModuleLoadDataEx(load_target(&load, module), image, option_count, options,
                                     option_values);
    return load_end(&load, result, module);
}

VGPU_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    if (!cuda_has(&real.cuModuleLoadFatBinary))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct load load;
    struct image_size size = {0};
    if (is_charged(module))
        size = module_size_of_image(image, MODULE_CURRENT_DEVICE);
    CUresult result = load_begin(&load, &size);
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuModuleLoadFatBinary(load_target(&load, module), image);
    return load_end(&load, result, module);
}

VGPU_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    if (!cuda_has(&real.cuModuleUnload))
        return CUDA_ERROR_NOT_INITIALIZED;
    struct charge_free free = charge_free_begin(SPACE_MODULE, (uintptr_t)module);
    return charge_free_end(&free, code_unloaded(module, real.cuModuleUnload(module)));
}

/* ---- what hands functions out: their first launch may grow local memory ---- */

VGPU_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    if (!cuda_has(&real.cuModuleGetFunction))
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = real.cuModuleGetFunction(function, module, name);
    if (result == CUDA_SUCCESS)
        local_memory_handed_out(function, 1, module);
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
    return result;
}
