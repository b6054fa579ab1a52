#include "code/fatbin_size.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "code/cubin_size.h"
#include "code/lz4_block.h"
#include "code/ptx_size.h"
#include "code/zstd_frame.h"

#define WRAPPER_MAGIC 0x466243b1u
#define BUNDLE_MAGIC 0xba55ed50u
#define LINKED_WRAPPER 2 /* version: what it points to is one of several parts to be linked */
#define ELF_MAGIC "\177ELF"
#define FLAG_LZ4 0x2000u
#define FLAG_ZSTD 0x8000u
#define MOST_UNPACKED_BYTES (1ull << 30)

enum payload_kind { KIND_PTX = 1, KIND_ELF = 2, KIND_OTHER = 3 };

struct wrapper {
    uint32_t magic, version;
    const void *bundle;
};

struct bundle {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t entries_bytes;
};

struct entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint32_t packed_bytes, reserved0;
    uint16_t minor, major;
    uint32_t architecture;
    uint32_t name_offset, name_bytes;
    uint64_t flags, reserved1;
    uint64_t unpacked_bytes; /* an entry that is not packed may end before this */
};

#define ENTRY_LEAST_BYTES offsetof(struct entry, unpacked_bytes)

bool fatbin_size_is(uint32_t first_word)
{
    return first_word == WRAPPER_MAGIC || first_word == BUNDLE_MAGIC;
}

static enum payload_kind kind_of(const struct entry *entry)
{
    return entry->kind == KIND_PTX || entry->kind == KIND_ELF ? (enum payload_kind)entry->kind
                                                              : KIND_OTHER;
}

/* Whether the GPU can run it: machine code of its own major version, PTX of the same or an older one. */
static bool suits(const struct entry *entry, uint32_t architecture)
{
    if (architecture == 0)
        return true;
    return entry->architecture <= architecture &&
           (entry->kind != KIND_ELF || entry->architecture / 10 == architecture / 10);
}

static void add_plain(const struct image_view *view, enum payload_kind kind,
                      struct image_size *size)
{
    const void *start = image_view_at(view, 0, sizeof(uint32_t));
    if (start == NULL || kind == KIND_OTHER)
        size->is_unknown = true;
    else if (memcmp(start, ELF_MAGIC, sizeof(uint32_t)) == 0)
        cubin_size(view, size);
    else
        ptx_size(view, size);
}

static void add_packed(const struct image_view *payload, const struct entry *entry,
                       struct image_size *size)
{
    uint64_t room = entry->unpacked_bytes;
    const uint8_t *packed = entry->packed_bytes <= payload->length
                                ? image_view_at(payload, 0, entry->packed_bytes)
                                : NULL;
    void *out = MAP_FAILED;
    if (packed != NULL && room > 0 && room <= MOST_UNPACKED_BYTES)
        out = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (out == MAP_FAILED) {
        size->is_unknown = true;
        return;
    }
    bool is_zstd = (entry->flags & FLAG_ZSTD) != 0;
    uint64_t filled =
        (is_zstd ? zstd_frame_unpack : lz4_block_unpack)(packed, entry->packed_bytes, out, room);
    struct image_view view = {out, filled, false};
    if (view.length == room)
        add_plain(&view, kind_of(entry), size);
    else
        size->is_unknown = true; /* damaged; the driver will say so */
    munmap(out, room);
}

static void add_entry(const struct image_view *payload, const struct entry *entry,
                      struct image_size *size)
{
    struct image_size own = {0};
    if ((entry->flags & (FLAG_LZ4 | FLAG_ZSTD)) != 0)
        add_packed(payload, entry, &own);
    else
        add_plain(payload, kind_of(entry), &own);
    own.image_bytes =
        entry->unpacked_bytes > entry->payload_bytes && entry->unpacked_bytes < IMAGE_MOST_BYTES
            ? entry->unpacked_bytes
            : entry->payload_bytes;
    image_size_raise(size, &own);
}

/* What the entries that suit take, by kind; of each kind those of the newest architecture. */
struct choice {
    uint32_t newest; /* architecture + 1; 0: there is none */
    struct image_size size;
};

/* Goes through the entries. The first pass, with `reads` false, finds the newest architectures; the
 * second reads. False when the bundle is damaged. */
static bool go_through(const struct image_view *entries, uint32_t architecture, bool reads,
                       struct choice *choices)
{
    struct image_view payload;
    for (uint64_t at = 0; entries->length - at >= ENTRY_LEAST_BYTES;) {
        struct entry entry = {0};
        uint64_t left = entries->length - at;
        uint64_t head_bytes = left < sizeof entry ? left : sizeof entry;
        const void *head = image_view_at(entries, at, head_bytes);
        if (head != NULL)
            memcpy(&entry, head, head_bytes);
        if (head == NULL || entry.header_bytes < ENTRY_LEAST_BYTES || entry.header_bytes > left ||
            entry.payload_bytes > left - entry.header_bytes ||
            !image_view_part(entries, at + entry.header_bytes, entry.payload_bytes, &payload))
            return false;
        if (entry.header_bytes < sizeof entry)
            entry.unpacked_bytes = 0; /* belongs to the payload */
        struct choice *choice = &choices[kind_of(&entry)];
        if (!reads && suits(&entry, architecture) && choice->newest <= entry.architecture)
            choice->newest = entry.architecture + 1;
        else if (reads && suits(&entry, architecture) && choice->newest == entry.architecture + 1)
            add_entry(&payload, &entry, &choice->size);
        at += entry.header_bytes + entry.payload_bytes;
    }
    return true;
}

/* The program may ask the driver for PTX even where there is machine code. */
static bool prefers_ptx(void)
{
    const char *wish = getenv("CUDA_FORCE_PTX_JIT");
    return wish != NULL && *wish != 0 && *wish != '0';
}

/* What cannot be read matters only where the driver would choose it: libraries often hold plain
 * machine code next to packed PTX. */
static void choose(struct choice *choices, struct image_size *size)
{
    struct choice *ptx = &choices[KIND_PTX], *elf = &choices[KIND_ELF];
    if (elf->newest != 0 && !prefers_ptx())
        ptx->size.is_unknown = false;
    image_size_raise(size, &elf->size);
    image_size_raise(size, &ptx->size);
    if (elf->newest == 0 && ptx->newest == 0)
        image_size_raise(size, &choices[KIND_OTHER].size);
}

void fatbin_size(const struct image_view *view, uint32_t architecture, struct image_size *size)
{
    struct image_view bundle_view = *view;
    struct wrapper wrapper;
    struct bundle bundle;
    const void *start = image_view_at(view, 0, sizeof wrapper);
    if (start != NULL) {
        memcpy(&wrapper, start, sizeof wrapper);
        if (wrapper.magic == WRAPPER_MAGIC) {
            bundle_view = image_view_unbounded(wrapper.bundle);
            size->is_unknown = wrapper.version == LINKED_WRAPPER;
        }
    }
    start = image_view_at(&bundle_view, 0, sizeof bundle);
    if (start == NULL) {
        size->is_unknown = true;
        return;
    }
    memcpy(&bundle, start, sizeof bundle);
    struct image_view entries;
    if (bundle.magic != BUNDLE_MAGIC || bundle.header_bytes < sizeof bundle ||
        !image_view_part(&bundle_view, bundle.header_bytes, bundle.entries_bytes, &entries)) {
        size->is_unknown = true;
        return;
    }
    struct choice choices[KIND_OTHER + 1] = {0};
    bool is_whole = go_through(&entries, architecture, false, choices);
    go_through(&entries, architecture, true, choices);
    choose(choices, size);
    size->is_unknown |= !is_whole;
}
