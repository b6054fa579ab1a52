/* Physical pieces between processes, by file descriptors. A descriptor under way holds nothing: the
 * bytes live while a process holds them, and its importer must come before the last lets go. */
#include "vmm.h"

static struct physical *shared_pieces;

static void list_locked(struct physical *physical, uint64_t shared_id)
{
    physical->shared_id = shared_id;
    physical->next_shared = shared_pieces;
    shared_pieces = physical;
}

void physical_end_shared_locked(struct physical *physical)
{
    struct physical **at = &shared_pieces;
    while (*at != physical)
        at = &(*at)->next_shared;
    *at = physical->next_shared;
    shared_drop(physical->device, physical->shared_id);
}

/* Makes the piece one that others may hold. Few places for shared pieces exist on a machine, so that is
 * put off until somebody really exports. */
static CUresult make_shared_locked(struct physical *physical)
{
    uint64_t identifier = physical->shared_id;
    if (!identifier) {
        REFUSE_IF(shared_export(physical->device, physical->bytes, &identifier) != 0,
                  CUDA_ERROR_OUT_OF_MEMORY);
        list_locked(physical, identifier);
    }
    return shareable_record_write(&physical->file, SHARE_RECORD_MEMORY, physical->device,
                                  physical->bytes, identifier)
               ? CUDA_SUCCESS
               : CUDA_ERROR_UNKNOWN;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    DRIVER_CHECK();
    INVALID_IF(!shareable || flags);
    REFUSE_IF(type == CU_MEM_HANDLE_TYPE_FABRIC, CUDA_ERROR_NOT_SUPPORTED);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&vmm_mutex);
    struct physical *physical = physical_find_locked(handle);
    if (physical && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        physical->properties.requestedHandleTypes & type)
        result = !shareable_file_ours(&physical->file)
                     ? CUDA_ERROR_UNKNOWN /* the program closed what was not its own */
                 : physical->multicast ? CUDA_SUCCESS
                                       : make_shared_locked(physical);
    int descriptor = result == CUDA_SUCCESS ? shareable_file_reopen(&physical->file) : -1;
    pthread_mutex_unlock(&vmm_mutex);
    if (result != CUDA_SUCCESS)
        return result;
    REFUSE_IF(descriptor < 0, CUDA_ERROR_OUT_OF_MEMORY);
    *(int *)shareable = descriptor;
    return CUDA_SUCCESS;
}

/* The piece of this process that is the same bytes; its handle then stands for both. */
static struct physical *find_shared_locked(const struct driver_device *device, uint64_t shared_id)
{
    struct physical *physical = shared_pieces;
    while (physical && (physical->device != device || physical->shared_id != shared_id))
        physical = physical->next_shared;
    return physical;
}

static struct physical *import_locked(int descriptor, struct driver_device *device,
                                      const struct shareable_record *record)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal}};
    struct shareable_file file;
    if (!shareable_file_adopt(&file, descriptor))
        return NULL;
    file.descriptor = shareable_file_reopen(&file); /* the given one is the caller's */
    if (file.descriptor < 0)
        return NULL;
    struct physical *physical = physical_make_locked(device, record->bytes, &properties, &file);
    if (physical)
        list_locked(physical, record->identifier);
    return physical;
}

CUresult physical_import_locked(int descriptor, struct driver_device *device,
                                const struct shareable_record *record, struct physical **physical)
{
    *physical = find_shared_locked(device, record->identifier);
    if (*physical) {
        (*physical)->references++;
        return CUDA_SUCCESS;
    }
    INVALID_IF(shared_hold(device, record->identifier, NULL) != 0); /* everybody let go of it */
    *physical = import_locked(descriptor, device, record);
    if (*physical)
        return CUDA_SUCCESS;
    shared_drop(device, record->identifier);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult import_memory_locked(int descriptor, struct physical **physical)
{
    struct shareable_record record;
    struct driver_device *device = shareable_record_read(descriptor, SHARE_RECORD_MEMORY, &record);
    INVALID_IF(!device || record.bytes % VMM_GRANULARITY_BYTES);
    return physical_import_locked(descriptor, device, &record, physical);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    DRIVER_CHECK();
    REFUSE_IF(type == CU_MEM_HANDLE_TYPE_FABRIC, CUDA_ERROR_NOT_SUPPORTED);
    INVALID_IF(!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    int descriptor = (int)(intptr_t)shareable;
    struct physical *physical;
    pthread_mutex_lock(&vmm_mutex);
    CUresult result = multicast_import_locked(descriptor, &physical);
    if (result == CUDA_ERROR_INVALID_VALUE)
        result = import_memory_locked(descriptor, &physical);
    if (result == CUDA_SUCCESS)
        *handle = physical->handle;
    pthread_mutex_unlock(&vmm_mutex);
    return result;
}
