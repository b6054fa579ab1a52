/* How names are looked up with the shim preloaded. Run with libcuda.so.1 to be found by the loader.
 *
 *   shim_lookup without   before libcuda is in the process
 *   shim_lookup with      after it was opened
 *   shim_lookup older     after one of CUDA 11.8 was opened
 *   shim_lookup own FILE  with a library that has a dlsym of its own (own_dlsym.c) */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vgpu/cuda_api.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static int is_in(void *address, const char *library)
{
    Dl_info info;
    return address != NULL && dladdr(address, &info) != 0 && info.dli_fname != NULL &&
           strstr(info.dli_fname, library) != NULL;
}

static void check_names_that_are_not_ours(void)
{
    /* Twice: a look-up must not change the answer of the next one. */
    for (int i = 0; i < 2; i++) {
        CHECK(is_in(dlsym(RTLD_NEXT, "malloc"), "libc.so"));
        CHECK(is_in(dlsym(RTLD_DEFAULT, "getenv"), "libc.so"));
        CHECK(dlsym(RTLD_DEFAULT, "cuda_is_not_a_driver_name") == NULL);
        CHECK(dlsym(RTLD_DEFAULT, "curl_easy_init") == NULL);
        CHECK(is_in(dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14"), "libc.so"));
        CHECK(dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_9.9") == NULL);
    }
}

static void check_without(void)
{
    check_names_that_are_not_ours();
    CHECK(dlsym(RTLD_DEFAULT, "cuInit") == NULL);
    CHECK(dlsym(RTLD_NEXT, "cuInit") == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo") == NULL);
}

static void check_with(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver != NULL);
    check_names_that_are_not_ours();
    /* every way to a hooked name ends at the hook */
    void *hook = dlsym(driver, "cuMemAlloc_v2");
    CHECK(is_in(hook, "libvgpu.so"));
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == hook);
    CHECK(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == hook);
    /* and names that are not hooked at the driver */
    CHECK(is_in(dlsym(driver, "cuDeviceGetCount"), "libcuda.so"));
    CHECK(dlsym(driver, "cuNoSuchFunction") == NULL);
    /* the loader's own functions are not handed out to get around us */
    void *(*next)(void *, const char *) = dlsym(RTLD_NEXT, "dlsym");
    CHECK(is_in((void *)next, "libvgpu.so") && next(driver, "cuMemAlloc_v2") == hook);
    void *const libc[] = {RTLD_NEXT, RTLD_DEFAULT, dlopen("libc.so.6", RTLD_NOW)};
    for (int i = 0; i < 3; i++) {
        next = dlvsym(libc[i], "dlsym", "GLIBC_2.2.5");
        CHECK(is_in((void *)next, "libvgpu.so") && next(driver, "cuMemAlloc_v2") == hook);
        CHECK(is_in(dlvsym(libc[i], "dlvsym", "GLIBC_2.2.5"), "libvgpu.so"));
    }
    CHECK(dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_9.9") == NULL);

    __typeof__(&cuGetProcAddress_v2) ask = dlsym(driver, "cuGetProcAddress_v2");
    CHECK(is_in((void *)ask, "libvgpu.so"));
    void *found = NULL;
    CUdriverProcAddressQueryResult status = 7;
    CHECK(ask("cuMemAlloc", &found, 12000, 0, &status) == CUDA_SUCCESS);
    CHECK(found == hook && status == CU_GET_PROC_ADDRESS_SUCCESS);
    /* the per-thread twin is another function, and hooked too */
    CHECK(ask("cuLaunchKernel", &found, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
              &status) == CUDA_SUCCESS);
    CHECK(found == dlsym(driver, "cuLaunchKernel_ptsz") && is_in(found, "libvgpu.so"));
    CHECK(found != dlsym(driver, "cuLaunchKernel"));
    /* a version that is too old is refused in the driver's own way */
    found = hook;
    status = 7;
    CHECK(ask("cuMemAllocAsync", &found, 9000, 0, &status) != CUDA_SUCCESS || found == NULL);
    CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    /* asked for itself, it gives the hook of the version asked for */
    CHECK(ask("cuGetProcAddress", &found, 12000, 0, &status) == CUDA_SUCCESS);
    CHECK(found == (void *)ask);
    CHECK(ask("cuGetProcAddress", &found, 11030, 0, &status) == CUDA_SUCCESS);
    CHECK(found == dlsym(driver, "cuGetProcAddress") && is_in(found, "libvgpu.so"));
}

/* What came after this driver is not there, though the shim exports it. */
static void check_older(void)
{
    static const char *const newer[] = {"cuGetProcAddress_v2", "cuLibraryLoadData",
                                        "cuCtxCreate_v4", "cuGreenCtxCreate",
                                        "cuStreamBeginCaptureToGraph_ptsz"};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver != NULL);
    check_names_that_are_not_ours();
    void *hook = dlsym(driver, "cuMemAlloc_v2");
    CHECK(is_in(hook, "libvgpu.so") && dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == hook);
    __typeof__(&cuGetProcAddress) ask = dlsym(driver, "cuGetProcAddress");
    CHECK(is_in((void *)ask, "libvgpu.so"));
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
        void *const handles[] = {driver, RTLD_DEFAULT, RTLD_NEXT};
        for (int k = 0; k < 3; k++) {
            dlerror();
            CHECK(dlsym(handles[k], newer[i]) == NULL);
            CHECK(dlerror() != NULL);
        }
    }
    void *found = NULL;
    CHECK(ask("cuMemAlloc", &found, 11080, 0) == CUDA_SUCCESS && found == hook);
    CHECK(ask("cuGetProcAddress", &found, 11080, 0) == CUDA_SUCCESS && found == (void *)ask);
    CHECK(ask("cuCtxCreate", &found, 11080, 0) == CUDA_SUCCESS);
    CHECK(found == dlsym(driver, "cuCtxCreate_v3") && is_in(found, "libvgpu.so"));
    found = NULL;
    CHECK(ask("cuLibraryLoadData", &found, 12000, 0) != CUDA_SUCCESS || found == NULL);
}

static void check_own(const char *file)
{
    void *library = dlopen(file, RTLD_NOW);
    CHECK(library != NULL);
    CHECK(is_in(dlsym(library, "dlsym"), file));
    CHECK(is_in(dlvsym(library, "dlsym", "OWN_1"), file));
    CHECK(is_in(dlsym(RTLD_DEFAULT, "dlsym"), "libvgpu.so"));
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "own") == 0)
        check_own(argv[2]);
    else if (argc == 2 && strcmp(argv[1], "without") == 0)
        check_without();
    else if (argc == 2 && strcmp(argv[1], "older") == 0)
        check_older();
    else
        check_with();
    puts("ok");
    return 0;
}
