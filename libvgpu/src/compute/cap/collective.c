#include "compute/cap/collective.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "driver/capture.h"
#include "driver/real.h"

#define WORDS 1024
#define PROBES 8
#define FREE_WORD 0
#define IS_COLLECTIVE 1u

static const char *const prefixes[] = {"ncclDevKernel", "ncclKernel", "nvshmem"};

/* A handle, which is an address of 57 bits at most, and its answer in the lowest bit. */
static uint64_t table[WORDS];

/* Skips what a C++ compiler writes before a name: _Z, letters for how the name is nested or kept
 * local, and its length. Of a nested name that is its outermost part. */
static const char *skip_mangling(const char *name)
{
    if (strncmp(name, "_Z", 2) != 0)
        return name;
    const char *length = name + 2 + strspn(name + 2, "NKL");
    const char *plain = length + strspn(length, "0123456789");
    return plain > length ? plain : name;
}

bool collective_is_name(const char *name)
{
    if (name == NULL)
        return false;
    name = skip_mangling(name);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static bool ask_driver(CUfunction function)
{
    const char *name = NULL;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    struct capture_pause pause = capture_pause();
    if (real.cuFuncGetName != NULL)
        result = real.cuFuncGetName(&name, function);
    if (result != CUDA_SUCCESS && real.cuKernelGetName != NULL)
        result = real.cuKernelGetName(&name, (CUkernel)function);
    capture_resume(pause);
    return result == CUDA_SUCCESS && collective_is_name(name);
}

static uint64_t place_of(uint64_t handle)
{
    handle = (handle ^ handle >> 32) * 0x9e3779b97f4a7c15u;
    return handle >> 48;
}

bool collective_is_function(CUfunction function)
{
    uint64_t handle = (uint64_t)(uintptr_t)function << 1;
    uint64_t home = place_of(handle);
    uint64_t *place = &table[home % WORDS];
    if (handle == 0)
        return false;
    for (uint64_t i = 0; i < PROBES; i++) {
        uint64_t *at = &table[(home + i) % WORDS];
        uint64_t word = __atomic_load_n(at, __ATOMIC_RELAXED);
        if ((word & ~(uint64_t)IS_COLLECTIVE) == handle)
            return (word & IS_COLLECTIVE) != 0;
        if (word == FREE_WORD) {
            place = at;
            break;
        }
    }
    bool is_collective = ask_driver(function);
    __atomic_store_n(place, handle | (is_collective ? IS_COLLECTIVE : 0), __ATOMIC_RELAXED);
    return is_collective;
}

void collective_forget(void)
{
    for (uint32_t i = 0; i < WORDS; i++)
        __atomic_store_n(&table[i], FREE_WORD, __ATOMIC_RELAXED);
}
