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
    uint64_t life_byte = slot_byte(slot, VGPU_LOCK_LIFE);
    if (!life_is_held_at(context, life_byte))
        return 0;
    if (life_is_held_at(context, slot_byte(slot, VGPU_LOCK_CLAIM)))
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

/* Makes the claimed slot this process's own, or one for pieces of memory that it makes. */
static void occupy(uint32_t index, void *usage, uint64_t pieces_device)
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
    row->pieces_device = pieces_device;
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
                     uint64_t pieces_device)
{
    int status = life_lock(life, slot_byte(index, VGPU_LOCK_CLAIM), F_WRLCK);
    if (status != 0)
        return status;
    if (life_is_held_beside(life, slot_byte(index, VGPU_LOCK_LIFE)))
        status = -EAGAIN; /* its user has ended, and children keep it */
    if (status == 0) {
        clean(index, usage, limits);
        status = life_lock(life, slot_byte(index, VGPU_LOCK_LIFE), F_RDLCK);
    }
    if (status != 0) {
        life_lock(life, slot_byte(index, VGPU_LOCK_CLAIM), F_UNLCK);
        return status;
    }
    occupy(index, usage, pieces_device);
    if (pieces_device)
        life_lock(life, slot_byte(index, VGPU_LOCK_CLAIM), F_RDLCK); /* lets others join */
    return 0;
}

/* The first of `count` slots that nobody has. */
static int claim_any(const struct life *life, void *usage, const void *limits,
                     uint64_t pieces_device, uint32_t count, uint32_t *index)
{
    for (*index = 0; *index < count; ++*index) {
        int status = claim_one(life, *index, usage, limits, pieces_device);
        if (status != -EAGAIN && status != -EACCES)
            return status; /* not "somebody has it": no other slot would do better */
    }
    return -EUSERS;
}

int slot_claim(struct slot *slot, const char *path, void *usage, const void *limits)
{
    struct life life;
    int status = life_open(&life, path);
    if (status != 0)
        return status;
    *slot = (struct slot){.life_page = life.page};
    status = claim_any(&life, usage, limits, 0, VGPU_SLOT_COUNT, &slot->index);
    life_close(&life);
    if (status == 0 && !life_is_held_at(path, slot_byte(slot->index, VGPU_LOCK_CLAIM)))
        status = -ENOLCK;
    if (status != 0)
        life_end(life.page);
    return status;
}

int slot_claim_for_pieces(const struct ledger *ledger, const struct life *life, uint32_t *index)
{
    return claim_any(life, ledger->usage, ledger->limits, ledger->device + 1ull, SLOTS_OF_PIECES,
                     index);
}

static void lock_both(const struct lifeline *line, uint32_t slot, short type)
{
    lifeline_lock(line, slot_byte(slot, VGPU_LOCK_LIFE), type);
    lifeline_lock(line, slot_byte(slot, VGPU_LOCK_CLAIM),
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
