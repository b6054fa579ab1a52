#include "region.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "limits_file.h"
#include "log.h"
#include "slot.h"
#include "usage_file.h"

#define MANAGED_DIRECTORY "/run/vgpu"
#define MANAGED_LIBRARIES MANAGED_DIRECTORY "/lib/"
#define CHILD_HANDLERS 16

static pthread_mutex_t fork_guard = PTHREAD_MUTEX_INITIALIZER;
static enum region_state state;
static bool is_claimed;
static struct slot own_slot;
static const void *limits_map;
static void *usage_map;
static char usage_path[PATH_MAX];
static struct vgpu_limits_copy limits_head;
static struct vgpu_device_limit limits_devices[VGPU_MAX_DEVICES]; /* for their uuids */
static void (*child_handlers[CHILD_HANDLERS])(void);

/* Files are opened under the guard, and open is a cancellation point: a thread cancelled there
 * would keep every fork of the process waiting. */
static int guard_enter(void)
{
    int cancelling;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    pthread_mutex_lock(&fork_guard);
    return cancelling;
}

static void guard_leave(int cancelling)
{
    pthread_mutex_unlock(&fork_guard);
    pthread_setcancelstate(cancelling, NULL);
}

static void before_fork(void)
{
    pthread_mutex_lock(&fork_guard);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&fork_guard);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&fork_guard, NULL);
    is_claimed = false; /* the slot is the parent's, and its life page did not come along */
    for (int i = 0; i < CHILD_HANDLERS && child_handlers[i] != NULL; i++)
        child_handlers[i]();
}

void region_on_child(void (*handler)(void))
{
    for (int i = 0; i < CHILD_HANDLERS; i++) {
        void (*expected)(void) = NULL; /* several threads may come at once */
        if (__atomic_compare_exchange_n(&child_handlers[i], &expected, handler, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
            expected == handler)
            return;
    }
}

bool region_is_managed(void)
{
    Dl_info info;
    return dladdr((void *)&limits_devices, &info) != 0 && info.dli_fname != NULL &&
           strncmp(info.dli_fname, MANAGED_LIBRARIES, sizeof MANAGED_LIBRARIES - 1) == 0;
}

/* Maps a whole file. Returns 0 or a negative errno. */
static int map_file(const char *path, bool writable, void **address, uint64_t *bytes)
{
    int descriptor = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (descriptor < 0)
        return -errno;
    struct stat status;
    int result = fstat(descriptor, &status) == 0 ? 0 : -errno;
    if (result == 0 && status.st_size <= 0)
        result = -EINVAL;
    if (result == 0) {
        int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        *bytes = (uint64_t)status.st_size;
        *address = mmap(NULL, *bytes, protection, MAP_SHARED, descriptor, 0);
        if (*address == MAP_FAILED)
            result = -errno;
    }
    close(descriptor);
    return result;
}

static int open_files(const char *directory)
{
    char path[PATH_MAX];
    void *limits = NULL;
    void *usage = NULL;
    uint64_t bytes = 0;
    if (snprintf(path, sizeof path, "%s/limits", directory) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int result = map_file(path, false, &limits, &bytes);
    if (result == 0)
        result = limits_check_header(limits, bytes);
    if (result == 0)
        result = limits_read(limits, &limits_head, limits_devices, VGPU_MAX_DEVICES);
    if (result != 0)
        return result;
    if (snprintf(usage_path, sizeof usage_path, "%s/usage", directory) >= (int)sizeof usage_path)
        return -ENAMETOOLONG;
    result = map_file(usage_path, true, &usage, &bytes);
    if (result == 0)
        result = usage_check_header(usage, bytes);
    if (result == 0 &&
        ((struct vgpu_usage_header *)usage)->device_capacity < limits_head.device_count)
        result = -EINVAL;
    if (result != 0)
        return result;
    limits_map = limits;
    usage_map = usage;
    return 0;
}

static enum region_state look(bool managed)
{
    const char *chosen = managed ? NULL : getenv("VGPU_DIR");
    const char *directory = chosen != NULL && chosen[0] != '\0' ? chosen : MANAGED_DIRECTORY;
    int result = open_files(directory);
    if (result == 0)
        return REGION_MAPPED;
    /* Told by nobody that there is a slice, an absent one means that there is none. */
    if (!managed && chosen == NULL && result == -ENOENT)
        return REGION_NONE;
    log_line(LOG_ERROR, "the slice in %s cannot be used (%s): no GPU work is granted", directory,
             strerror(-result));
    return REGION_REFUSE;
}

enum region_state region_open(void)
{
    enum region_state seen = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (__builtin_expect(seen != REGION_UNKNOWN, 1))
        return seen;
    bool managed = region_is_managed(); /* takes the loader's lock: never under ours */
    int cancelling = guard_enter();
    if (state == REGION_UNKNOWN) {
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        __atomic_store_n(&state, look(managed), __ATOMIC_RELEASE);
    }
    guard_leave(cancelling);
    return state;
}

bool region_claim(void)
{
    if (__builtin_expect(__atomic_load_n(&is_claimed, __ATOMIC_ACQUIRE), 1))
        return true;
    if (region_open() != REGION_MAPPED)
        return false;
    int cancelling = guard_enter();
    if (!is_claimed) {
        int result = slot_claim(&own_slot, usage_path, usage_map, limits_map);
        if (result == 0)
            __atomic_store_n(&is_claimed, true, __ATOMIC_RELEASE);
        else
            log_line(LOG_ERROR, "no place in %s for this process: %s", usage_path,
                     result == -EUSERS ? "all slots are taken" : strerror(-result));
    }
    guard_leave(cancelling);
    return is_claimed;
}

const void *region_limits(void)
{
    return limits_map;
}

void *region_usage(void)
{
    return usage_map;
}

uint32_t region_device_count(void)
{
    return limits_head.device_count;
}

uint32_t region_family(void)
{
    return limits_head.family;
}

int region_find_device(const char *uuid)
{
    for (uint32_t i = 0; i < limits_head.device_count; i++) {
        const char *named = limits_devices[i].uuid;
        const char *dash = strchr(named, '-');
        const char *asked = strchr(uuid, '-');
        if (dash != NULL && asked != NULL && strcmp(dash, asked) == 0)
            return (int)i;
    }
    return -1;
}

struct ledger region_ledger(uint32_t device)
{
    return (struct ledger){usage_map, limits_map, device, slot_is_held, usage_path};
}

uint32_t region_slot(void)
{
    return own_slot.index;
}

struct vgpu_usage_slot_device *region_counters(uint32_t device)
{
    return usage_slot_device(usage_map, own_slot.index, device);
}

struct vgpu_usage_device *region_shared(uint32_t device)
{
    return usage_device(usage_map, device);
}

bool region_share(struct slot *slot, const uint64_t key[2])
{
    int cancelling = guard_enter();
    int result = slot_claim_shared(slot, usage_path, usage_map, limits_map, key);
    guard_leave(cancelling);
    return result == 0;
}

uint64_t region_join(struct slot *slot, const uint64_t key[2], uint32_t *device)
{
    int cancelling = guard_enter();
    uint64_t bytes = slot_join_shared(slot, usage_path, usage_map, limits_map, key, device);
    guard_leave(cancelling);
    return bytes;
}

void region_leave(struct slot *slot, uint32_t device)
{
    int cancelling = guard_enter();
    slot_leave_shared(slot, usage_path, usage_map, limits_map, device);
    guard_leave(cancelling);
}
