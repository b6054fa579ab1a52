#include "event_ipc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shareable.h"

#define HANDLE_MAGIC 0x49455654u
#define SPINS 1000 /* of a reader, while somebody writes; a writer may have died over it */

struct page {
    uint32_t version; /* odd while it is written */
    uint32_t slot;
    uint64_t place;
};

struct shared_event {
    struct page *page;
    struct shareable_file file; /* no descriptor where another process made it */
};

struct event_handle {
    uint32_t magic;
    uint32_t pid;
    uint64_t machine; /* digest of its identifier */
    uint64_t inode;
    uint64_t filesystem;
    int32_t descriptor;
    uint32_t reserved[7];
};
_Static_assert(sizeof(struct event_handle) == CU_IPC_HANDLE_SIZE, "handles have a size of the API");

static struct shared_event *map_page(const struct shareable_file *file, int descriptor)
{
    struct shared_event *shared = malloc(sizeof *shared);
    void *page = mmap(NULL, SIM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (!shared || page == MAP_FAILED) {
        if (page != MAP_FAILED)
            munmap(page, SIM_PAGE);
        free(shared);
        return NULL;
    }
    *shared = (struct shared_event){page, *file};
    return shared;
}

struct shared_event *event_make_shared(struct CUctx_st *context)
{
    struct shareable_file file;
    struct shared_event *shared = NULL;
    if (!shareable_file_create(&file, 2 * SIM_PAGE))
        return NULL;
    if (shareable_record_write(&file, SHARE_RECORD_EVENT, context->device, SIM_PAGE, 0))
        shared = map_page(&file, file.descriptor);
    if (!shared)
        shareable_file_close(&file);
    return shared;
}

void event_end_shared(struct shared_event *shared)
{
    munmap(shared->page, SIM_PAGE);
    shareable_file_close(&shared->file);
    free(shared);
}

void event_publish(struct shared_event *shared, struct sim_origin origin)
{
    struct page *page = shared->page;
    uint32_t version = __atomic_load_n(&page->version, __ATOMIC_RELAXED) | 1u;
    __atomic_store_n(&page->version, version, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&page->slot, origin.slot, __ATOMIC_RELAXED);
    __atomic_store_n(&page->place, origin.place, __ATOMIC_RELAXED);
    __atomic_store_n(&page->version, version + 1, __ATOMIC_RELEASE);
}

struct sim_origin event_origin(const struct shared_event *shared)
{
    const struct page *page = shared->page;
    struct sim_origin origin = {0};
    for (int spin = 0; spin < SPINS; spin++) {
        uint32_t version = __atomic_load_n(&page->version, __ATOMIC_ACQUIRE);
        origin.slot = __atomic_load_n(&page->slot, __ATOMIC_RELAXED);
        origin.place = __atomic_load_n(&page->place, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (version % 2 == 0 && __atomic_load_n(&page->version, __ATOMIC_RELAXED) == version)
            break;
    }
    return origin;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    DRIVER_CHECK();
    INVALID_IF(!handle);
    REFUSE_IF(!is_event(event) || !event->shared || !shareable_file_ours(&event->shared->file),
              CUDA_ERROR_INVALID_HANDLE);
    struct event_handle made = {.magic = HANDLE_MAGIC,
                                .pid = (uint32_t)getpid(),
                                .machine = shareable_machine_digest(),
                                .inode = event->shared->file.inode,
                                .filesystem = event->shared->file.filesystem,
                                .descriptor = event->shared->file.descriptor};
    memcpy(handle, &made, sizeof made);
    return CUDA_SUCCESS;
}

static struct shared_event *open_page(const struct event_handle *handle,
                                      struct driver_device **device)
{
    char path[64];
    struct shareable_file seen;
    struct shareable_record record;
    struct shared_event *shared = NULL;
    snprintf(path, sizeof path, "/proc/%u/fd/%d", handle->pid, handle->descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return NULL;
    if (shareable_file_adopt(&seen, descriptor) && seen.inode == handle->inode &&
        seen.filesystem == handle->filesystem &&
        (*device = shareable_record_read(descriptor, SHARE_RECORD_EVENT, &record)) != NULL)
        shared = map_page(&(struct shareable_file){.descriptor = -1}, descriptor);
    close(descriptor);
    return shared;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle opaque)
{
    struct event_handle handle;
    struct driver_device *device;
    CURRENT_CONTEXT(context);
    INVALID_IF(!event);
    memcpy(&handle, &opaque, sizeof handle);
    REFUSE_IF(handle.magic != HANDLE_MAGIC || handle.machine != shareable_machine_digest(),
              CUDA_ERROR_INVALID_HANDLE);
    /* as for memory: not in the process that made it */
    REFUSE_IF(handle.pid == (uint32_t)getpid(), CUDA_ERROR_INVALID_CONTEXT);
    struct shared_event *shared = open_page(&handle, &device);
    REFUSE_IF(!shared, CUDA_ERROR_INVALID_HANDLE);
    struct CUevent_st *opened =
        device == context->device ? handle_new(MAGIC_EVENT, sizeof *opened) : NULL;
    if (!opened) {
        event_end_shared(shared);
        return device == context->device ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_CONTEXT;
    }
    opened->context = context;
    opened->context_id = context->id;
    opened->device = device;
    opened->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    opened->shared = shared;
    *event = opened;
    return CUDA_SUCCESS;
}
