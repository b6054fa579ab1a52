#include "driver/driver_processes.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/real.h"

#define SHORT_BYTES sizeof(nvmlProcessInfo_v2_t)
#define LONG_BYTES 64       /* room for an entry; the longest that is known has 32 */
#define FEW_PROCESSES 32    /* of which a stack holds the entries */
#define MORE_PROCESSES 64   /* may appear between two questions */
#define MOST_PROCESSES 8192 /* what claims more is no count */
#define TRIES 4
#define UNWRITTEN 0xa5
#define WORD_BYTES sizeof(unsigned long long)

_Static_assert(SHORT_BYTES == 24 && LONG_BYTES > SHORT_BYTES, "entries as drivers write them");

/* `room` has space for `most` entries of LONG_BYTES. */
struct list {
    bool is_third; /* `_v3` */
    char *room;
    unsigned int most, count;
    size_t entry_bytes; /* 0: nothing tells */
};

/* Writes end where the last entry does, except for what may pad it to whole words. */
static size_t written_entry_bytes(const struct list *list)
{
    size_t end = (size_t)list->count * LONG_BYTES;
    while (end > 0 && (unsigned char)list->room[end - 1] == UNWRITTEN)
        end--;
    if (end < list->count * SHORT_BYTES || list->count == 0)
        return 0;
    size_t bytes = (end + list->count - 1) / list->count;
    return (bytes + WORD_BYTES - 1) / WORD_BYTES * WORD_BYTES;
}

static nvmlReturn_t ask(nvmlDevice_t handle, struct list *list)
{
    nvmlReturn_t result;
    list->count = list->most;
    if (!list->is_third) {
        list->entry_bytes = SHORT_BYTES;
        result = real.nvmlDeviceGetComputeRunningProcesses_v2(handle, &list->count,
                                                              (nvmlProcessInfo_v2_t *)list->room);
    } else {
        memset(list->room, UNWRITTEN, (size_t)list->most * LONG_BYTES);
        result = real.nvmlDeviceGetComputeRunningProcesses_v3(handle, &list->count,
                                                              (nvmlProcessInfo_t *)list->room);
    }
    if (result != NVML_SUCCESS)
        return result;
    if (list->count > list->most)
        list->count = list->most;
    if (list->is_third)
        list->entry_bytes = written_entry_bytes(list);
    if (list->entry_bytes == 0)
        list->count = 0; /* what was written is no list */
    return result;
}

static void show(const struct list *list, driver_process_look look, void *context)
{
    nvmlProcessInfo_v2_t info;
    for (unsigned int i = 0; i < list->count; i++) {
        memcpy(&info, list->room + i * list->entry_bytes, sizeof info);
        look(context, info.pid, info.usedGpuMemory);
    }
}

/* As `visit`, on a GPU with more processes than a stack should hold: `count` of them. */
static __attribute__((noinline)) nvmlReturn_t visit_many(nvmlDevice_t handle, struct list *list,
                                                         driver_process_look look, void *context)
{
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (int i = 0; i < TRIES && result == NVML_ERROR_INSUFFICIENT_SIZE; i++) {
        if (list->count > MOST_PROCESSES)
            return result;
        list->most = list->count + MORE_PROCESSES;
        size_t bytes = (size_t)list->most * LONG_BYTES;
        list->room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (list->room == MAP_FAILED)
            return NVML_ERROR_MEMORY;
        result = ask(handle, list);
        if (result == NVML_SUCCESS)
            show(list, look, context);
        munmap(list->room, bytes);
    }
    return result;
}

static nvmlReturn_t visit(nvmlDevice_t handle, struct list *list, driver_process_look look,
                          void *context)
{
    _Alignas(nvmlProcessInfo_v2_t) char few[FEW_PROCESSES * LONG_BYTES];
    list->room = few;
    list->most = FEW_PROCESSES;
    nvmlReturn_t result = ask(handle, list);
    if (result == NVML_ERROR_INSUFFICIENT_SIZE)
        return visit_many(handle, list, look, context);
    if (result == NVML_SUCCESS)
        show(list, look, context);
    return result;
}

/* A library may export what the driver behind it does not do. */
static bool is_missing(nvmlReturn_t result)
{
    return result == NVML_ERROR_FUNCTION_NOT_FOUND || result == NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t driver_processes(nvmlDevice_t handle, driver_process_look look, void *context)
{
    nvmlReturn_t result = NVML_ERROR_FUNCTION_NOT_FOUND;
    struct list second = {.is_third = false}, third = {.is_third = true};
    if (real.nvmlDeviceGetComputeRunningProcesses_v2 != NULL)
        result = visit(handle, &second, look, context);
    if (is_missing(result) && real.nvmlDeviceGetComputeRunningProcesses_v3 != NULL)
        result = visit(handle, &third, look, context);
    return result;
}

static void pass_by(void *context, unsigned int pid, unsigned long long bytes)
{
    (void)context, (void)pid, (void)bytes;
}

size_t driver_processes_third_entry_bytes(nvmlDevice_t handle)
{
    static size_t known_bytes; /* atomic */
    size_t bytes = __atomic_load_n(&known_bytes, __ATOMIC_RELAXED);
    struct list list = {.is_third = true};
    if (bytes != 0)
        return bytes;
    if (real.nvmlDeviceGetComputeRunningProcesses_v3 == NULL ||
        visit(handle, &list, pass_by, NULL) != NVML_SUCCESS || list.entry_bytes == 0)
        return SHORT_BYTES;
    __atomic_store_n(&known_bytes, list.entry_bytes, __ATOMIC_RELAXED);
    return list.entry_bytes;
}
