#include "slice/region.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/log.h"
#include "slice/entry_notes.h"
#include "slice/life.h"
#include "slice/locks.h"
#include "slice/mps_limits.h"
#include "slice/piece_heirs.h"
#include "slice/slice_files.h"
#include "slice/slot.h"
#include "slice/slot_pieces.h"
#include "slice/usage_file.h"

#define MANAGED_DIRECTORY "/run/vgpu"
#define MANAGED_LIBRARIES MANAGED_DIRECTORY "/lib/"
#define FAULT_BYTES 160

static pthread_mutex_t fork_guard = PTHREAD_MUTEX_INITIALIZER;
static enum region_state state;
static bool is_claimed;
static struct slot own_slot;
static struct lifeline lifeline;
static const void *limits_map;
static void *usage_map;
static char usage_path[PATH_MAX];
static bool is_named; /* by VGPU_DIR */
static struct vgpu_limits_copy limits_head;
static struct vgpu_device_limit limits_devices[VGPU_MAX_DEVICES]; /* for their uuids */

/* Files are opened under the guard, and open is a cancellation point. */
static int guard_enter(void)
{
    return lock_take_whole(&fork_guard, LOCK_FORK_GUARD);
}

static void guard_leave(int cancelling)
{
    lock_give_back_whole(&fork_guard, cancelling);
}

void region_before_fork(void)
{
    lock_take(&fork_guard, LOCK_FORK_GUARD);
}

void region_after_fork_in_parent(void)
{
    lock_give_back(&fork_guard);
}

void region_after_fork(void)
{
    lock_reset(&fork_guard);
    is_claimed = false; /* the slot is the parent's, and its life page did not come along */
    lifeline = (struct lifeline){0}; /* stays open: it keeps the parent's slot */
    piece_heirs_after_fork();
}

void region_open_lifeline(void)
{
    int cancelling = guard_enter();
    lifeline_open(&lifeline, usage_path);
    guard_leave(cancelling);
}

/* Both under the guard. */
static void bequeath(const struct slot *slot)
{
    lifeline_open(&lifeline, usage_path);
    slot_bequeath(&lifeline, slot);
}

static void bequeath_piece(const struct held_piece *piece)
{
    lifeline_open(&lifeline, usage_path);
    piece_bequeath(&lifeline, piece);
}

bool region_is_managed(void)
{
    Dl_info info;
    return dladdr((void *)&limits_devices, &info) != 0 && info.dli_fname != NULL &&
           strncmp(info.dli_fname, MANAGED_LIBRARIES, sizeof MANAGED_LIBRARIES - 1) == 0;
}

const char *region_owner(void)
{
    return is_named ? "vgpuctl run" : "the node";
}

/* Where a slice is looked for, and what was wrong there. */
struct search {
    const char *directory;
    bool is_told; /* somebody says that there is a slice */
    struct slice_fault fault;
};

static enum region_state look(struct search *search, bool managed)
{
    const char *chosen = managed ? NULL : getenv("VGPU_DIR");
    bool named = chosen != NULL && chosen[0] != '\0';
    *search = (struct search){named ? chosen : MANAGED_DIRECTORY, managed || named, {0}};
    struct slice_files files;
    if (slice_files_open(search->directory, &files, &limits_head, limits_devices, &search->fault) ==
        0) {
        limits_map = files.limits;
        usage_map = files.usage;
        memcpy(usage_path, files.usage_path, sizeof usage_path);
        is_named = named;
        return REGION_MAPPED;
    }
    /* Told by nobody that there is a slice, an absent one means that there is none. */
    bool absent = search->fault.error == ENOENT && strcmp(search->fault.name, "limits") == 0;
    return !search->is_told && absent ? REGION_NONE : REGION_REFUSE;
}

void region_tell_if_absent(void)
{
    static bool is_told; /* atomic */
    if (region_open() == REGION_NONE && !__atomic_exchange_n(&is_told, true, __ATOMIC_RELAXED))
        log_line(LOG_WARN,
                 "there is no slice: VGPU_DIR is not set, and " MANAGED_DIRECTORY
                 " has none; this process's GPU memory and GPU work are not limited; start it "
                 "with `vgpuctl run`, or do not preload libvgpu.so");
}

enum region_state region_open(void)
{
    enum region_state seen = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (__builtin_expect(seen != REGION_UNKNOWN, 1))
        return seen;
    bool managed = region_is_managed(); /* takes the loader's lock: never under ours */
    bool refused = false;
    bool is_watched = true;
    struct search search;
    int cancelling = guard_enter();
    if (state == REGION_UNKNOWN) {
        is_watched = fork_watch();
        __atomic_store_n(&state, is_watched ? look(&search, managed) : REGION_REFUSE,
                         __ATOMIC_RELEASE);
        refused = is_watched && state == REGION_REFUSE;
    }
    guard_leave(cancelling);
    if (!is_watched)
        log_line(LOG_ERROR, "out of host memory at the start; this process is granted no GPU "
                            "memory and no GPU work");
    if (refused) { /* said outside the guard: stderr may be slow */
        char text[FAULT_BYTES];
        log_line(LOG_ERROR,
                 "the slice in %s cannot be used: its file %s %s; this process is granted no GPU "
                 "memory and no GPU work",
                 search.directory, search.fault.name,
                 slice_fault_text(&search.fault, text, sizeof text));
    }
    return state;
}

static const char *claim_fault(int error)
{
    if (error == EUSERS)
        return "all slots are taken";
    return error == ENOLCK ? "its file system loses locks" : strerror(error);
}

bool region_claim(void)
{
    if (__builtin_expect(__atomic_load_n(&is_claimed, __ATOMIC_ACQUIRE), 1))
        return true;
    if (region_open() != REGION_MAPPED)
        return false;
    int result = 0;
    int cancelling = guard_enter();
    if (!is_claimed) {
        result = slot_claim(&own_slot, usage_path, usage_map, limits_map);
        if (result == 0) {
            bequeath(&own_slot);
            mps_limits_tell(usage_slot(usage_map, own_slot.index));
            __atomic_store_n(&is_claimed, true, __ATOMIC_SEQ_CST);
            entry_notes_tell(region_own_slot()); /* who notes more from here on sees the slot */
        }
    }
    guard_leave(cancelling);
    if (result != 0) /* said outside the guard: stderr may be slow */
        log_line(LOG_ERROR, "no place in %s for this process: %s; it is granted no GPU memory",
                 usage_path, claim_fault(-result));
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

/* Opened for each byte: a program may close, or use for its own, any descriptor that we keep. */
static int open_ring(uint32_t device)
{
    char path[PATH_MAX];
    int folder = (int)(strlen(usage_path) - strlen("usage"));
    int length = device == 0
                     ? snprintf(path, sizeof path, "%.*sring", folder, usage_path)
                     : snprintf(path, sizeof path, "%.*sring.%u", folder, usage_path, device);
    if (length < 0 || length >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

bool region_ring(uint32_t device)
{
    int saved_errno = errno;
    int cancelling = guard_enter();
    int file = open_ring(device);
    if (file < 0 && errno == ENOENT && device != 0)
        file = open_ring(0); /* a slice that was made with one for all its devices */
    bool is_heard = file >= 0 && (write(file, "", 1) == 1 || errno == EAGAIN);
    if (file >= 0)
        close(file);
    guard_leave(cancelling);
    errno = saved_errno;
    return is_heard;
}

static int reclaim(const struct ledger *ledger, uint32_t slot)
{
    int cancelling = guard_enter();
    int is_more = slot_pieces_reclaim(ledger, slot);
    guard_leave(cancelling);
    return is_more;
}

struct ledger region_ledger(uint32_t device)
{
    return (struct ledger){usage_map, limits_map, device, slot_is_held, usage_path, reclaim};
}

uint32_t region_slot(void)
{
    return own_slot.index;
}

struct vgpu_usage_slot *region_own_slot(void)
{
    bool has_slot = __atomic_load_n(&is_claimed, __ATOMIC_SEQ_CST);
    return has_slot ? usage_slot(usage_map, own_slot.index) : NULL;
}

struct vgpu_usage_slot_device *region_counters(uint32_t device)
{
    return usage_slot_device(usage_map, own_slot.index, device);
}

struct vgpu_usage_device *region_shared(uint32_t device)
{
    return usage_device(usage_map, device);
}

bool region_piece_make(struct held_piece *piece, uint32_t device, uint64_t key, uint16_t kind,
                       uint64_t bytes)
{
    struct ledger ledger = region_ledger(device);
    int cancelling = guard_enter();
    int result = slot_piece_make(piece, &ledger, key, kind, bytes);
    if (result == 0)
        bequeath_piece(piece);
    guard_leave(cancelling);
    return result == 0;
}

uint64_t region_piece_join(struct held_piece *piece, uint64_t key, uint32_t *device)
{
    uint64_t bytes = 0;
    int cancelling = guard_enter();
    for (*device = 0; *device < region_device_count(); ++*device) {
        struct ledger ledger = region_ledger(*device);
        if ((bytes = slot_piece_join(piece, &ledger, key)) > 0)
            break;
    }
    if (bytes > 0)
        bequeath_piece(piece);
    guard_leave(cancelling);
    return bytes;
}

int region_look(void)
{
    return life_look(usage_path);
}

void region_piece_leave(struct held_piece *piece, uint32_t device)
{
    struct ledger ledger = region_ledger(device);
    int cancelling = guard_enter();
    piece_disinherit(&lifeline, piece);
    slot_piece_leave(piece, &ledger);
    guard_leave(cancelling);
}
