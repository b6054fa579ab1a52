#include "slice/slot_pieces.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "slice/life.h"
#include "slice/pids.h"
#include "slice/usage_file.h"

#define BYTES_MASK ((1ull << VGPU_PIECE_KIND_AT) - 1)

/* ---- what stands in a slot ---- */

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static struct vgpu_usage_piece *rows_of(const struct ledger *ledger, uint32_t index)
{
    return usage_slot_device(ledger->usage, index, ledger->device)->pieces;
}

static uint64_t bytes_of(const struct vgpu_usage_piece *row)
{
    return load(&row->bytes) & BYTES_MASK;
}

/* What is charged to the slot, with no operation under way but of who changes its rows. */
static uint64_t charged_bytes(const struct ledger *ledger, uint32_t index)
{
    return load(&usage_slot_device(ledger->usage, index, ledger->device)->bytes);
}

static uint64_t rows_bytes(const struct ledger *ledger, uint32_t index)
{
    uint64_t sum = 0;
    for (uint32_t at = 0; at < VGPU_SLOT_PIECES; at++)
        sum += bytes_of(&rows_of(ledger, index)[at]);
    return sum;
}

static bool is_of_device(const struct ledger *ledger, uint32_t index)
{
    const struct vgpu_usage_slot *row = usage_slot(ledger->usage, index);
    return load(&row->gen) % 2 == 1 && row->pieces_device == ledger->device + 1ull;
}

static bool is_own(const struct vgpu_usage_slot *row)
{
    return row->pid == (uint32_t)syscall(SYS_getpid) &&
           row->pid_namespace == pids_own_namespace() &&
           row->start_time_ticks == pids_start_time("self");
}

bool slot_pieces_next(void *usage, uint32_t *at, struct piece_seen *seen)
{
    const struct vgpu_usage_header *header = usage;
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    for (; *at / VGPU_SLOT_PIECES < hi_slot && *at / VGPU_SLOT_PIECES < VGPU_SLOT_COUNT; ++*at) {
        uint32_t slot = *at / VGPU_SLOT_PIECES, row = *at % VGPU_SLOT_PIECES;
        uint64_t device = usage_slot(usage, slot)->pieces_device - 1;
        if (load(&usage_slot(usage, slot)->gen) % 2 == 0 || device >= header->device_capacity) {
            *at += VGPU_SLOT_PIECES - 1 - row; /* the next slot */
            continue;
        }
        const struct vgpu_usage_piece *piece =
            &usage_slot_device(usage, slot, (uint32_t)device)->pieces[row];
        if (bytes_of(piece) == 0)
            continue;
        *seen = (struct piece_seen){slot, row, (uint32_t)device, load(&piece->key)};
        ++*at;
        return true;
    }
    return false;
}

/* ---- locks ---- */

static uint64_t change_byte(uint32_t slot)
{
    return VGPU_LOCK_PIECES + (uint64_t)VGPU_PIECE_LOCKS * slot;
}

static uint64_t maker_byte(uint32_t slot, uint32_t at)
{
    return slot_piece_byte(slot, at) + VGPU_SLOT_PIECES;
}

static void drop(const struct life *life, uint32_t index)
{
    life_lock(life, change_byte(index), F_UNLCK);
    life_lock(life, slot_byte(index, VGPU_LOCK_LIFE), F_UNLCK);
    life_lock(life, slot_byte(index, VGPU_LOCK_CLAIM), F_UNLCK);
}

/* Keeps the slot from who would claim or reap it. False: it is not one of the ledger's device. */
static bool enter(const struct ledger *ledger, const struct life *life, uint32_t index)
{
    struct vgpu_usage_slot *row = usage_slot(ledger->usage, index);
    if (life_lock(life, slot_byte(index, VGPU_LOCK_CLAIM), F_RDLCK) != 0 ||
        life_lock(life, slot_byte(index, VGPU_LOCK_LIFE), F_RDLCK) != 0)
        return false;
    uint64_t gen = load(&row->gen);
    do {
        if (gen % 2 == 0 || row->pieces_device != ledger->device + 1ull)
            return false;
    } while (!__atomic_compare_exchange_n(&row->gen, &gen, gen + 2, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE));
    ledger_force(ledger, index, 0);
    return true;
}

/* The same, to change its rows, which are put right first. Where another does, nothing is touched. */
static bool enter_to_change(const struct ledger *ledger, const struct life *life, uint32_t index)
{
    if (life_lock(life, change_byte(index), F_WRLCK) != 0 || !enter(ledger, life, index))
        return false;
    uint64_t charged = charged_bytes(ledger, index);
    for (uint32_t at = 0; at < VGPU_SLOT_PIECES && charged == 0; at++)
        __atomic_store_n(&rows_of(ledger, index)[at].bytes, 0, __ATOMIC_RELEASE);
    uint64_t known = rows_bytes(ledger, index);
    if (charged > known)
        ledger_release(ledger, index, charged - known);
    return true;
}

/* ---- pieces that nobody holds ---- */

static void erase(const struct ledger *ledger, const struct life *life, uint32_t index, uint32_t at)
{
    struct vgpu_usage_piece *row = &rows_of(ledger, index)[at];
    uint64_t bytes = bytes_of(row);
    if (bytes == 0 || life_lock(life, slot_piece_byte(index, at), F_WRLCK) != 0)
        return;
    __atomic_store_n(&row->bytes, 0, __ATOMIC_RELEASE);
    ledger_release(ledger, index, bytes);
    life_lock(life, slot_piece_byte(index, at), F_UNLCK);
}

static bool is_untidy(const struct ledger *ledger, uint32_t index)
{
    bool is_so = charged_bytes(ledger, index) > rows_bytes(ledger, index);
    int usage = life_look(ledger->is_held_context);
    for (uint32_t at = 0; at < VGPU_SLOT_PIECES && !is_so; at++)
        is_so = bytes_of(&rows_of(ledger, index)[at]) > 0 &&
                !life_is_held(usage, slot_piece_byte(index, at));
    life_look_end(usage);
    return is_so;
}

static bool tidy_once(const struct ledger *ledger, uint32_t index)
{
    struct life life;
    if (life_open(&life, ledger->is_held_context) != 0)
        return false;
    bool can = enter_to_change(ledger, &life, index);
    for (uint32_t at = 0; at < VGPU_SLOT_PIECES && can; at++)
        erase(ledger, &life, index, at);
    life_close(&life);
    life_end(life.page);
    return can;
}

/* Who finds another at it leaves what has become free meanwhile to that one, so it looks again. */
static void tidy(const struct ledger *ledger, uint32_t index)
{
    while (tidy_once(ledger, index) && is_of_device(ledger, index) && is_untidy(ledger, index))
        continue;
}

int slot_pieces_reclaim(const struct ledger *ledger, uint32_t index)
{
    if (!is_of_device(ledger, index) || !is_untidy(ledger, index))
        return 0;
    uint64_t before = charged_bytes(ledger, index);
    tidy(ledger, index);
    return charged_bytes(ledger, index) < before;
}

/* ---- making, joining, leaving ---- */

static bool put(const struct ledger *ledger, const struct life *life, uint32_t index,
                struct held_piece *piece, const struct vgpu_usage_piece *wanted)
{
    for (uint32_t at = 0; at < VGPU_SLOT_PIECES; at++) {
        struct vgpu_usage_piece *row = &rows_of(ledger, index)[at];
        /* for writing first: who has just left may still be seen in it */
        if (bytes_of(row) > 0 || life_lock(life, slot_piece_byte(index, at), F_WRLCK) != 0)
            continue;
        if (life_lock(life, slot_piece_byte(index, at), F_RDLCK) != 0 ||
            life_lock(life, maker_byte(index, at), F_RDLCK) != 0)
            return false;
        ledger_force(ledger, index, wanted->bytes & BYTES_MASK);
        __atomic_store_n(&row->key, wanted->key, __ATOMIC_RELEASE);
        __atomic_store_n(&row->bytes, wanted->bytes, __ATOMIC_RELEASE);
        life_lock(life, change_byte(index), F_UNLCK);
        *piece = (struct held_piece){{index, life->page}, at};
        return true;
    }
    return false;
}

static bool has_room(const struct ledger *ledger, uint32_t index)
{
    for (uint32_t at = 0; at < VGPU_SLOT_PIECES; at++)
        if (bytes_of(&rows_of(ledger, index)[at]) == 0)
            return true;
    return false;
}

/* In a slot that this process has of the device, or else in a new one. */
static int put_somewhere(const struct ledger *ledger, const struct life *life,
                         struct held_piece *piece, const struct vgpu_usage_piece *wanted)
{
    const struct vgpu_usage_header *header = ledger->usage;
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    for (uint32_t index = 0; index < hi_slot && index < SLOTS_OF_PIECES; index++) {
        if (!is_of_device(ledger, index) || !has_room(ledger, index) ||
            !is_own(usage_slot(ledger->usage, index)))
            continue;
        if (enter_to_change(ledger, life, index) && put(ledger, life, index, piece, wanted))
            return 0;
        drop(life, index);
    }
    uint32_t index;
    int status = slot_claim_for_pieces(ledger, life, &index);
    if (status == 0 &&
        !(enter_to_change(ledger, life, index) && put(ledger, life, index, piece, wanted)))
        status = -EAGAIN;
    return status;
}

int slot_piece_make(struct held_piece *piece, const struct ledger *ledger, uint64_t key,
                    uint16_t kind, uint64_t bytes)
{
    struct life life;
    struct vgpu_usage_piece wanted = {key, bytes | (uint64_t)kind << VGPU_PIECE_KIND_AT};
    int status = life_open(&life, ledger->is_held_context);
    if (status != 0)
        return status;
    status = put_somewhere(ledger, &life, piece, &wanted);
    life_close(&life);
    if (status != 0)
        life_end(life.page);
    else
        slot_pieces_reclaim(ledger, piece->slot.index); /* who left meanwhile found it locked */
    return status;
}

/* Its bytes once they cannot go any more, with the slot and the piece locked. */
static uint64_t hold(const struct ledger *ledger, const struct life *life,
                     const struct piece_seen *seen)
{
    const struct vgpu_usage_piece *row = &rows_of(ledger, seen->slot)[seen->row];
    if (!enter(ledger, life, seen->slot) ||
        life_lock(life, slot_piece_byte(seen->slot, seen->row), F_RDLCK) != 0 ||
        charged_bytes(ledger, seen->slot) == 0)
        return 0;
    uint64_t bytes = bytes_of(row);
    return load(&row->key) == seen->key ? bytes : 0;
}

uint64_t slot_piece_join(struct held_piece *piece, const struct ledger *ledger, uint64_t key)
{
    struct piece_seen seen;
    struct life life;
    uint64_t bytes = 0;
    uint32_t at = 0;
    while (bytes == 0 && slot_pieces_next(ledger->usage, &at, &seen)) {
        if (seen.device != ledger->device || seen.key != key ||
            life_open(&life, ledger->is_held_context) != 0)
            continue;
        bytes = hold(ledger, &life, &seen);
        life_close(&life);
        if (bytes == 0) {
            life_end(life.page);
            slot_pieces_reclaim(ledger, seen.slot); /* who left meanwhile found it locked */
        }
    }
    if (bytes > 0)
        *piece = (struct held_piece){{seen.slot, life.page}, seen.row};
    return bytes;
}

void slot_piece_leave(struct held_piece *piece, const struct ledger *ledger)
{
    uint32_t index = piece->slot.index;
    uint64_t gen = load(&usage_slot(ledger->usage, index)->gen);
    life_end(piece->slot.life_page);
    /* of two who leave at once, the one that looks last finds that nobody holds it */
    if (life_is_held_at(ledger->is_held_context, slot_piece_byte(index, piece->at)))
        return;
    if (slot_is_held(ledger->is_held_context, index))
        tidy(ledger, index);
    else if (gen % 2 == 1) /* who joins from here on moves gen, and the bytes stay */
        ledger_reap(ledger, index, gen);
}

bool slot_piece_is_with_maker(int usage, uint32_t slot, uint32_t at)
{
    return life_is_held(usage, maker_byte(slot, at));
}
