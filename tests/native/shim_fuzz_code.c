/* Modules, libraries and the limits of contexts. */
#include <unistd.h>

#include "shim_fuzz.h"

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"
#define KERNEL ".visible .entry work() { ret; }\n"

static const char *const images[] = {
    HEAD ".visible .global .align 4 .b8 table[70000];\n" KERNEL,
    HEAD ".global .f64 a[1000];\n.const .align 4 .b8 c[30000];\n.global .u32 one;\n" KERNEL,
    HEAD KERNEL,
    HEAD ".visible .global .attribute(.managed) .align 8 .b8 both[5000];\n" KERNEL,
    HEAD ".visible .global .align 4 .b8 huge[4398046511104];\n" KERNEL,
    "nothing of the kind",
};
static CUmodule modules[6];
static CUlibrary libraries[4];

static void load_module(void)
{
    CUmodule made = (CUmodule)UNTOUCHED, *place = ANY(modules);
    const char *image = one_in(30) ? NULL : *ANY(images);
    int result;
    switch (roll(4)) {
    case 0:
        result = SAY(cuModuleLoadDataEx(&made, image, 0, NULL, NULL));
        break;
    case 1:
        result = SAY(cuModuleLoadFatBinary(&made, image));
        break;
    case 2:
        result = SAY(cuModuleLoad(&made, "/dev/null"));
        break;
    default:
        result = SAY(cuModuleLoadData(&made, image));
    }
    KEEP(result, made, place, cuModuleUnload);
}

/* Without variables: what a library takes is charged some time after its first use. */
static void load_library(void)
{
    CUlibrary made = (CUlibrary)UNTOUCHED, *place = ANY(libraries);
    int result = SAY(cuLibraryLoadData(&made, images[2], NULL, NULL, 0, NULL, NULL, 0));
    KEEP(result, made, place, cuLibraryUnload);
}

static void use_library(CUlibrary library)
{
    CUmodule module = (CUmodule)UNTOUCHED;
    CUkernel kernel = (CUkernel)UNTOUCHED;
    CUfunction function;
    CUdeviceptr address = UNTOUCHED;
    size_t size;
    int result;
    if (library == NULL)
        return;
    switch (roll(5)) {
    case 0:
        result = SAY(cuLibraryGetModule(&module, library));
        fuzz_untouched(result, (uint64_t)(uintptr_t)module);
        return;
    case 1:
        result = SAY(cuLibraryGetGlobal(&address, &size, library, one_in(4) ? "none" : "table"));
        fuzz_untouched(result, address);
        return;
    case 2:
        SAY(cuLibraryGetManaged(&address, &size, library, "both"));
        return;
    default:
        result = SAY(cuLibraryGetKernel(&kernel, library, one_in(8) ? "none" : "work"));
        fuzz_untouched(result, (uint64_t)(uintptr_t)kernel);
        if (result != CUDA_SUCCESS)
            return;
        if (one_in(2))
            SAY(cuKernelGetFunction(&function, kernel));
        else
            SAY(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, fuzz_stream(), NULL, NULL));
    }
}

static void set_limit(void)
{
    CUlimit limit = (CUlimit)roll(8);
    size_t before = 0, after = 0;
    SAY(cuCtxGetLimit(&before, limit));
    size_t value = one_in(6) && limit != CU_LIMIT_STACK_SIZE ? fuzz_bytes(1 << 20)
                   : limit == CU_LIMIT_STACK_SIZE            ? roll(2048)
                                                             : roll(16 << 20);
    int result = SAY(cuCtxSetLimit(limit, value));
    SAY(cuCtxGetLimit(&after, limit));
    fuzz_said("limit", (int)after);
    if (fuzz.is_refused_checked && result == CUDA_ERROR_OUT_OF_MEMORY && before != after)
        fuzz_fail("a refusal changed a limit");
}

void code_step(void)
{
    CUmodule *module = ANY(modules);
    CUlibrary *library = ANY(libraries);
    switch (roll(8)) {
    case 0 ... 1:
        load_module();
        return;
    case 2:
        if (*module != NULL && SAY(cuModuleUnload(*module)) == CUDA_SUCCESS)
            *module = NULL;
        return;
    case 3:
        load_library();
        return;
    case 4 ... 5:
        use_library(*library);
        return;
    case 6:
        if (*library != NULL && SAY(cuLibraryUnload(*library)) == CUDA_SUCCESS)
            *library = NULL;
        return;
    default:
        set_limit();
    }
}
