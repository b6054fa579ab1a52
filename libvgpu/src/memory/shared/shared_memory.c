#include "memory/shared/shared_memory.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver/log.h"
#include "memory/pools/pool.h"
#include "memory/shared/descriptor.h"
#include "slice/ledger.h"
#include "slice/locks.h"
#include "slice/region.h"
#include "slice/usage_file.h"

#define RECORDS_AT_ONCE 32 /* in one mapping */
#define KEY_TAGS 3u
#define KEY_OF_BYTES 1u
#define KEY_OF_DESCRIPTOR 2u
#define PLACES 256u /* bytes that a piece's descriptors lock, one each */
#define PLACE_MASK 0x3fffffffffffff00u

struct shared {
    struct charge_owner owner; /* first */
    struct shared *next;       /* set once */
    struct slot slot;
    uint64_t key[2];
    uint32_t device; /* index in `limits` */
    uint64_t bytes;
    uint32_t users;       /* entries that it owns */
    uint32_t descriptors; /* that were given out */
    int probe;            /* -1: none */
    uint64_t probe_identity;
    struct pool *parent;
    bool is_used;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *records;
static uint64_t held_bytes[VGPU_MAX_DEVICES]; /* atomic */

/* ---- keys ---- */

/* FNV-1a over the bytes, from two beginnings. */
static uint64_t digest(uint64_t seed, const unsigned char *at, size_t count)
{
    for (size_t i = 0; i < count; i++)
        seed = (seed ^ at[i]) * 0x100000001b3u;
    return seed;
}

void shared_memory_key_of_bytes(uint64_t key[2], const void *handle, size_t count)
{
    key[0] = digest(0xcbf29ce484222325u, handle, count);
    key[1] = (digest(0x9ae16a3b2f90404fu, handle, count) & ~(uint64_t)KEY_TAGS) | KEY_OF_BYTES;
}

void shared_memory_key_new(uint64_t key[2])
{
    /* glibc has had a name for it since 2.25, Linux the call since 3.17 */
    if (syscall(SYS_getrandom, key, 2 * sizeof *key, 0) != 2 * sizeof *key) {
        static uint64_t last; /* a process that gets no random bytes still has its own pid */
        key[0] = (uint64_t)getpid() << 32 | __atomic_add_fetch(&last, PLACES, __ATOMIC_RELAXED);
        key[1] = key[0];
    }
    key[0] &= PLACE_MASK;
    key[1] = (key[1] & ~(uint64_t)KEY_TAGS) | KEY_OF_DESCRIPTOR;
}

bool shared_memory_key_of_descriptor(uint64_t key[2], int descriptor)
{
    if (region_open() != REGION_MAPPED)
        return false;
    const struct vgpu_usage_header *header = region_usage();
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    int probe = descriptor_probe(descriptor);
    bool found = false;
    for (uint32_t i = 0; probe >= 0 && i < hi_slot && i < VGPU_SLOT_COUNT && !found; i++) {
        const struct vgpu_usage_slot *row = usage_slot(region_usage(), i);
        key[0] = row->shared_key[0];
        key[1] = row->shared_key[1];
        found = (key[1] & KEY_TAGS) == KEY_OF_DESCRIPTOR && key[0] == (key[0] & PLACE_MASK) &&
                __atomic_load_n(&row->gen, __ATOMIC_ACQUIRE) % 2 == 1 &&
                descriptor_has_mark(descriptor, probe, key[0], PLACES);
    }
    if (probe >= 0)
        close(probe);
    return found;
}

/* ---- the end of a piece ---- */

static void close_probe(struct shared *shared)
{
    if (shared->probe >= 0 && descriptor_identity(shared->probe) == shared->probe_identity)
        close(shared->probe);
    shared->probe = -1;
}

/* Whether a copy of one of its descriptors is open anywhere, or that cannot be told. */
static bool is_abroad(const struct shared *shared)
{
    if (shared->descriptors == 0)
        return false;
    return shared->probe < 0 || descriptor_identity(shared->probe) != shared->probe_identity ||
           descriptor_is_marked(shared->probe, shared->key[0], PLACES);
}

/* Ends pieces that nobody here uses, under the lock. */
static void sweep(void)
{
    for (struct shared *each = records; each != NULL; each = each->next) {
        if (!each->is_used || each->users > 0 || is_abroad(each))
            continue;
        close_probe(each);
        if (each->parent != NULL) /* first: what the pool still keeps must not be free meanwhile */
            pool_took_back(each->parent, each->bytes);
        region_leave(&each->slot, each->device);
        region_add(&held_bytes[each->device], -(int64_t)each->bytes);
        each->is_used = false;
    }
}

/* The driver is called under it. */
static int lock_list(void)
{
    return lock_take_whole(&list_lock, LOCK_SHARED_MEMORY);
}

static void unlock_list(int cancelling)
{
    lock_give_back_whole(&list_lock, cancelling);
}

/* For charge_on_shortage. */
static void reclaim(int device)
{
    (void)device;
    int cancelling = lock_list();
    sweep();
    unlock_list(cancelling);
}

static void release(struct charge_owner *owner, const struct allocation *allocation)
{
    struct shared *shared = (struct shared *)owner;
    int cancelling = lock_list();
    shared->users--;
    sweep();
    unlock_list(cancelling);
}

/* ---- records ---- */

/* The child has neither the locks nor the memory. */
void shared_memory_after_fork(void)
{
    lock_reset(&list_lock);
    for (struct shared *each = records; each != NULL; each = each->next) {
        if (each->is_used)
            close_probe(each);
        each->is_used = false;
    }
    for (uint32_t device = 0; device < VGPU_MAX_DEVICES; device++)
        held_bytes[device] = 0;
}

uint64_t shared_memory_held_bytes(uint32_t device)
{
    return __atomic_load_n(&held_bytes[device], __ATOMIC_RELAXED);
}

static struct shared *spare_record(void)
{
    charge_on_shortage(reclaim);
    sweep();
    for (struct shared *each = records; each != NULL; each = each->next)
        if (!each->is_used)
            return each;
    struct shared *made = mmap(NULL, RECORDS_AT_ONCE * sizeof *made, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    for (int i = 0; i < RECORDS_AT_ONCE; i++)
        made[i].next = i + 1 < RECORDS_AT_ONCE ? &made[i + 1] : records;
    records = made;
    return made;
}

static void fill(struct shared *shared, const uint64_t key[2], uint32_t device, uint64_t bytes,
                 struct pool *parent)
{
    shared->owner.release = release;
    shared->key[0] = key[0];
    shared->key[1] = key[1];
    shared->device = device;
    shared->bytes = bytes;
    shared->users = 1;
    shared->descriptors = 0;
    shared->probe = -1;
    shared->parent = parent;
    shared->is_used = true;
    region_add(&held_bytes[device], (int64_t)bytes);
}

struct charge_owner *shared_memory_export(const struct charge *charge, const uint64_t key[2],
                                          struct pool *parent)
{
    if (charge->device < 0 || !region_claim())
        return NULL;
    int cancelling = lock_list();
    struct shared *shared = spare_record();
    if (shared != NULL && !region_share(&shared->slot, key))
        shared = NULL;
    if (shared != NULL) {
        struct ledger ledger = region_ledger((uint32_t)charge->device);
        struct vgpu_usage_slot_device *counters =
            usage_slot_device(region_usage(), shared->slot.index, (uint32_t)charge->device);
        ledger_force(&ledger, shared->slot.index, charge->bytes);
        usage_count_kind(counters, charge->kind, (int64_t)charge->bytes);
        counters->peak_bytes = charge->bytes;
        fill(shared, key, (uint32_t)charge->device, charge->bytes, parent);
    }
    unlock_list(cancelling);
    if (shared == NULL) {
        log_line(LOG_INFO, "no slot for a shared piece of memory: its importers are charged too");
        return NULL;
    }
    return &shared->owner;
}

struct charge_owner *shared_memory_join(const uint64_t key[2], struct charge *charge)
{
    uint32_t device;
    if (region_open() != REGION_MAPPED)
        return NULL;
    int cancelling = lock_list();
    struct shared *shared = spare_record();
    uint64_t bytes = shared != NULL ? region_join(&shared->slot, key, &device) : 0;
    if (bytes > 0) {
        fill(shared, key, device, bytes, NULL);
        charge->device = (int)device;
        charge->bytes = bytes;
    }
    unlock_list(cancelling);
    return bytes > 0 ? &shared->owner : NULL;
}

bool shared_memory_is(const struct charge_owner *owner)
{
    return owner != NULL && owner->release == release;
}

void shared_memory_mark_descriptor(struct charge_owner *owner, int descriptor)
{
    struct shared *shared = (struct shared *)owner;
    int cancelling = lock_list();
    if (shared->probe < 0 && (shared->probe = descriptor_probe(descriptor)) >= 0)
        shared->probe_identity = descriptor_identity(shared->probe);
    uint64_t place = shared->key[0], end = place + PLACES - 1;
    while (place < end && descriptor_is_marked(shared->probe, place, 1))
        place++; /* one that no other process has given out either */
    if (!descriptor_mark(descriptor, place))
        close_probe(shared); /* a copy that cannot be told counts as open */
    shared->descriptors++;
    unlock_list(cancelling);
}
