#include "slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ledger.h"
#include "usage_file.h"

/* glibc 2.17 has no names for these (linux/fcntl.h: since Linux 3.15). */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

#define LIFE_PAGE_BYTES 4096
#define STAT_BYTES 512

static struct flock byte_lock(uint32_t slot, int which, short type)
{
    return (struct flock){
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = (off_t)(VGPU_LOCK_BASE + 2ull * slot + (unsigned)which),
        .l_len = 1,
    };
}

static int set_lock(int descriptor, uint32_t slot, int which, short type)
{
    struct flock lock = byte_lock(slot, which, type);
    return fcntl(descriptor, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

/* Opens and closes without being a cancellation point: the caller may hold a lock of a hook, which
 * a thread that is cancelled here would keep for ever. */
static int open_usage(const char *path)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
}

static void close_usage(int descriptor)
{
    syscall(SYS_close, descriptor);
}

int slot_is_held(void *context, uint32_t slot)
{
    int descriptor = open_usage(context);
    if (descriptor < 0)
        return 1;
    struct flock lock = byte_lock(slot, VGPU_LOCK_LIFE, F_WRLCK);
    int held = fcntl(descriptor, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
    close_usage(descriptor);
    return held;
}

/* Field 22 of /proc/self/stat; 0 where there is no /proc. */
static uint64_t own_start_time(void)
{
    char text[STAT_BYTES];
    int descriptor = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return 0;
    ssize_t length = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *at = strrchr(text, ')'); /* the command before it may hold anything */
    unsigned long long ticks = 0;
    if (at == NULL || sscanf(at + 2,
                             "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                             "%*d %*d %*d %*d %llu",
                             &ticks) != 1)
        return 0;
    return ticks;
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
        memset(counters->kind_bytes, 0,
               sizeof *counters - offsetof(struct vgpu_usage_slot_device, kind_bytes));
    }
    if (gen % 2 == 1)
        __atomic_store_n(&row->gen, gen + 1, __ATOMIC_RELEASE);
}

/* Makes the claimed slot this process's own. */
static void occupy(uint32_t index, void *usage)
{
    struct vgpu_usage_header *header = usage;
    struct vgpu_usage_slot *row = usage_slot(usage, index);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    row->pid = (uint32_t)syscall(SYS_getpid);
    row->start_time_ticks = own_start_time();
    row->attached_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    prctl(PR_GET_NAME, row->command);
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    while (hi_slot < index + 1 &&
           !__atomic_compare_exchange_n(&header->hi_slot, &hi_slot, index + 1, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
        continue;
    /* odd before the first reservation: from here on a dead user is looked for in this slot */
    __atomic_store_n(&row->gen, row->gen + 1, __ATOMIC_RELEASE);
}

static int claim_one(int descriptor, uint32_t index, void *usage, const void *limits)
{
    int status = set_lock(descriptor, index, VGPU_LOCK_CLAIM, F_WRLCK);
    if (status != 0)
        return status;
    clean(index, usage, limits);
    status = set_lock(descriptor, index, VGPU_LOCK_LIFE, F_WRLCK);
    if (status != 0) {
        set_lock(descriptor, index, VGPU_LOCK_CLAIM, F_UNLCK);
        return status;
    }
    occupy(index, usage);
    return 0;
}

int slot_claim(struct slot *slot, const char *path, void *usage, const void *limits)
{
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return -errno;
    /* Mapped before anything is locked, so that no claimed slot can fail half-way. */
    void *page = mmap(NULL, LIFE_PAGE_BYTES, PROT_READ, MAP_SHARED, descriptor, 0);
    if (page == MAP_FAILED || madvise(page, LIFE_PAGE_BYTES, MADV_DONTFORK) != 0) {
        int status = -errno;
        if (page != MAP_FAILED)
            munmap(page, LIFE_PAGE_BYTES);
        close(descriptor);
        return status;
    }
    int status = -EUSERS;
    for (uint32_t index = 0; index < VGPU_SLOT_COUNT; index++) {
        status = claim_one(descriptor, index, usage, limits);
        if (status == 0) {
            *slot = (struct slot){index, page};
            break;
        }
        if (status != -EAGAIN && status != -EACCES)
            break; /* not "somebody has it": no other slot would do better */
        status = -EUSERS;
    }
    close(descriptor);
    if (status != 0)
        munmap(page, LIFE_PAGE_BYTES);
    return status;
}
