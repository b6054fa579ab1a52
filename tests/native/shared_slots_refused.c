/* What stands in the way of a claim or a piece is told, and nothing stays held for it.
 *
 *   shared_slots_refused FILE */
#include <errno.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "shared_slots.h"

#define LIMIT_BYTES 100

static bool locks_fail;

/* In place of libc's. */
int fcntl(int descriptor, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *lock = va_arg(rest, void *);
    va_end(rest);
    if (locks_fail && command == F_OFD_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_fcntl, descriptor, command, lock);
}

/* Another process's locks. */
static void lock(int other, uint64_t first, uint64_t count, short type)
{
    struct flock range = {.l_type = type, .l_start = (off_t)first, .l_len = (off_t)count};
    CHECK(fcntl(other, F_OFD_SETLK, &range) == 0, "lock");
}

static int claim(struct slots *slots)
{
    struct slot slot;
    return slot_claim(&slot, slots->path, slots->fixture.usage, slots->fixture.limits);
}

static int make(struct slots *slots, struct held_piece *piece, uint64_t key)
{
    return slot_piece_make(piece, &slots->fixture.ledger, key, VGPU_KIND_VMM, 1);
}

int main(int argc, char **argv)
{
    struct held_piece first, beside, elsewhere, fourth;
    struct rlimit files, none;
    CHECK(argc == 2, "usage");
    struct slots slots = slots_make(argv[1], LIMIT_BYTES);
    int other = open(argv[1], O_RDWR | O_CLOEXEC);

    getrlimit(RLIMIT_NOFILE, &files);
    none = (struct rlimit){0, files.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    CHECK(make(&slots, &first, 1) == -EMFILE && claim(&slots) == -EMFILE, "without a descriptor");
    setrlimit(RLIMIT_NOFILE, &files);
    locks_fail = true;
    CHECK(make(&slots, &first, 1) == -ENOLCK && claim(&slots) == -ENOLCK, "without locks");
    locks_fail = false;
    lock(other, slot_byte(1, 0), 2 * (VGPU_SLOT_COUNT - 1), F_WRLCK);
    CHECK(make(&slots, &first, 1) == -EUSERS && claim(&slots) == -EUSERS, "without a slot");
    lock(other, slot_byte(1, 0), 2 * (VGPU_SLOT_COUNT - 1), F_UNLCK);
    slots_fill(&slots, LIMIT_BYTES, 0, "after refusals");

    /* Others still look at every row of the slot, so a third piece gets a slot of its own. */
    CHECK(make(&slots, &first, 1) == 0 && make(&slots, &beside, 2) == 0, "pieces");
    uint32_t shared = first.slot.index;
    CHECK(beside.slot.index == shared, "a slot for each");
    lock(other, slot_piece_byte(shared, 0), VGPU_SLOT_PIECES, F_RDLCK);
    CHECK(make(&slots, &elsewhere, 3) == 0 && elsewhere.slot.index != shared, "the third");
    lock(other, slot_piece_byte(shared, 0), VGPU_SLOT_PIECES, F_UNLCK);
    uint64_t change = slot_piece_byte(shared, 0) - 1; /* and another changes its rows */
    lock(other, change, 1, F_WRLCK);
    CHECK(make(&slots, &fourth, 4) == 0 && fourth.slot.index != shared, "the fourth");
    lock(other, change, 1, F_UNLCK);
    slots_vanish(&first.slot);
    slots_fill(&slots, LIMIT_BYTES, 3, "one of a slot's pieces has ended");
    slots_leave(&slots, &beside);
    CHECK(!slot_is_held(argv[1], shared), "who looked for a row keeps the slot");
    slots_leave(&slots, &elsewhere);
    slots_leave(&slots, &fourth);
    slots_fill(&slots, LIMIT_BYTES, 0, "all left");
    return 0;
}
