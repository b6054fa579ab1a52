#include "driver/real.h"

#include <dlfcn.h>
#include <sched.h>

#include "driver/elf_lookup.h"
#include "driver/log.h"

struct real real;
void *real_dlsym_address;
void *real_dlvsym_address;

#define MOST_YIELDS 100000

/* Racing first calls find the same values; one of them stores these, so that whoever has seen
 * STORED reads them without atomic loads. */
enum stage { NOBODY, STORING, STORED };

static enum stage loader_stage;
static enum stage cuda_stage;
static enum stage nvml_stage;
static void *cuda_handle; /* stored last, when the table is filled */
static void *nvml_handle;

static bool is_stored(const enum stage *stage)
{
    return __builtin_expect(__atomic_load_n(stage, __ATOMIC_ACQUIRE) == STORED, 1);
}

/* True for the thread that shall store; the others come back when it has. */
static bool begin_storing(enum stage *stage)
{
    enum stage seen = NOBODY;
    if (__atomic_compare_exchange_n(stage, &seen, STORING, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return true;
    for (int i = 0; i < MOST_YIELDS; i++) {
        if (is_stored(stage))
            return false;
        sched_yield();
    }
    return true; /* a child that was forked meanwhile has no such thread: the same values again */
}

static void end_storing(enum stage *stage)
{
    __atomic_store_n(stage, STORED, __ATOMIC_RELEASE);
}

bool real_find_loader(void)
{
    if (is_stored(&loader_stage))
        return true;
    static const char *const objects[] = {"libc.so.6", "libdl.so.2"}; /* before glibc 2.34 */
    for (int i = 0; i < 2; i++) {
        void *dlvsym_found = elf_lookup(objects[i], "dlvsym");
        void *dlsym_found = elf_lookup(objects[i], "dlsym");
        if (dlvsym_found == NULL || dlsym_found == NULL)
            continue;
        if (begin_storing(&loader_stage)) {
            real_dlvsym_address = dlvsym_found;
            real_dlsym_address = dlsym_found;
            end_storing(&loader_stage);
        }
        return true;
    }
    return false;
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

void *real_find_cuda(const char *symbol)
{
    struct elf_object object = elf_object_of(cuda_handle);
    return elf_find(&object, symbol);
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

/* Some 200 names are looked up while the program's first call waits. */
static void *find(const struct elf_object *object, void *handle, const char *symbol)
{
    void *found = elf_find(object, symbol);
    return found != NULL ? found : real_dlsym(handle, symbol);
}

/* Fills the fields of one library; the other's keep their values. */
static void fill(void *handle, bool nvml)
{
    struct elf_object object = elf_object_of(handle);
#define CALL(symbol) \
    if (is_nvml_name(#symbol) == nvml) \
        real.symbol = (__typeof__(real.symbol))find(&object, handle, #symbol);
#define EACH(symbol) CALL(symbol)
#include "hooks/hooks.def"
#undef EACH
    REAL_CUDA_CALLS(CALL)
    REAL_NVML_CALLS(CALL)
#undef CALL
}

static bool load(enum stage *stage, void **slot, const char *library, bool nvml)
{
    if (is_stored(stage))
        return true;
    void *handle = open_library(library, true);
    if (handle == NULL) {
        log_line(LOG_INFO, "%s cannot be loaded: %s", library, dlerror());
        return false;
    }
    if (begin_storing(stage)) {
        fill(handle, nvml);
        __atomic_store_n(slot, handle, __ATOMIC_RELEASE);
        end_storing(stage);
    }
    return true;
}

bool real_load_cuda(void)
{
    return load(&cuda_stage, &cuda_handle, "libcuda.so.1", false);
}

bool real_load_nvml(void)
{
    return load(&nvml_stage, &nvml_handle, "libnvidia-ml.so.1", true);
}
