#include "library_charge.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "devices.h"
#include "module_size.h"
#include "real.h"
#include "region.h"
#include "vgpu/contract.h"

struct library {
    struct charge_owner owner; /* of the handle's entry in the allocation map */
    struct library *next;
    uint32_t number;
    CUlibrary handle; /* NULL until it is loaded */
    struct image_size size;
    struct load_cost cost;   /* while it is loaded eagerly and has to be measured */
    uint64_t reserved_bytes; /* for one context */
    uint64_t measured_bytes; /* the most it took in one; 0: was not measured. Atomic */
    bool is_used;            /* charged in every context; atomic */
};

struct member {
    struct charge_owner owner; /* of the context's entry */
    struct member *next;
    uint32_t number;
    CUcontext context;
    int device;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct library *libraries, *spare_libraries;
static struct member *members, *spare_members; /* contexts */
static uint32_t last_number;                   /* never given twice */

static void reset_in_child(void)
{
    pthread_mutex_init(&mutex, NULL);
    libraries = spare_libraries = NULL;
    members = spare_members = NULL;
}

static void lock(void)
{
    pthread_mutex_lock(&mutex);
    region_on_child(reset_in_child);
}

static void unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

/* ---- pairs, under the mutex ---- */

static uint64_t key_of(const struct library *library, const struct member *member)
{
    return (uint64_t)(library != NULL ? library->number : 0) << 32 | member->number;
}

static bool is_charged(const struct library *library, const struct member *member)
{
    struct allocation found;
    return allocation_map_find(SPACE_LIBRARY, key_of(library, member), &found);
}

static void drop_pair(const struct library *library, const struct member *member)
{
    struct allocation taken;
    if (allocation_map_take(SPACE_LIBRARY, key_of(library, member), &taken))
        charge_taken(&taken, true);
}

static void put_pair(const struct library *library, const struct member *member,
                     const struct charge *charge)
{
    charge_keep_lasting(charge, SPACE_LIBRARY, key_of(library, member), NULL);
}

static void drop_library(const struct library *library)
{
    for (struct member *member = members; member != NULL; member = member->next)
        drop_pair(library, member);
}

/* ---- ends, told by the allocation map ---- */

#define UNLINK(list, record) \
    do { \
        __typeof__(list) *link_ = &(list); \
        while (*link_ != NULL && *link_ != (record)) \
            link_ = &(*link_)->next; \
        if (*link_ != NULL) \
            *link_ = (record)->next; \
    } while (0)

static void end_library(struct library *library)
{
    lock();
    drop_library(library);
    UNLINK(libraries, library);
    library->next = spare_libraries;
    spare_libraries = library;
    unlock();
}

static void release_library(struct charge_owner *owner, const struct allocation *allocation)
{
    (void)allocation;
    end_library((struct library *)owner);
}

static void release_member(struct charge_owner *owner, const struct allocation *allocation)
{
    struct member *member = (struct member *)owner;
    (void)allocation;
    lock();
    for (struct library *library = libraries; library != NULL; library = library->next)
        drop_pair(library, member);
    UNLINK(members, member);
    member->next = spare_members;
    spare_members = member;
    unlock();
}

/* ---- charging pairs ---- */

/* A context in which `library` is not charged; NULL when there is none. Under the mutex. */
static struct member *first_uncharged(const struct library *library)
{
    struct member *member = members;
    while (member != NULL && is_charged(library, member))
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
    module_load_begin(&load);
    if (real.cuLibraryGetModule(&module, library->handle) == CUDA_SUCCESS &&
        !module_load_end(&load)) {
        struct charge more;
        charge_force(&more, charge->device, charge->kind, load.measured_bytes - load.charge.bytes);
        load.charge.bytes += more.bytes;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
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
static CUresult charge_pair(struct library *library, const struct member *at)
{
    struct charge charge;
    CUresult result = charge_reserve(&charge, at->device, VGPU_KIND_MODULE, bytes_of(library));
    if (result != CUDA_SUCCESS)
        return result;
    if (library->size.is_unknown)
        result = measure(library, at->context, &charge);
    lock();
    struct member *member = members;
    while (member != NULL && member->number != at->number)
        member = member->next;
    bool is_wanted = member != NULL && !is_charged(library, member);
    if (is_wanted)
        put_pair(library, member, &charge);
    bool is_kept = !is_wanted || is_charged(library, member); /* or there is no host memory */
    note_measured(library, charge.bytes);
    unlock();
    if (!is_wanted)
        charge_cancel(&charge);
    return is_kept ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult use(struct library *library)
{
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && !__atomic_load_n(&library->is_used, __ATOMIC_ACQUIRE)) {
        lock();
        struct member *found = first_uncharged(library);
        struct member at = found != NULL ? *found : (struct member){0};
        if (found == NULL)
            __atomic_store_n(&library->is_used, true, __ATOMIC_RELEASE);
        unlock();
        if (found != NULL)
            result = charge_pair(library, &at);
    }
    if (result == CUDA_SUCCESS)
        return result;
    lock();
    if (!library->is_used && !library->size.is_unknown) /* what was measured is loaded, and stays */
        drop_library(library);
    unlock();
    return result;
}

/* ---- libraries ---- */

static bool loads_eagerly(void)
{
    CUmoduleLoadingMode mode;
    return real.cuModuleGetLoadingMode == NULL ||
           real.cuModuleGetLoadingMode(&mode) != CUDA_SUCCESS || mode != CU_MODULE_LAZY_LOADING;
}

CUresult library_charge_begin(struct library **result, const struct image_size *size)
{
    lock();
    struct library *library = spare_libraries;
    if (library != NULL)
        spare_libraries = library->next;
    else
        library = calloc(1, sizeof *library);
    if (library != NULL) {
        *library = (struct library){.owner.release = release_library,
                                    .next = libraries,
                                    .number = ++last_number,
                                    .size = *size,
                                    .reserved_bytes = module_size_reserved(size)};
        libraries = library;
    }
    unlock();
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
        end_library(library);
    return used;
}

/* After an eager load of what could not be read: charges every context what it took in all. */
static CUresult use_measured(struct library *library)
{
    uint64_t bytes = 0;
    if (load_cost_end(&library->cost, true, &bytes)) {
        lock();
        note_measured(library, bytes);
        unlock();
    }
    return use(library);
}

CUresult library_charge_loaded(struct library *library, CUresult result, CUlibrary handle)
{
    if (result != CUDA_SUCCESS) {
        end_library(library);
        return result;
    }
    struct allocation entry = {.address = (uint64_t)(uintptr_t)handle,
                               .owner = &library->owner,
                               .kind = VGPU_KIND_MODULE,
                               .space = SPACE_MODULE};
    library->handle = handle;
    if (library->size.is_unknown && loads_eagerly())
        result = use_measured(library);
    if (result != CUDA_SUCCESS) {
        real.cuLibraryUnload(handle);
        end_library(library);
        return result;
    }
    charge_taken(&entry, false);
    return result;
}

CUresult library_charge_use(CUlibrary handle)
{
    struct allocation found;
    if (!allocation_map_find(SPACE_MODULE, (uint64_t)(uintptr_t)handle, &found) ||
        found.owner == NULL || ((struct charge_owner *)found.owner)->release != release_library)
        return CUDA_SUCCESS;
    return use(found.owner);
}

/* ---- contexts ---- */

/* What the used libraries take in a new context, but for those that are measured there. Under the
 * mutex. */
static uint64_t used_bytes(void)
{
    uint64_t bytes = 0;
    for (struct library *library = libraries; library != NULL; library = library->next)
        if (library->is_used && !library->size.is_unknown)
            bytes += library->reserved_bytes;
    return bytes;
}

CUresult library_charge_reserve(struct charge *charge, int device)
{
    lock();
    uint64_t bytes = used_bytes();
    unlock();
    *charge = (struct charge){device, VGPU_KIND_MODULE, 0};
    return bytes > 0 ? charge_reserve(charge, device, VGPU_KIND_MODULE, bytes) : CUDA_SUCCESS;
}

static struct member *make_member(CUcontext context, int device)
{
    struct member *member = spare_members;
    if (member != NULL)
        spare_members = member->next;
    else
        member = calloc(1, sizeof *member);
    if (member != NULL) {
        *member = (struct member){.owner.release = release_member,
                                  .next = members,
                                  .number = ++last_number,
                                  .context = context,
                                  .device = device};
        members = member;
    }
    return member;
}

/* Hands each used library's part of the reservation to the new context. Under the mutex. */
static void put_pairs(struct charge *charge, const struct member *member)
{
    for (struct library *library = libraries; library != NULL; library = library->next) {
        if (!library->is_used || library->size.is_unknown)
            continue;
        struct charge part = {charge->device, charge->kind, library->reserved_bytes};
        put_pair(library, member, &part);
        charge->bytes -= library->reserved_bytes;
    }
}

/* A used library that has yet to be measured in `member`. Under the mutex. */
static struct library *first_unmeasured(const struct member *member)
{
    struct library *library = libraries;
    while (library != NULL &&
           (!library->is_used || !library->size.is_unknown || is_charged(library, member)))
        library = library->next;
    return library;
}

static bool measure_all(const struct member *at)
{
    for (;;) {
        lock();
        struct library *library = first_unmeasured(at);
        unlock();
        if (library == NULL)
            return true;
        if (charge_pair(library, at) != CUDA_SUCCESS)
            return false;
    }
}

bool library_charge_made(struct charge *charge, CUcontext context)
{
    struct member *member = NULL;
    if (charge->device < 0)
        return true;
    for (;;) {
        lock();
        uint64_t bytes = used_bytes();
        if (bytes <= charge->bytes) {
            member = make_member(context, charge->device);
            break;
        }
        unlock(); /* one came into use meanwhile */
        if (charge_resize(charge, bytes) != CUDA_SUCCESS) {
            charge_cancel(charge);
            charge->bytes = 0;
            return false;
        }
    }
    if (member != NULL)
        put_pairs(charge, member);
    struct member at = member != NULL ? *member : (struct member){0};
    unlock();
    charge_cancel(charge); /* what is left: a library went meanwhile */
    charge->bytes = 0;
    if (member == NULL)
        return false;
    struct allocation entry = {.address = key_of(NULL, &at),
                               .context = charge_context(context),
                               .owner = &member->owner,
                               .device = (uint16_t)charge->device,
                               .kind = VGPU_KIND_MODULE,
                               .space = SPACE_LIBRARY};
    charge_taken(&entry, false);
    if (measure_all(&at))
        return true;
    struct allocation taken;
    if (allocation_map_take(SPACE_LIBRARY, entry.address, &taken))
        charge_taken(&taken, true);
    return false;
}
