#include "memory/shared/shared_memory.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver/log.h"
#include "memory/pools/pool.h"
#include "memory/shared/descriptor.h"
#include "slice/life.h"
#include "slice/locks.h"
#include "slice/region.h"

#define RECORDS_AT_ONCE 32 /* in one mapping */
#define KEY_TAGS 3u
#define KEY_OF_BYTES 1u
#define KEY_OF_DESCRIPTOR 2u
#define PLACES 256u                    /* bytes that a piece's descriptors lock, one each */
#define PLACE_MASK 0x3fffffffffffff00u /* of a key: the first of them */

struct shared {
    struct charge_owner owner; /* first */
    struct shared *next;       /* set once */
    struct held_piece piece;
    uint64_t key;
    uint32_t device; /* index in `limits` */
    uint64_t bytes;
    uint32_t users;       /* entries that it owns */
    uint32_t descriptors; /* that were given out */
    int probe;            /* -1: none; pieces whose descriptors are of one file have one */
    uint64_t probe_identity;
    struct pool *parent;
    uint64_t import; /* atomic: 0: this process made it; for who has no lock, see is_import */
    bool is_used;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *records;
static uint64_t held_bytes[VGPU_MAX_DEVICES]; /* atomic */
static bool is_any_abroad; /* atomic: nobody here uses it, and it has not ended */

/* ---- imports ---- */

struct import {
    uint64_t bytes;
    uint32_t device, slot, at;
};

#define IMPORT_BITS 18 /* of device, slot and place; beyond them the bytes */

static uint64_t import_word(const struct shared *shared)
{
    const struct held_piece *piece = &shared->piece;
    return shared->bytes << IMPORT_BITS | shared->device << 12 | piece->slot.index << 3 | piece->at;
}

static bool is_import(const struct shared *shared, struct import *import)
{
    uint64_t word = __atomic_load_n(&shared->import, __ATOMIC_ACQUIRE);
    *import = (struct import){word >> IMPORT_BITS, word >> 12 & (VGPU_MAX_DEVICES - 1),
                              word >> 3 & (VGPU_SLOT_COUNT - 1), word & 7};
    return word != 0;
}

/* ---- keys ---- */

/* FNV-1a over the bytes. */
uint64_t shared_memory_key_of_bytes(const void *handle, size_t count)
{
    const unsigned char *at = handle;
    uint64_t digest = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++)
        digest = (digest ^ at[i]) * 0x100000001b3u;
    return (digest & ~(uint64_t)KEY_TAGS) | KEY_OF_BYTES;
}

uint64_t shared_memory_key_new(void)
{
    uint64_t key;
    /* glibc has had a name for it since 2.25, Linux the call since 3.17 */
    if (syscall(SYS_getrandom, &key, sizeof key, 0) != sizeof key) {
        static uint64_t last; /* a process that gets no random bytes still has its own pid */
        key = (uint64_t)getpid() << 32 | __atomic_add_fetch(&last, PLACES, __ATOMIC_RELAXED);
    }
    return (key & PLACE_MASK) | KEY_OF_DESCRIPTOR;
}

uint64_t shared_memory_key_of_descriptor(int descriptor)
{
    struct piece_seen seen;
    uint32_t at = 0;
    int probe = region_open() == REGION_MAPPED ? descriptor_probe(descriptor) : -1;
    bool found = false;
    while (probe >= 0 && !found && slot_pieces_next(region_usage(), &at, &seen))
        found = seen.key == ((seen.key & PLACE_MASK) | KEY_OF_DESCRIPTOR) &&
                descriptor_has_mark(descriptor, probe, seen.key & PLACE_MASK, PLACES);
    if (probe >= 0)
        close(probe);
    return found ? seen.key : 0;
}

/* ---- the end of a piece ---- */

/* A probe of that file that another piece has; -1: none. */
static int known_probe(const struct shared *shared, uint64_t identity)
{
    for (const struct shared *each = records; each != NULL; each = each->next)
        if (each != shared && each->is_used && each->probe_identity == identity &&
            descriptor_identity(each->probe) == identity) /* else the program has closed it */
            return each->probe;
    return -1;
}

static void open_probe(struct shared *shared, int descriptor)
{
    uint64_t identity = descriptor_identity(descriptor);
    if (shared->probe >= 0)
        return;
    shared->probe = known_probe(shared, identity);
    if (shared->probe < 0)
        shared->probe = descriptor_probe(descriptor);
    shared->probe_identity = identity;
}

static void close_probe(struct shared *shared)
{
    if (shared->probe >= 0 && known_probe(shared, shared->probe_identity) != shared->probe &&
        descriptor_identity(shared->probe) == shared->probe_identity)
        close(shared->probe);
    shared->probe = -1;
}

/* Whether a copy of one of its descriptors is open anywhere, or that cannot be told. */
static bool is_abroad(const struct shared *shared)
{
    if (shared->descriptors == 0)
        return false;
    return shared->probe < 0 || descriptor_identity(shared->probe) != shared->probe_identity ||
           descriptor_is_marked(shared->probe, shared->key & PLACE_MASK, PLACES);
}

/* Ends pieces that nobody here uses, under the lock. */
static void sweep(void)
{
    bool is_any = false;
    for (struct shared *each = records; each != NULL; each = each->next) {
        if (!each->is_used || each->users > 0)
            continue;
        if (is_abroad(each)) {
            is_any = true;
            continue;
        }
        close_probe(each);
        if (each->parent != NULL) /* first: what the pool still keeps must not be free meanwhile */
            pool_took_back(each->parent, each->bytes);
        region_piece_leave(&each->piece, each->device);
        region_add(&held_bytes[each->device], -(int64_t)each->bytes);
        __atomic_store_n(&each->import, 0, __ATOMIC_RELEASE);
        each->is_used = false;
    }
    __atomic_store_n(&is_any_abroad, is_any, __ATOMIC_RELAXED);
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

void shared_memory_look(void)
{
    if (__atomic_load_n(&is_any_abroad, __ATOMIC_RELAXED))
        reclaim(0);
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
        each->import = 0;
        each->is_used = false;
    }
    for (uint32_t device = 0; device < VGPU_MAX_DEVICES; device++)
        held_bytes[device] = 0;
}

uint64_t shared_memory_held_bytes(uint32_t device)
{
    return __atomic_load_n(&held_bytes[device], __ATOMIC_RELAXED);
}

uint64_t shared_memory_imported_bytes(uint32_t device)
{
    struct import import;
    uint64_t bytes = 0;
    if (shared_memory_held_bytes(device) == 0)
        return 0;
    int usage = region_look();
    const struct shared *each = __atomic_load_n(&records, __ATOMIC_ACQUIRE);
    for (; each != NULL; each = each->next)
        if (is_import(each, &import) && import.device == device &&
            slot_piece_is_with_maker(usage, import.slot, import.at))
            bytes += import.bytes;
    life_look_end(usage);
    return bytes;
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
    __atomic_store_n(&records, made, __ATOMIC_RELEASE);
    return made;
}

static void fill(struct shared *shared, uint64_t key, uint32_t device, uint64_t bytes,
                 struct pool *parent)
{
    shared->owner.release = release;
    shared->key = key;
    shared->device = device;
    shared->bytes = bytes;
    shared->users = 1;
    shared->descriptors = 0;
    shared->probe = -1;
    shared->parent = parent;
    shared->is_used = true;
    region_add(&held_bytes[device], (int64_t)bytes);
}

struct charge_owner *shared_memory_export(const struct charge *charge, uint64_t key,
                                          struct pool *parent)
{
    if (charge->device < 0 || !region_claim())
        return NULL;
    uint32_t device = (uint32_t)charge->device;
    int cancelling = lock_list();
    struct shared *shared = spare_record();
    if (shared != NULL &&
        !region_piece_make(&shared->piece, device, key, charge->kind, charge->bytes))
        shared = NULL;
    if (shared != NULL) {
        fill(shared, key, device, charge->bytes, parent);
    }
    unlock_list(cancelling);
    if (shared == NULL) {
        log_line(LOG_INFO, "no slot for a shared piece of memory: its importers are charged too");
        return NULL;
    }
    return &shared->owner;
}

struct charge_owner *shared_memory_join(uint64_t key, struct charge *charge)
{
    uint32_t device;
    if (key == 0 || region_open() != REGION_MAPPED)
        return NULL;
    int cancelling = lock_list();
    struct shared *shared = spare_record();
    uint64_t bytes = shared != NULL ? region_piece_join(&shared->piece, key, &device) : 0;
    if (bytes > 0) {
        fill(shared, key, device, bytes, NULL);
        __atomic_store_n(&shared->import, import_word(shared), __ATOMIC_RELEASE);
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
    open_probe(shared, descriptor);
    uint64_t place = shared->key & PLACE_MASK, end = place + PLACES - 1;
    while (place < end && descriptor_is_marked(shared->probe, place, 1))
        place++; /* one that no other process has given out either */
    if (!descriptor_mark(descriptor, place))
        close_probe(shared); /* a copy that cannot be told counts as open */
    shared->descriptors++;
    unlock_list(cancelling);
}
