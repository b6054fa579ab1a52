/* A ledger in anonymous shared memory: one device, formatted as the host formats it. */
#ifndef LEDGER_FIXTURE_H
#define LEDGER_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "slice/ledger.h"
#include "slice/limits_file.h"
#include "slice/usage_file.h"
#include "vgpu/contract.h"

#define CHECK(condition, ...) \
    do { \
        if (!(condition)) { \
            char sentence[256]; /* written whole: processes that fail together share stderr */ \
            snprintf(sentence, sizeof sentence, __VA_ARGS__); \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, sentence); \
            exit(1); \
        } \
    } while (0)

struct fixture {
    void *usage;
    void *limits;
    struct ledger ledger;
};

static inline void *fixture_share(size_t bytes)
{
    void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED, "mmap");
    return area;
}

static inline void fixture_set_limit(struct fixture *fixture, uint64_t limit_bytes)
{
    struct vgpu_limits_copy head = {.device_count = 1, .family = VGPU_FAMILY_VGPU};
    struct vgpu_device_limit device = {.memory_limit_bytes = limit_bytes, .core_percent = 100};
    CHECK(limits_publish(fixture->limits, &head, &device) == 0, "publish");
}

static inline struct fixture fixture_make(uint64_t limit_bytes, int (*is_held)(void *, uint32_t))
{
    struct fixture fixture;
    fixture.usage = fixture_share(usage_file_bytes(1));
    fixture.limits = fixture_share(limits_file_bytes(1));
    usage_format(fixture.usage, 1, "test");
    limits_format(fixture.limits, 1);
    fixture_set_limit(&fixture, limit_bytes);
    fixture.ledger = (struct ledger){fixture.usage, fixture.limits, 0, is_held, NULL, NULL};
    return fixture;
}

/* Marks a slot as in use, as slot_claim does. */
static inline void fixture_occupy(struct fixture *fixture, uint32_t slot)
{
    struct vgpu_usage_header *header = fixture->usage;
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    while (hi_slot < slot + 1 &&
           !__atomic_compare_exchange_n(&header->hi_slot, &hi_slot, slot + 1, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
        continue;
    struct vgpu_usage_slot *row = usage_slot(fixture->usage, slot);
    if (row->gen % 2 == 1) {
        ledger_reap(&fixture->ledger, slot, row->gen);
        __atomic_store_n(&row->gen, row->gen + 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&row->gen, row->gen + 1, __ATOMIC_RELEASE);
}

static inline uint64_t fixture_slot_bytes(struct fixture *fixture, uint32_t slot)
{
    return usage_slot_device(fixture->usage, slot, 0)->bytes;
}

#endif
