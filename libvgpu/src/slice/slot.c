#include "slice/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "slice/ledger.h"
#include "slice/life.h"
#include "slice/pids.h"
#include "slice/usage_file.h"

/* Shared pieces may take half of the slots: a process without one can be granted nothing. */
#define SHARED_SLOTS (VGPU_SLOT_COUNT / 2)

enum user { PROCESS, PIECE };

static uint64_t byte_of(uint32_t slot, int which)
{
    return VGPU_LOCK_BASE + 2ull * slot + (unsigned)which;
}

/* Some children close the driver's descriptors and no others, as data loaders of Megatron-LM do (its
 * pull request 3684): then the driver has given the memory back, although the lifeline is open. */
static int do_heirs_have_gpu(const char *path, uint64_t life_byte)
{
    struct lifeline line = {0};
    lifeline_open(&line, path);
    int have = line.inode == 0 || pids_with_lock_have_gpu(line.descriptor, line.base + life_byte);
    lifeline_close(&line);
    return have;
}

int slot_is_held(void *context, uint32_t slot)
{
    uint64_t life_byte = byte_of(slot, VGPU_LOCK_LIFE);
    if (!life_is_held_at(context, life_byte))
        return 0;
    if (life_is_held_at(context, byte_of(slot, VGPU_LOCK_CLAIM)))
        return 1;
    /* asked again: it may have ended between the two */
    return life_is_held_at(context, life_byte) && do_heirs_have_gpu(context, life_byte);
}

/* Gives back what a dead user left, and makes the slot free and clean. */
static void clean(uint32_t index, void *usage, const void *limits)
{
    uint32_t device_count = ((const struct vgpu_usage_header *)usage)->device_capacity;
    struct vgpu_usage_slot *row = usage_slot(usage, index);
    uint64_t gen = __atomic_load_n(&row->gen, __ATOMIC_ACQUIRE);
    for (uint32_t device = 0; device < device_count; device++) {
        struct ledger ledger = {.usage = usage, .limits = limits, .device = device};
        if (gen % 2 == 1)
            ledger_reap(&ledger, index, gen);
        struct vgpu_usage_slot_device *counters = usage_slot_device(usage, index, device);
        /* everything but the ledger's word, which keeps its count for ever */
        memset(counters->delay_counts, 0,
               sizeof *counters - offsetof(struct vgpu_usage_slot_device, delay_counts));
    }
    if (gen % 2 == 1)
        __atomic_store_n(&row->gen, gen + 1, __ATOMIC_RELEASE);
}

/* Makes the claimed slot this process's own, or that of a piece of memory of it. */
static void occupy(uint32_t index, void *usage, const uint64_t key[2])
{
    struct vgpu_usage_header *header = usage;
    struct vgpu_usage_slot *row = usage_slot(usage, index);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    row->unknown_entries = row->moved_entries = 0;
    memset(row->noted_entry, 0, sizeof row->noted_entry);
    row->pid = (uint32_t)syscall(SYS_getpid);
    row->pid_namespace = pids_own_namespace();
    row->start_time_ticks = pids_start_time("self");
    row->attached_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    prctl(PR_GET_NAME, row->command);
    row->shared_key[0] = key[0];
    row->shared_key[1] = key[1];
    row->mps_thread_percentage = 0;
    row->mps_pinned_mib = 0;
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    while (hi_slot < index + 1 &&
           !__atomic_compare_exchange_n(&header->hi_slot, &hi_slot, index + 1, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
        continue;
    /* odd before the first reservation: from here on a dead user is looked for in this slot */
    __atomic_store_n(&row->gen, row->gen + 1, __ATOMIC_RELEASE);
}

static int claim_one(const struct life *life, uint32_t index, void *usage, const void *limits,
                     const uint64_t key[2], enum user user)
{
    int status = life_lock(life, byte_of(index, VGPU_LOCK_CLAIM), F_WRLCK);
    if (status != 0)
        return status;
    if (life_is_held_beside(life, byte_of(index, VGPU_LOCK_LIFE)))
        status = -EAGAIN; /* its user has ended, and children keep it */
    if (status == 0) {
        clean(index, usage, limits);
        status = life_lock(life, byte_of(index, VGPU_LOCK_LIFE), F_RDLCK);
    }
    if (status != 0) {
        life_lock(life, byte_of(index, VGPU_LOCK_CLAIM), F_UNLCK);
        return status;
    }
    occupy(index, usage, key);
    if (user == PIECE)
        life_lock(life, byte_of(index, VGPU_LOCK_CLAIM), F_RDLCK); /* lets others join */
    return 0;
}

/* Among the first `count` slots. */
static int claim(struct slot *slot, const char *path, void *usage, const void *limits,
                 const uint64_t key[2], enum user user, uint32_t count)
{
    struct life life;
    int status = life_open(&life, path);
    if (status != 0)
        return status;
    status = -EUSERS;
    for (uint32_t index = 0; index < count; index++) {
        status = claim_one(&life, index, usage, limits, key, user);
        if (status == 0) {
            *slot = (struct slot){index, life.page};
            break;
        }
        if (status != -EAGAIN && status != -EACCES)
            break; /* not "somebody has it": no other slot would do better */
        status = -EUSERS;
    }
    life_close(&life);
    if (status == 0 && !life_is_held_at(path, byte_of(slot->index, VGPU_LOCK_CLAIM)))
        status = -ENOLCK;
    if (status != 0)
        life_end(life.page);
    return status;
}

int slot_claim(struct slot *slot, const char *path, void *usage, const void *limits)
{
    static const uint64_t no_key[2];
    return claim(slot, path, usage, limits, no_key, PROCESS, VGPU_SLOT_COUNT);
}

static void lock_both(const struct lifeline *line, uint32_t slot, short type)
{
    lifeline_lock(line, byte_of(slot, VGPU_LOCK_LIFE), type);
    lifeline_lock(line, byte_of(slot, VGPU_LOCK_CLAIM),
                  type); /* a process has its own for writing */
}

void slot_bequeath(const struct lifeline *line, const struct slot *slot)
{
    lock_both(line, slot->index, F_RDLCK);
}

void slot_disinherit(const struct lifeline *line, const struct slot *slot)
{
    lock_both(line, slot->index, F_UNLCK);
}

/* ---- pieces of memory that several processes hold ---- */

int slot_claim_shared(struct slot *slot, const char *path, void *usage, const void *limits,
                      const uint64_t key[2])
{
    return claim(slot, path, usage, limits, key, PIECE, SHARED_SLOTS);
}

/* Index of the slot in use with that key; VGPU_SLOT_COUNT: none. */
static uint32_t find_shared(void *usage, const uint64_t key[2])
{
    const struct vgpu_usage_header *header = usage;
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    for (uint32_t index = 0; index < hi_slot && index < VGPU_SLOT_COUNT; index++) {
        const struct vgpu_usage_slot *row = usage_slot(usage, index);
        if (__atomic_load_n(&row->gen, __ATOMIC_ACQUIRE) % 2 == 1 && row->shared_key[0] == key[0] &&
            row->shared_key[1] == key[1])
            return index;
    }
    return VGPU_SLOT_COUNT;
}

/* With the slot locked: its bytes, once no reaper that began earlier can take them any more. */
static uint64_t keep_from_reapers(uint32_t index, void *usage, const void *limits,
                                  const uint64_t key[2], uint32_t *device)
{
    const struct vgpu_usage_header *header = usage;
    struct vgpu_usage_slot *row = usage_slot(usage, index);
    uint64_t gen = __atomic_load_n(&row->gen, __ATOMIC_ACQUIRE);
    do {
        if (gen % 2 == 0 || row->shared_key[0] != key[0] || row->shared_key[1] != key[1])
            return 0; /* another piece's by now */
    } while (!__atomic_compare_exchange_n(&row->gen, &gen, gen + 2, 0, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE));
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < header->device_capacity && bytes == 0; i++) {
        struct ledger ledger = {.usage = usage, .limits = limits, .device = i};
        ledger_force(&ledger, index, 0);
        bytes = __atomic_load_n(&usage_slot_device(usage, index, i)->bytes, __ATOMIC_ACQUIRE);
        *device = i;
    }
    return bytes;
}

uint64_t slot_join_shared(struct slot *slot, const char *path, void *usage, const void *limits,
                          const uint64_t key[2], uint32_t *device)
{
    struct life life;
    uint32_t index = find_shared(usage, key);
    if (index == VGPU_SLOT_COUNT || life_open(&life, path) != 0)
        return 0;
    uint64_t bytes = 0;
    if (life_lock(&life, byte_of(index, VGPU_LOCK_CLAIM), F_RDLCK) == 0 &&
        life_lock(&life, byte_of(index, VGPU_LOCK_LIFE), F_RDLCK) == 0)
        bytes = keep_from_reapers(index, usage, limits, key, device);
    life_close(&life);
    if (bytes > 0)
        *slot = (struct slot){index, life.page};
    else
        life_end(life.page);
    return bytes;
}

void slot_leave_shared(struct slot *slot, const char *path, void *usage, const void *limits,
                       uint32_t device)
{
    struct ledger ledger = {.usage = usage, .limits = limits, .device = device};
    uint64_t gen = __atomic_load_n(&usage_slot(usage, slot->index)->gen, __ATOMIC_ACQUIRE);
    life_end(slot->life_page);
    /* who joins from here on moves gen, and the bytes stay */
    if (gen % 2 == 1 && !slot_is_held((void *)path, slot->index))
        ledger_reap(&ledger, slot->index, gen);
}
