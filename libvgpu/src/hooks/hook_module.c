/* Hooks of modules: code in one context, whose variables are device memory from the load to the
 * unload or the context's end. With lazy loading too: the driver may take them later, the charge is
 * made at the load. */
#include "code/module_size.h"
#include "compute/capture.h"
#include "compute/collective.h"
#include "hooks/hook.h"
#include "memory/charge.h"
#include "slice/region.h"
#include "vgpu/contract.h"

/* Reserves for `size` in the current context, and begins to measure. */
static CUresult begin(struct module_load *load, const struct image_size *size)
{
    *load = (struct module_load){.size = *size};
    CUresult result =
        charge_reserve_current(&load->charge, VGPU_KIND_MODULE, module_size_reserved(size));
    if (result == CUDA_SUCCESS)
        module_load_begin(load);
    return result;
}

/* `module` as the program passed it, `made` as the driver filled it. */
static CUresult end(struct module_load *load, CUresult result, CUmodule *module, CUmodule made)
{
    if (result == CUDA_SUCCESS && !module_load_end(load)) {
        struct capture_pause pause = capture_pause();
        real.cuModuleUnload(made);
        capture_resume(pause);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS)
        *module = made;
    return charge_settle(&load->charge, result, SPACE_MODULE, &made);
}

/* `call` is the driver's, with `made` for the new module; without a slice, or for code that takes
 * nothing, the program's own arguments go to it. */
#define LOAD(symbol, module, size_call, call_made, call) \
    do { \
        NEED(symbol); \
        if (module == NULL || region_open() == REGION_NONE) \
            return call; \
        struct image_size size = size_call; \
        if (!module_size_matters(&size)) \
            return call; \
        struct module_load load; \
        CUmodule made = NULL; \
        CUresult result = begin(&load, &size); \
        if (result != CUDA_SUCCESS) \
            return result; \
        result = call_made; \
        return end(&load, result, module, made); \
    } while (0)

VGPU_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(cuModuleLoad, module, module_size_of_file(path, MODULE_CURRENT_DEVICE),
         real.cuModuleLoad(&made, path), real.cuModuleLoad(module, path));
}

VGPU_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadData, module, module_size_of_image(image, MODULE_CURRENT_DEVICE),
         real.cuModuleLoadData(&made, image), real.cuModuleLoadData(module, image));
}

VGPU_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image,
                                        unsigned int option_count, CUjit_option *options,
                                        void **option_values)
{
    LOAD(cuModuleLoadDataEx, module, module_size_of_image(image, MODULE_CURRENT_DEVICE),
         real.cuModuleLoadDataEx(&made, image, option_count, options, option_values),
         real.cuModuleLoadDataEx(module, image, option_count, options, option_values));
}

VGPU_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadFatBinary, module, module_size_of_image(image, MODULE_CURRENT_DEVICE),
         real.cuModuleLoadFatBinary(&made, image), real.cuModuleLoadFatBinary(module, image));
}

VGPU_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    NEED(cuModuleUnload);
    CHARGE_FREE(SPACE_MODULE, module, collective_after_unload(real.cuModuleUnload(module)));
}
