#include "real.h"

#include <dlfcn.h>

#include "elf_lookup.h"
#include "log.h"

struct real real;
void *real_dlsym_address;
void *real_dlvsym_address;

static void *cuda_handle; /* stored last, when the table is filled */
static void *nvml_handle;

bool real_find_loader(void)
{
    if (__builtin_expect(real_dlsym_address != NULL, 1))
        return true;
    /* libdl.so.2 holds them before glibc 2.34; racing first calls store the same values. */
    static const char *const objects[] = {"libc.so.6", "libdl.so.2"};
    for (int i = 0; i < 2 && real_dlsym_address == NULL; i++) {
        void *dlvsym_found = elf_lookup(objects[i], "dlvsym");
        void *dlsym_found = elf_lookup(objects[i], "dlsym");
        if (dlvsym_found != NULL && dlsym_found != NULL) {
            real_dlvsym_address = dlvsym_found;
            __atomic_store_n(&real_dlsym_address, dlsym_found, __ATOMIC_RELEASE);
        }
    }
    return real_dlsym_address != NULL;
}

void *real_dlsym(void *handle, const char *name)
{
    if (!real_find_loader())
        return NULL;
    return ((void *(*)(void *, const char *))real_dlsym_address)(handle, name);
}

/* Opens a library that the process already has, or, if asked, one it does not have yet. */
static void *open_library(const char *name, bool may_load)
{
    void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL && may_load)
        handle = dlopen(name, RTLD_LAZY);
    return handle;
}

bool real_has_cuda(void)
{
    if (__atomic_load_n(&cuda_handle, __ATOMIC_ACQUIRE) != NULL)
        return true;
    void *handle = open_library("libcuda.so.1", false);
    if (handle != NULL)
        dlclose(handle);
    return handle != NULL;
}

bool real_has_nvml(void)
{
    if (__atomic_load_n(&nvml_handle, __ATOMIC_ACQUIRE) != NULL)
        return true;
    void *handle = open_library("libnvidia-ml.so.1", false);
    if (handle != NULL)
        dlclose(handle);
    return handle != NULL;
}

static bool is_nvml_name(const char *symbol)
{
    return symbol[0] == 'n';
}

/* Fills the fields of one library; the other's keep their values. */
static void fill(void *handle, bool nvml)
{
#define CALL(symbol) \
    if (is_nvml_name(#symbol) == nvml) \
        real.symbol = (__typeof__(real.symbol))real_dlsym(handle, #symbol);
#define EACH(symbol) CALL(symbol)
#include "hooks.def"
#undef EACH
    REAL_CUDA_CALLS(CALL)
    REAL_NVML_CALLS(CALL)
#undef CALL
}

static bool load(void **slot, const char *library, bool nvml)
{
    if (__builtin_expect(__atomic_load_n(slot, __ATOMIC_ACQUIRE) != NULL, 1))
        return true;
    void *handle = open_library(library, true);
    if (handle == NULL) {
        log_line(LOG_INFO, "%s cannot be loaded: %s", library, dlerror());
        return false;
    }
    fill(handle, nvml); /* racing first calls store the same values */
    __atomic_store_n(slot, handle, __ATOMIC_RELEASE);
    return true;
}

bool real_load_cuda(void)
{
    return load(&cuda_handle, "libcuda.so.1", false);
}

bool real_load_nvml(void)
{
    return load(&nvml_handle, "libnvidia-ml.so.1", true);
}
