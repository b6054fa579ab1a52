#include "code/library_charge.h"

#include <stddef.h>

#include "code/module_size.h"
#include "compute/capture.h"
#include "hooks/real.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"

/* A context in which `library` is not charged; NULL when there is none. Under the mutex. */
static struct member *first_uncharged(const struct library *library)
{
    struct member *member = library_book_members();
    while (member != NULL && library_book_has_pair(library, member))
        member = member->next;
    return member;
}

static uint64_t bytes_of(const struct library *library)
{
    uint64_t measured = __atomic_load_n(&library->measured_bytes, __ATOMIC_RELAXED);
    return measured > library->reserved_bytes ? measured : library->reserved_bytes;
}

/* Has the driver load what cannot be read, and measures it. Out of memory when it does not fit: it
 * is charged all the same, since one context alone cannot be made to give it back. */
static CUresult measure(struct library *library, CUcontext context, struct charge *charge)
{
    struct module_load load = {.size = library->size, .charge = *charge};
    uint64_t elsewhere = __atomic_load_n(&library->measured_bytes, __ATOMIC_RELAXED);
    if (load.size.variable_bytes < elsewhere) /* here it may be loaded already */
        load.size.variable_bytes = elsewhere;
    CUresult result = CUDA_SUCCESS;
    CUmodule module;
    CUcontext popped;
    if (library->handle == NULL || real.cuLibraryGetModule == NULL ||
        real.cuCtxPushCurrent_v2 == NULL || real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return result;
    struct capture_pause pause = capture_pause();
    module_load_begin(&load);
    if (real.cuLibraryGetModule(&module, library->handle) == CUDA_SUCCESS &&
        !module_load_end(&load)) {
        struct charge more;
        charge_force(&more, charge->device, charge->kind, load.measured_bytes - load.charge.bytes);
        load.charge.bytes += more.bytes;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture_resume(pause);
    real.cuCtxPopCurrent_v2(&popped);
    *charge = load.charge;
    return result;
}

/* In a further context it takes as much, also where it is loaded before we can measure it. Under
 * the mutex. */
static void note_measured(struct library *library, uint64_t bytes)
{
    if (library->size.is_unknown && library->measured_bytes < bytes)
        __atomic_store_n(&library->measured_bytes, bytes, __ATOMIC_RELAXED);
}

/* Charges `library` in the context `at`, a copy of a member made under the mutex. */
CUresult library_charge_pair(struct library *library, const struct member *at)
{
    struct charge charge;
    CUresult result = charge_reserve(&charge, at->device, VGPU_KIND_MODULE, bytes_of(library));
    if (result != CUDA_SUCCESS)
        return result;
    if (library->size.is_unknown)
        result = measure(library, at->context, &charge);
    library_book_lock();
    struct member *member = library_book_members();
    while (member != NULL && member->number != at->number)
        member = member->next;
    bool is_wanted = member != NULL && !library_book_has_pair(library, member);
    if (is_wanted)
        library_book_put_pair(library, member, &charge);
    bool is_kept =
        !is_wanted || library_book_has_pair(library, member); /* or there is no host memory */
    note_measured(library, charge.bytes);
    library_book_unlock();
    if (!is_wanted)
        charge_cancel(&charge);
    return is_kept ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult use(struct library *library)
{
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && !__atomic_load_n(&library->is_used, __ATOMIC_ACQUIRE)) {
        library_book_lock();
        struct member *found = first_uncharged(library);
        struct member at = found != NULL ? *found : (struct member){0};
        if (found == NULL)
            __atomic_store_n(&library->is_used, true, __ATOMIC_RELEASE);
        library_book_unlock();
        if (found != NULL)
            result = library_charge_pair(library, &at);
    }
    if (result == CUDA_SUCCESS)
        return result;
    library_book_lock();
    if (!library->is_used && !library->size.is_unknown) /* what was measured is loaded, and stays */
        library_book_drop_pairs(library);
    library_book_unlock();
    return result;
}

static bool loads_eagerly(void)
{
    CUmoduleLoadingMode mode;
    return real.cuModuleGetLoadingMode == NULL ||
           real.cuModuleGetLoadingMode(&mode) != CUDA_SUCCESS || mode != CU_MODULE_LAZY_LOADING;
}

CUresult library_charge_begin(struct library **result, const struct image_size *size)
{
    library_book_lock();
    struct library *library = library_book_add_library(size, module_size_reserved(size));
    library_book_unlock();
    if (library == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *result = library;
    if (!loads_eagerly())
        return CUDA_SUCCESS;
    if (size->is_unknown) {
        int device = devices_current();
        if (device >= 0 && region_claim())
            load_cost_begin(&library->cost, (uint32_t)device, true);
        return CUDA_SUCCESS;
    }
    CUresult used = use(library);
    if (used != CUDA_SUCCESS)
        library_book_end_library(library);
    return used;
}

/* After an eager load of what could not be read: charges every context what it took in all. */
static CUresult use_measured(struct library *library)
{
    uint64_t bytes = 0;
    if (load_cost_end(&library->cost, true, &bytes)) {
        library_book_lock();
        note_measured(library, bytes);
        library_book_unlock();
    }
    return use(library);
}

CUresult library_charge_loaded(struct library *library, CUresult result, CUlibrary handle)
{
    if (result != CUDA_SUCCESS) {
        library_book_end_library(library);
        return result;
    }
    library->handle = handle;
    if (library->size.is_unknown && loads_eagerly())
        result = use_measured(library);
    if (result != CUDA_SUCCESS) {
        real.cuLibraryUnload(handle);
        library_book_end_library(library);
        return result;
    }
    library_book_keep_library(library);
    return result;
}

CUresult library_charge_use(CUlibrary handle)
{
    struct library *library = library_book_find(handle);
    return library != NULL ? use(library) : CUDA_SUCCESS;
}
