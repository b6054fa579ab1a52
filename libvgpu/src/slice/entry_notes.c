#include "slice/entry_notes.h"

#include <string.h>

#include "driver/log.h"
#include "slice/region.h"

#define MOST_LINES 8
#define NAME_WORDS (sizeof((struct vgpu_usage_slot *)0)->noted_entry / sizeof(uint64_t))

static uint64_t seen[VGPU_NOTED_ENTRIES]; /* hashes of kind and name (FNV-1a), in order of coming */
static uint64_t notes[1 + NAME_WORDS];    /* as in the slot: both counts, the first name */

void entry_notes_tell(struct vgpu_usage_slot *slot)
{
    uint64_t *to = (uint64_t *)slot + 1, counts;
    for (size_t i = 1; i <= NAME_WORDS; i++)
        __atomic_store_n(&to[i], __atomic_load_n(&notes[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    do { /* who stored older counts looks again: the last to store has the newest */
        counts = __atomic_load_n(&notes[0], __ATOMIC_SEQ_CST);
        __atomic_store_n(&to[0], counts, __ATOMIC_SEQ_CST);
    } while (counts != __atomic_load_n(&notes[0], __ATOMIC_SEQ_CST));
}

void entry_note(enum entry_kind kind, const char *name)
{
    uint64_t hash = 14695981039346656037u + kind;
    for (const unsigned char *at = (const unsigned char *)name; *at != 0; at++)
        hash = (hash ^ *at) * 1099511628211u;
    uint32_t place = 0;
    for (uint64_t before = 0; place < VGPU_NOTED_ENTRIES; place++, before = 0) {
        if (__atomic_compare_exchange_n(&seen[place], &before, hash, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            break;
        if (before == hash)
            return;
    }
    if (place == VGPU_NOTED_ENTRIES)
        return;
    uint64_t words[NAME_WORDS] = {0};
    memcpy(words, name, strnlen(name, sizeof words - 1));
    for (size_t i = 0; place == 0 && i < NAME_WORDS; i++)
        __atomic_store_n(&notes[1 + i], words[i], __ATOMIC_RELAXED);
    __atomic_fetch_add(&notes[0], kind == ENTRY_MOVED ? 1ull << 32 : 1, __ATOMIC_SEQ_CST);
    if (place < MOST_LINES)
        log_line(LOG_WARN, "the driver answers %s with %s; it passes and is not held to the slice",
                 name,
                 kind == ENTRY_MOVED ? "another version of it than this build knows"
                                     : "an entry point that this build does not know");
    struct vgpu_usage_slot *slot = region_own_slot();
    if (slot != NULL)
        entry_notes_tell(slot);
}
