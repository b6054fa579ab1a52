#include "external.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC_EXTERNAL 0x6c616e7265747865ull

struct CUextMemory_st { /* freed when it is destroyed, not with its context */
    uint64_t magic;
    struct CUctx_st *context;
    struct physical *physical; /* NULL: gone with the context */
    uint64_t bytes;
    struct CUextMemory_st *next;
};

static struct CUextMemory_st *all_memory; /* under vmm_mutex */

/* ---- imports --------------------------------------------------------------------------------- */

/* Whether a descriptor is of a file with that many bytes, which can be mapped. */
static bool holds_bytes(int descriptor, uint64_t bytes)
{
    struct stat status;
    return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_size >= bytes;
}

/* Memory of an interface that is not simulated: charged here, since nobody else does. */
static CUresult import_file(int descriptor, struct driver_device *device, uint64_t bytes,
                            struct physical **physical)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal}};
    struct shareable_file file;
    REFUSE_IF(!holds_bytes(descriptor, bytes) || !shareable_file_adopt(&file, descriptor),
              CUDA_ERROR_INVALID_HANDLE);
    uint64_t charged_bytes = memory_round(bytes);
    REFUSE_IF(memory_charge(device, charged_bytes) != 0, CUDA_ERROR_OUT_OF_MEMORY);
    file.descriptor =
        shareable_file_reopen(&file); /* an import that fails leaves the caller's open */
    pthread_mutex_lock(&vmm_mutex);
    *physical = file.descriptor < 0
                    ? NULL
                    : physical_make_locked(device, charged_bytes, &properties, &file);
    if (*physical)
        shareable_file_close(&(*physical)->file); /* its window is enough */
    pthread_mutex_unlock(&vmm_mutex);
    if (*physical)
        return CUDA_SUCCESS;
    sim_client_release(device->device, charged_bytes);
    return CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult import_descriptor(int descriptor, struct driver_device *device, uint64_t bytes,
                                  struct physical **physical)
{
    struct shareable_record record;
    struct driver_device *owner = shareable_record_read(descriptor, SHARE_RECORD_MEMORY, &record);
    if (!owner)
        return import_file(descriptor, device, bytes, physical);
    INVALID_IF(bytes > record.bytes);
    pthread_mutex_lock(&vmm_mutex);
    CUresult result = physical_import_locked(descriptor, owner, &record, physical);
    pthread_mutex_unlock(&vmm_mutex);
    return result;
}

CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!memory || !description || !description->size ||
               description->size > context->device->identity->profile.memory_bytes ||
               description->flags & ~(unsigned int)CUDA_EXTERNAL_MEMORY_DEDICATED);
    if (description->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return description->type < CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_ERROR_NOT_SUPPORTED; /* those of other systems, and NvSciBuf */
    CHECK(capture_check_unsafe());
    struct CUextMemory_st *made = calloc(1, sizeof *made);
    REFUSE_IF(!made, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = import_descriptor(description->handle.fd, context->device, description->size,
                                        &made->physical);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    made->magic = MAGIC_EXTERNAL;
    made->context = context;
    made->bytes = description->size;
    pthread_mutex_lock(&vmm_mutex);
    made->next = all_memory;
    all_memory = made;
    pthread_mutex_unlock(&vmm_mutex);
    close(description->handle.fd); /* which is the driver's now */
    *memory = made;
    return CUDA_SUCCESS;
}

static void let_go_locked(struct CUextMemory_st *memory)
{
    if (!memory->physical)
        return;
    memory->physical->references--;
    physical_drop_locked(memory->physical);
    memory->physical = NULL;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    DRIVER_CHECK();
    REFUSE_IF(!memory || memory->magic != MAGIC_EXTERNAL, CUDA_ERROR_INVALID_HANDLE);
    pthread_mutex_lock(&vmm_mutex);
    for (struct CUextMemory_st **at = &all_memory; *at; at = &(*at)->next)
        if (*at == memory) {
            *at = memory->next;
            break;
        }
    let_go_locked(memory);
    memory->magic = 0;
    pthread_mutex_unlock(&vmm_mutex);
    free(memory);
    return CUDA_SUCCESS;
}

void external_end_context(const struct CUctx_st *context)
{
    pthread_mutex_lock(&vmm_mutex);
    for (struct CUextMemory_st *memory = all_memory; memory; memory = memory->next)
        if (memory->context == context)
            let_go_locked(memory);
    pthread_mutex_unlock(&vmm_mutex);
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* The pages of a part: the kernel maps nothing smaller. */
static void pages_of(uint64_t address, uint64_t bytes, uint64_t *first, uint64_t *page_bytes)
{
    *first = address / SIM_PAGE * SIM_PAGE;
    *page_bytes = (address + bytes - *first + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
}

static void *map_part(const struct physical *physical, uint64_t offset, uint64_t bytes)
{
    uint64_t first, page_bytes;
    pages_of(offset, bytes, &first, &page_bytes);
    char *mapped = mremap((char *)physical->window + first, 0, page_bytes, MREMAP_MAYMOVE);
    if (mapped == MAP_FAILED)
        return NULL;
    if (mprotect(mapped, page_bytes, PROT_READ | PROT_WRITE) == 0)
        return mapped + (offset - first);
    munmap(mapped, page_bytes);
    return NULL;
}

static void unmap_part(void *address, uint64_t bytes)
{
    uint64_t first, page_bytes;
    pages_of((uint64_t)address, bytes, &first, &page_bytes);
    munmap((void *)first, page_bytes);
}

CUresult external_map(CUexternalMemory memory, uint64_t offset, uint64_t bytes,
                      enum allocation_kind kind, CUdeviceptr *address)
{
    CURRENT_CONTEXT(context);
    REFUSE_IF(!memory || memory->magic != MAGIC_EXTERNAL, CUDA_ERROR_INVALID_HANDLE);
    INVALID_IF(!bytes || offset > memory->bytes || bytes > memory->bytes - offset);
    pthread_mutex_lock(&vmm_mutex);
    struct physical *physical = memory->physical;
    if (physical)
        physical->mappings++;
    pthread_mutex_unlock(&vmm_mutex);
    REFUSE_IF(!physical, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    void *mapped = map_part(physical, offset, bytes);
    if (mapped &&
        memory_insert_external((uint64_t)mapped, bytes, kind, memory->context, physical)) {
        *address = (CUdeviceptr)mapped;
        return CUDA_SUCCESS;
    }
    if (mapped)
        unmap_part(mapped, bytes);
    pthread_mutex_lock(&vmm_mutex);
    physical->mappings--;
    physical_drop_locked(physical);
    pthread_mutex_unlock(&vmm_mutex);
    return CUDA_ERROR_OPERATING_SYSTEM;
}

void external_give_back(struct allocation *allocation)
{
    unmap_part((void *)allocation->address, allocation->bytes);
    pthread_mutex_lock(&vmm_mutex);
    allocation->external->mappings--;
    physical_drop_locked(allocation->external);
    pthread_mutex_unlock(&vmm_mutex);
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *description)
{
    DRIVER_CHECK();
    INVALID_IF(!address || !description || description->flags);
    return external_map(memory, description->offset, description->size, ALLOCATION_EXTERNAL,
                        address);
}
