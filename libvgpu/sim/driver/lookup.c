/*
 * cuGetProcAddress over the one table of entry points (hooks.def): by public name, the newest ABI
 * that is not newer than the asked version, and with CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
 * the per-thread twin where there is one.
 *
 * Entry points that this driver does not do (absent.def) exist all the same, as on a real driver,
 * and answer CUDA_ERROR_NOT_SUPPORTED: a client that looks all of them up at the start, as
 * cuda-bindings does, then runs, and learns of what is missing by the call that needs it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "driver.h"

#define NEWEST_VERSION 13010
#define TWINS_SINCE 7000 /* per-thread default streams came with CUDA 7.0 */

struct entry {
    const char *name;
    int since;
    bool is_twin;
    const void *function;
};

/* The entry points by their symbols alone: those that this driver does not do have no prototype. */
#define ENTRY(symbol) extern const char entry_##symbol[] __asm__(#symbol);
#define ENTRY_none(symbol) ENTRY(symbol)
#define ENTRY_ptsz(symbol) ENTRY(symbol) ENTRY(symbol##_ptsz)
#define ENTRY_ptds(symbol) ENTRY(symbol) ENTRY(symbol##_ptds)
#define ROW(symbol, name, since, policy, twin, words) ENTRY_##twin(symbol)
#include "hooks/hooks.def"
#undef ROW
#undef ENTRY

/* NVML's rows have no version; nothing refers to what came after this driver. */
#define IS_OURS(since) ((since) > 0 && (since) <= NEWEST_VERSION)
#define ENTRY(symbol, name, since, is_twin) \
    {name, since, is_twin, __builtin_choose_expr(IS_OURS(since), entry_##symbol, NULL)},
#define TWIN_OF(symbol, name, since) \
    ENTRY(symbol, name, ((since) > TWINS_SINCE ? (since) : TWINS_SINCE), true)
#define TWIN_none(symbol, name, since)
#define TWIN_ptsz(symbol, name, since) TWIN_OF(symbol##_ptsz, name, since)
#define TWIN_ptds(symbol, name, since) TWIN_OF(symbol##_ptds, name, since)

static const struct entry entries[] = {
#define ROW(symbol, name, since, policy, twin, words) \
    ENTRY(symbol, name, since, false) TWIN_##twin(symbol, name, since)
#include "hooks/hooks.def"
#undef ROW
};

static const struct entry *find_entry(const char *name, int version, bool per_thread, bool *known)
{
    const struct entry *best = NULL;
    const int newest = driver_version();
    *known = false;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        const struct entry *entry = &entries[i];
        if (entry->function == NULL || entry->since > newest || strcmp(entry->name, name) != 0)
            continue;
        if (entry->is_twin && !per_thread)
            continue;
        *known = true;
        if (entry->since > version)
            continue;
        /* a twin before its original, then the newer one */
        bool better = !best || (entry->is_twin && !best->is_twin) ||
                      (entry->is_twin == best->is_twin && entry->since > best->since);
        if (better)
            best = entry;
    }
    return best;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    INVALID_IF(!name || !function || version > driver_version() ||
               flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                                     CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
    bool known;
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const struct entry *entry = find_entry(name, version, per_thread, &known);
    *function = entry ? (void *)entry->function : NULL;
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
