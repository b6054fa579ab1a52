#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "block.h"
#include "ipc.h"

#define IPC_MAGIC 0x31435049u /* "IPC1" as bytes */
#define PAGES_AT_ONCE 4096
#define PAGEMAP_EXISTS (3ull << 62) /* present, or in the swap */

/* Copies the pages that were ever written, so that an export takes no more host memory than the
 * allocation did. Without a pagemap all of them are taken to be. */
static void copy_written_pages(char *target, const char *source, uint64_t bytes)
{
    static uint64_t entries[PAGES_AT_ONCE]; /* kept apart by memory_bytes_lock */
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (uint64_t at = 0; at < bytes; at += PAGES_AT_ONCE * SIM_PAGE) {
        uint64_t pages = (bytes - at + SIM_PAGE - 1) / SIM_PAGE;
        pages = pages < PAGES_AT_ONCE ? pages : PAGES_AT_ONCE;
        size_t wanted = pages * sizeof *entries;
        off_t place = (off_t)(((uint64_t)source + at) / SIM_PAGE * sizeof *entries);
        bool known = pread(pagemap, entries, wanted, place) == (ssize_t)wanted;
        for (uint64_t i = 0; i < pages; i++)
            if (!known || entries[i] & PAGEMAP_EXISTS)
                memcpy(target + at + i * SIM_PAGE, source + at + i * SIM_PAGE, SIM_PAGE);
    }
    if (pagemap >= 0)
        close(pagemap);
}

/* Puts a file into the place of private pages. */
static bool replace_pages(uint64_t address, uint64_t bytes, struct shareable_file *file)
{
    void *place = (void *)address;
    if (!shareable_file_create(file, bytes))
        return false;
    void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, 0);
    bool mapped = copy != MAP_FAILED;
    if (mapped) {
        copy_written_pages(copy, place, bytes);
        munmap(copy, bytes);
        mapped = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      file->descriptor, 0) == place;
    }
    if (!mapped)
        shareable_file_close(file);
    return mapped;
}

/* What of an allocation is shared: all of the block that it lies in, or itself. */
static struct shared_bytes **shared_of(struct allocation *allocation)
{
    return allocation->block ? &allocation->block->shared : &allocation->shared;
}

static CUresult make_shared_locked(struct allocation *allocation)
{
    const struct block *block = allocation->block;
    uint64_t address = block ? block->address : allocation->address;
    uint64_t bytes = block ? block->bytes : SIM_ROUND(allocation->bytes);
    struct driver_device *device =
        allocation->pool ? allocation->pool->device : allocation->context->device;
    struct shared_bytes *shared = calloc(1, sizeof *shared);
    REFUSE_IF(!shared, CUDA_ERROR_OUT_OF_MEMORY);
    shared->device = device;
    if (!replace_pages(address, bytes, &shared->file)) {
        free(shared);
        return CUDA_ERROR_MAP_FAILED;
    }
    if (shared_export(device, block ? block->bytes : allocation->charged_bytes,
                      &shared->identifier) != 0) {
        shareable_file_close(
            &shared->file); /* the pages stay as they are, for nobody else to find */
        free(shared);
        return CUDA_ERROR_OUT_OF_MEMORY; /* the machine has no place for more */
    }
    *shared_of(allocation) = shared;
    return CUDA_SUCCESS;
}

CUresult ipc_export(uint64_t address, enum allocation_kind kind, struct ipc_handle *handle)
{
    CUresult result = CUDA_SUCCESS;
    int cancelling; /* a thread that is cancelled here would keep the locks */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    pthread_rwlock_wrlock(&memory_bytes_lock);
    pthread_mutex_lock(&memory_mutex);
    struct allocation *allocation = memory_find_locked(address, 1);
    if (!allocation || allocation->kind != kind)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!*shared_of(allocation))
        result = make_shared_locked(allocation);
    const struct shared_bytes *shared = result == CUDA_SUCCESS ? *shared_of(allocation) : NULL;
    if (shared && !shareable_file_ours(&shared->file))
        result = CUDA_ERROR_MAP_FAILED; /* the program closed it */
    if (result == CUDA_SUCCESS)
        *handle = (struct ipc_handle){
            .magic = IPC_MAGIC,
            .pid = (uint32_t)getpid(),
            .machine = shareable_machine_digest(),
            .inode = shared->file.inode,
            .shared_id = shared->identifier,
            .bytes = allocation->bytes,
            .pool = allocation->pool ? allocation->pool->identifier : 0,
            .filesystem = (uint32_t)shared->file.filesystem,
            .descriptor = shared->file.descriptor,
            .device = shared->device->device->index,
            .offset = allocation->block
                          ? (uint32_t)(allocation->address - allocation->block->address)
                          : 0,
        };
    pthread_mutex_unlock(&memory_mutex);
    pthread_rwlock_unlock(&memory_bytes_lock);
    pthread_setcancelstate(cancelling, NULL);
    return result;
}

struct driver_device *ipc_device(const struct ipc_handle *handle)
{
    if (handle->magic != IPC_MAGIC || handle->machine != shareable_machine_digest())
        return NULL;
    for (int i = 0; i < driver.device_count; i++)
        if (driver.devices[i].device->index == handle->device)
            return &driver.devices[i];
    return NULL;
}

/* Opens the exporter's descriptor if it still names the same file. */
static int open_file(const struct ipc_handle *handle)
{
    char path[64];
    struct shareable_file seen;
    snprintf(path, sizeof path, "/proc/%u/fd/%d", handle->pid, handle->descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (descriptor >= 0 &&
        (!shareable_file_adopt(&seen, descriptor) || seen.inode != handle->inode ||
         (uint32_t)seen.filesystem != handle->filesystem ||
         lseek(descriptor, 0, SEEK_END) < (off_t)(handle->offset + handle->bytes))) {
        close(descriptor);
        return -1;
    }
    return descriptor;
}

static CUresult map_file(int descriptor, const struct ipc_handle *handle, enum allocation_kind kind,
                         struct CUctx_st *context, struct CUmemPoolHandle_st *pool,
                         CUdeviceptr *address)
{
    struct shared_bytes *shared = calloc(1, sizeof *shared);
    REFUSE_IF(!shared, CUDA_ERROR_OUT_OF_MEMORY);
    *shared = (struct shared_bytes){.device = ipc_device(handle),
                                    .identifier = handle->shared_id,
                                    .offset = handle->offset,
                                    .file = {.descriptor = -1},
                                    .opened = 1};
    uint64_t inside = handle->offset % SIM_PAGE, bytes = SIM_ROUND(inside + handle->bytes);
    char *mapped = mmap(memory_place(bytes), bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                        (off_t)(handle->offset - inside));
    if (mapped == MAP_FAILED) {
        free(shared);
        return CUDA_ERROR_MAP_FAILED;
    }
    struct allocation *allocation =
        memory_insert((uint64_t)mapped + inside, handle->bytes,
                      pool ? memory_round(handle->bytes) : 0, kind, context, pool);
    if (!allocation) {
        munmap(mapped, bytes);
        free(shared);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->shared = shared;
    *address = (CUdeviceptr)mapped + inside;
    return CUDA_SUCCESS;
}

CUresult ipc_open(const struct ipc_handle *handle, enum allocation_kind kind,
                  struct CUctx_st *context, struct CUmemPoolHandle_st *pool, CUdeviceptr *address)
{
    struct driver_device *device = ipc_device(handle);
    int descriptor = device ? open_file(handle) : -1;
    REFUSE_IF(descriptor < 0, CUDA_ERROR_INVALID_HANDLE);
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    if (shared_hold(device, handle->shared_id, NULL) == 0) {
        result = map_file(descriptor, handle, kind, context, pool, address);
        if (result != CUDA_SUCCESS)
            shared_drop(device, handle->shared_id);
    }
    close(descriptor);
    return result;
}

void ipc_end_shared(struct shared_bytes *shared)
{
    shareable_file_close(&shared->file);
    shared_drop(shared->device, shared->identifier);
}

void ipc_give_back(struct allocation *allocation)
{
    uint64_t inside = allocation->address % SIM_PAGE;
    munmap((void *)(allocation->address - inside), SIM_ROUND(inside + allocation->bytes));
    ipc_end_shared(allocation->shared);
}
