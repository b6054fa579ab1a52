/* A `usage` file with a ledger of one device, for tests of slots that several processes hold. */
#ifndef SHARED_SLOTS_H
#define SHARED_SLOTS_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger_fixture.h"
#include "slice/slot_pieces.h"

struct slots {
    const char *path;
    struct fixture fixture;
    struct slot own; /* of this process */
};

static inline void slots_enter(struct slots *slots)
{
    CHECK(slot_claim(&slots->own, slots->path, slots->fixture.usage, slots->fixture.limits) == 0,
          "no slot");
}

static inline struct slots slots_make(const char *path, uint64_t limit_bytes)
{
    struct slots slots = {.path = path, .fixture = fixture_make(limit_bytes, slot_is_held)};
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(file >= 0 && ftruncate(file, (off_t)usage_file_bytes(1)) == 0, "file");
    slots.fixture.usage =
        mmap(NULL, usage_file_bytes(1), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(slots.fixture.usage != MAP_FAILED, "map");
    close(file);
    usage_format(slots.fixture.usage, 1, "test");
    slots.fixture.ledger.usage = slots.fixture.usage;
    slots.fixture.ledger.is_held_context = (void *)path;
    slots.fixture.ledger.reclaim = slot_pieces_reclaim;
    slots_enter(&slots);
    return slots;
}

static inline uint64_t slots_used(struct slots *slots)
{
    return ledger_used_bytes(&slots->fixture.ledger);
}

/* False: there is no place. */
static inline bool slots_export(struct slots *slots, struct held_piece *piece, uint64_t key,
                                uint64_t bytes)
{
    return slot_piece_make(piece, &slots->fixture.ledger, key, VGPU_KIND_VMM, bytes) == 0;
}

static inline uint64_t slots_join(struct slots *slots, struct held_piece *piece, uint64_t key)
{
    return slot_piece_join(piece, &slots->fixture.ledger, key);
}

static inline void slots_leave(struct slots *slots, struct held_piece *piece)
{
    slot_piece_leave(piece, &slots->fixture.ledger);
}

/* What a holder that dies does: its locks go, and nothing else. */
static inline void slots_vanish(const struct slot *slot)
{
    munmap(slot->life_page, 4096);
}

/* The kernel lets go of the locks of the dead with the last user of their memory map. Whoever reads
 * a file such as /proc/PID/environ is one meanwhile, so that may be after waitpid has returned. */
#define SLOTS_PATIENCE_MS 60000

/* Every byte but `held` must be there, and not one more; dead holders are reaped for it. */
static inline void slots_fill(struct slots *slots, uint64_t limit_bytes, uint64_t held,
                              const char *when)
{
    struct ledger_refusal refusal;
    struct ledger *ledger = &slots->fixture.ledger;
    uint64_t rest = limit_bytes - held;
    int refused;
    long tries = SLOTS_PATIENCE_MS;
    while ((refused = ledger_reserve(ledger, slots->own.index, rest, &refusal)) != 0 && tries-- > 0)
        usleep(1000);
    CHECK(refused == 0, "%s: the rest is refused: used %llu, held %llu", when,
          (unsigned long long)refusal.used_bytes, (unsigned long long)held);
    CHECK(ledger_reserve(ledger, slots->own.index, 1, &refusal) != 0,
          "%s: a byte too much is granted beside %llu held", when, (unsigned long long)held);
    ledger_release(ledger, slots->own.index, rest);
    CHECK(slots_used(slots) == held, "%s: used %llu, held %llu", when,
          (unsigned long long)slots_used(slots), (unsigned long long)held);
}

#endif
