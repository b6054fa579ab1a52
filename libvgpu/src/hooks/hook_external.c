/* Hooks of memory that comes from other interfaces (Vulkan, OpenGL, another process): charged by
 * the size that the import names, or once with its exporter, when that is in this container
 * (shared_memory.h).
 *
 * The memory lives until the import is destroyed *and* every buffer and mipmap made of it has
 * ended, or with its context: all of them are entries of the allocation map, and the record that
 * owns them gives the bytes back with the last. Records are counted under one mutex, which is held
 * across no driver call; a forked child starts without. */
#include "hooks/hook_external.h"

#include <sys/mman.h>

#include "hooks/hook.h"
#include "memory/ledger/charge.h"
#include "memory/shared/shared_memory.h"
#include "slice/locks.h"
#include "slice/region.h"
#include "vgpu/contract.h"

#define RECORDS_AT_ONCE 32 /* in one mapping */

struct external {
    struct charge_owner owner; /* of its entries; first */
    struct external *next;     /* set once */
    struct charge charge;
    struct charge_owner *shared; /* that answers for the bytes; NULL: they are our own */
    uint32_t users;              /* 0: the record is free */
};

static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static struct external *records;

void external_after_fork(void)
{
    lock_reset(&records_lock);
    for (struct external *each = records; each != NULL; each = each->next)
        each->users = 0;
}

static void release(struct charge_owner *owner, const struct allocation *allocation)
{
    struct external *external = (struct external *)owner;
    lock_take(&records_lock, LOCK_EXTERNAL);
    bool last = external->users == 1;
    struct external ended = *external;
    external->users--;
    lock_give_back(&records_lock);
    if (last && ended.shared != NULL)
        ended.shared->release(ended.shared, NULL);
    else if (last)
        charge_cancel(&ended.charge);
}

/* A free record, of a new mapping if need be: the hook may run inside the program's allocator. */
static struct external *spare_record(void)
{
    for (struct external *each = records; each != NULL; each = each->next)
        if (each->users == 0)
            return each;
    struct external *made = mmap(NULL, RECORDS_AT_ONCE * sizeof *made, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    for (int i = 0; i < RECORDS_AT_ONCE; i++)
        made[i].next = i + 1 < RECORDS_AT_ONCE ? &made[i + 1] : records;
    records = made;
    return made;
}

static struct charge_owner *external_made(const struct charge *charge, struct charge_owner *shared)
{
    lock_take(&records_lock, LOCK_EXTERNAL);
    struct external *external = spare_record();
    if (external != NULL) {
        external->owner.release = release;
        external->charge = *charge;
        external->shared = shared;
        external->users = 1;
    }
    lock_give_back(&records_lock);
    return external != NULL ? &external->owner : NULL;
}

/* One user more for what a new buffer or mipmap is made of; false: it is not charged. */
static bool hold(CUexternalMemory memory, struct allocation *import)
{
    if (!allocation_map_find(SPACE_EXTERNAL, (uint64_t)(uintptr_t)memory, import) ||
        import->owner == NULL)
        return false;
    struct external *external = import->owner;
    lock_take(&records_lock, LOCK_EXTERNAL);
    external->users++;
    lock_give_back(&records_lock);
    return true;
}

/* A part belongs to the context of its import, whichever is current. */
static CUresult keep_part(struct allocation *import, CUresult result, enum allocation_space space,
                          uint64_t handle)
{
    struct charge_owner *owner = import->owner;
    import->address = handle;
    import->space = space;
    if (result == CUDA_SUCCESS)
        charge_taken(import, false);
    else
        owner->release(owner, NULL);
    return result;
}

VGPU_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                            const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    NEEDS(cuImportExternalMemory);
    if (memory == NULL || description == NULL || region_open() == REGION_NONE)
        return real.cuImportExternalMemory(memory, description);
    struct charge charge = {.device = CHARGE_NONE, .kind = VGPU_KIND_OTHER};
    struct charge_owner *shared = NULL;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC wanted = *description;
    CUexternalMemory made = NULL;
    if (wanted.type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        shared = shared_memory_join(shared_memory_key_of_descriptor(wanted.handle.fd), &charge);
    CUresult result = CUDA_SUCCESS;
    if (shared == NULL)
        result = charge_reserve_current(&charge, VGPU_KIND_OTHER, charge_rounded(wanted.size));
    if (result != CUDA_SUCCESS)
        return result;
    result = real.cuImportExternalMemory(&made, &wanted);
    if (result != CUDA_SUCCESS) {
        if (shared != NULL)
            shared->release(shared, NULL);
        else
            charge_cancel(&charge);
        return result;
    }
    struct charge_owner *owner = external_made(&charge, shared);
    charge_keep(&charge, SPACE_EXTERNAL, (uint64_t)(uintptr_t)made, owner != NULL ? owner : shared);
    *memory = made;
    return CUDA_SUCCESS;
}

VGPU_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    NEEDS(cuDestroyExternalMemory);
    struct charge_free free = charge_free_begin(SPACE_EXTERNAL, (uintptr_t)memory);
    return charge_free_end(&free, real.cuDestroyExternalMemory(memory));
}

VGPU_EXPORT CUresult
cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, CUexternalMemory memory,
                                const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *description)
{
    NEEDS(cuExternalMemoryGetMappedBuffer);
    ALONE_WITHOUT(address, cuExternalMemoryGetMappedBuffer(address, memory, description));
    struct allocation import;
    bool is_held = hold(memory, &import); /* what is made of it keeps the whole */
    CUresult result = real.cuExternalMemoryGetMappedBuffer(address, memory, description);
    if (!is_held)
        return result;
    return keep_part(&import, result, SPACE_ADDRESS,
                     result == CUDA_SUCCESS ? (uint64_t)*address : 0);
}

VGPU_EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(
    CUmipmappedArray *mipmap, CUexternalMemory memory,
    const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *description)
{
    NEEDS(cuExternalMemoryGetMappedMipmappedArray);
    ALONE_WITHOUT(mipmap, cuExternalMemoryGetMappedMipmappedArray(mipmap, memory, description));
    struct allocation import;
    bool is_held = hold(memory, &import); /* what is made of it keeps the whole */
    CUresult result = real.cuExternalMemoryGetMappedMipmappedArray(mipmap, memory, description);
    if (!is_held)
        return result;
    return keep_part(&import, result, SPACE_ARRAY, result == CUDA_SUCCESS ? (uint64_t)*mipmap : 0);
}
