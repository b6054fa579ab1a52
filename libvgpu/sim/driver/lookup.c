/*
 * cuGetProcAddress over the one table of entry points (entries.def): by public name, the newest ABI
 * that is not newer than the asked version, and with CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
 * the per-thread twin where there is one.
 *
 * Entry points that this driver does not do (ABSENT rows) exist all the same, as on a real driver,
 * and answer CUDA_ERROR_NOT_SUPPORTED: a client that looks all of them up at the start, as
 * cuda-bindings does, then runs, and learns of what is missing by the call that needs it.
 */
#include <string.h>

#include "driver.h"

enum twin { NONE, PTSZ, PTDS };

struct entry {
    const char *name;
    int since;
    enum twin twin;
    void *function;
};

/* Every absent entry point is this one under another name. */
CUresult driver_absent_entry(void);

static const struct entry entries[] = {
#define ENTRY(symbol, name, since, twin) {name, since, twin, (void *)symbol},
#define ABSENT(symbol, name, since, twin) {name, since, twin, (void *)driver_absent_entry},
#include "entries.def"
#undef ENTRY
#undef ABSENT
};

static const struct entry *find_entry(const char *name, int version, bool per_thread, bool *known)
{
    const struct entry *best = NULL;
    const int newest = driver_version();
    *known = false;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        const struct entry *entry = &entries[i];
        if (entry->since > newest || strcmp(entry->name, name) != 0)
            continue;
        if (entry->twin != NONE && !per_thread)
            continue;
        *known = true;
        if (entry->since > version)
            continue;
        /* a twin before its original, then the newer one */
        bool better = !best || (entry->twin != NONE && best->twin == NONE) ||
                      ((entry->twin != NONE) == (best->twin != NONE) && entry->since > best->since);
        if (better)
            best = entry;
    }
    return best;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    if (!name || !function || version > driver_version() ||
        flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                              CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    bool known;
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct entry *entry = find_entry(name, version, per_thread, &known);
    *function = entry ? entry->function : NULL;
    if (status)
        *status = entry   ? CU_GET_PROC_ADDRESS_SUCCESS
                  : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                          : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

/* The older form has no status to say it with. */
CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    CUresult result = cuGetProcAddress_v2(name, function, version, flags, NULL);
    return result == CUDA_SUCCESS && !*function ? CUDA_ERROR_NOT_FOUND : result;
}
