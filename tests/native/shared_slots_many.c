/* More pieces than there is room for leave slots for processes, and all can be had again.
 *
 *   shared_slots_many FILE */
#include "shared_slots.h"

#define ROUNDS 2
#define MOST_PIECES (SLOTS_OF_PIECES * VGPU_SLOT_PIECES)

/* Nothing is left of what a slot's last user noted of entry points; notes something itself. */
static void note(struct slots *slots, uint32_t index)
{
    struct vgpu_usage_slot *row = usage_slot(slots->fixture.usage, index);
    CHECK(row->unknown_entries == 0 && row->moved_entries == 0 && row->noted_entry[0] == 0,
          "slot %u is not clean", index);
    row->unknown_entries = row->moved_entries = 1;
    memcpy(row->noted_entry, "cuOld", sizeof "cuOld");
}

int main(int argc, char **argv)
{
    static struct held_piece pieces[MOST_PIECES];
    static struct slot others[VGPU_SLOT_COUNT];
    uint64_t most = 0;
    CHECK(argc == 2, "usage");
    struct slots slots = slots_make(argv[1], 10000);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t count = 0, processes = 0, key = round << 32;
        while (count < MOST_PIECES && slots_export(&slots, &pieces[count], ++key, 1))
            count++;
        while (processes < VGPU_SLOT_COUNT &&
               slot_claim(&others[processes], slots.path, slots.fixture.usage,
                          slots.fixture.limits) == 0)
            note(&slots, others[processes++].index);
        CHECK(processes >= VGPU_SLOT_COUNT / 2 && count >= 1000, "%llu pieces left %llu",
              (unsigned long long)count, (unsigned long long)processes);
        CHECK(most == 0 || count == most, "a slot was lost");
        most = count;
        slots_fill(&slots, 10000, count, "all exported");
        while (processes > 0)
            slots_vanish(&others[--processes]);
        while (count > 0)
            slots_leave(&slots, &pieces[--count]);
        slots_fill(&slots, 10000, 0, "all left");
    }
    printf("%llu pieces\n", (unsigned long long)most);
    return 0;
}
