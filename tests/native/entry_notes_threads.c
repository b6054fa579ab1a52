/* Eight threads note the same names at once, while the process gets its slot; to be built with a
 * sanitizer. What is in the slot in the end is exact. */
#include <pthread.h>

#include "ledger_fixture.h"
#include "slice/entry_notes.h"
#include "slice/region.h"

#define THREADS 8
#define UNKNOWN_NAMES 20
#define MOVED_NAMES 30
#define ROUNDS 50

static struct vgpu_usage_slot slot;
static bool has_slot;
static pthread_barrier_t start;

struct vgpu_usage_slot *region_own_slot(void)
{
    return __atomic_load_n(&has_slot, __ATOMIC_SEQ_CST) ? &slot : NULL;
}

static void note(enum entry_kind kind, int names)
{
    for (int i = 0; i < names; i++) {
        char name[100]; /* longer than the slot has room for */
        snprintf(name, sizeof name, "cuName%d%064d", i, kind);
        entry_note(kind, name);
    }
}

static void *run(void *first)
{
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++) {
        note(ENTRY_UNKNOWN, UNKNOWN_NAMES);
        note(ENTRY_MOVED, MOVED_NAMES);
        if (first != NULL && round == 0) {
            __atomic_store_n(&has_slot, true, __ATOMIC_SEQ_CST);
            entry_notes_tell(&slot);
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run, i == 0 ? &slot : NULL) == 0, "thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(slot.unknown_entries == UNKNOWN_NAMES, "%u", slot.unknown_entries);
    CHECK(slot.moved_entries == MOVED_NAMES, "%u", slot.moved_entries);
    CHECK(strncmp(slot.noted_entry, "cuName0000", 10) == 0, "%.48s", slot.noted_entry);
    CHECK(strlen(slot.noted_entry) == sizeof slot.noted_entry - 1, "%.48s", slot.noted_entry);
    note(ENTRY_UNKNOWN, VGPU_NOTED_ENTRIES); /* more than are kept */
    CHECK(slot.unknown_entries + slot.moved_entries == VGPU_NOTED_ENTRIES, "%u",
          slot.unknown_entries);
    return 0;
}
