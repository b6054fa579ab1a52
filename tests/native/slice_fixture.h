/* A slice for tests of slots and the ledger together: `usage` is a real file, so that locks, deaths
 * and what is asked about them are the kernel's; `limits` is anonymous shared memory. It has one
 * device. */
#ifndef SLICE_FIXTURE_H
#define SLICE_FIXTURE_H

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "ledger_fixture.h"
#include "slice/slot.h"

#define SLICE_PATH_BYTES 256

struct slice_fixture {
    struct fixture base;
    char path[SLICE_PATH_BYTES];
};

/* Maps the file once more, as another process of the container would. */
static inline void *slice_fixture_map(const char *path)
{
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    CHECK(descriptor >= 0, "open usage");
    void *usage =
        mmap(NULL, usage_file_bytes(1), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    CHECK(usage != MAP_FAILED, "mmap usage");
    close(descriptor);
    return usage;
}

/* Makes `usage` again in the directory. The fixture stays where it is: the ledger points into it. */
static inline void slice_fixture_make(struct slice_fixture *slice, const char *directory,
                                      uint64_t limit_bytes)
{
    slice->base = fixture_make(limit_bytes, slot_is_held);
    munmap(slice->base.usage, usage_file_bytes(1));
    snprintf(slice->path, sizeof slice->path, "%s/usage", directory);
    int descriptor = open(slice->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(descriptor >= 0 && ftruncate(descriptor, (off_t)usage_file_bytes(1)) == 0, "make usage");
    close(descriptor);
    slice->base.usage = slice_fixture_map(slice->path);
    usage_format(slice->base.usage, 1, "test");
    slice->base.ledger.usage = slice->base.usage;
    slice->base.ledger.is_held_context = slice->path;
}

static inline struct slot slice_fixture_claim(struct slice_fixture *slice)
{
    struct slot slot;
    int result = slot_claim(&slot, slice->path, slice->base.usage, slice->base.limits);
    CHECK(result == 0, "no slot: %s", strerror(-result));
    return slot;
}

/* Ends the only reference to the locks of a slot, as the end of its process does. */
static inline void slice_fixture_drop(struct slot slot)
{
    munmap(slot.life_page, 4096);
}

/* Waits until nobody but the `count` living has a slot. The kernel lets go of the locks of the dead
 * with the last user of their memory map. Whoever reads a file such as /proc/PID/environ is one
 * meanwhile, so that may be after waitpid has returned. */
static inline void slice_fixture_wait_dead(struct slice_fixture *slice, const struct slot *living,
                                           int count)
{
    const struct vgpu_usage_header *header = slice->base.usage;
    for (uint32_t slot = 0; slot < header->hi_slot; slot++) {
        bool lives = false;
        for (int i = 0; i < count; i++)
            lives |= living[i].index == slot;
        while (!lives && slot_is_held(slice->path, slot))
            usleep(1000);
    }
}

/* Every byte of the total stands in some slot's word, and the last operation is finished. */
static inline void slice_fixture_audit(struct slice_fixture *slice, const char *when)
{
    uint64_t sum = 0;
    for (uint32_t slot = 0; slot < VGPU_SLOT_COUNT; slot++)
        sum += fixture_slot_bytes(&slice->base, slot);
    uint64_t used = ledger_used_bytes(&slice->base.ledger);
    CHECK(used == sum, "%s: %llu used and %llu in the slots", when, (unsigned long long)used,
          (unsigned long long)sum);
}

#endif
