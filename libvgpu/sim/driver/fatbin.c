/*
 * Fat binaries: a bundle of images of the same code for several architectures, and the wrapper that
 * nvcc puts a pointer to one into. The format is not published; what is read of it here is what
 * several independent readers agree on:
 *
 *   wrapper: magic, version, address of the bundle
 *   bundle:  magic, version (2 bytes), bytes of this header (2), bytes of all entries (8), entries
 *   entry:   kind (2), version (2), bytes of this header (4), bytes of the payload (8),
 *            bytes of it that are compressed (4), ... architecture at 28, flags (8) at 40,
 *            bytes when unpacked (8) at 56; then the payload
 *
 * Taken is machine code of the device's major version, the newest that is not newer, else the
 * newest PTX that is not newer. This file unpacks payloads of LZ4. The system's library unpacks those of zstd. If
 * the system has no such library, these images are passed over.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define WRAPPER_MAGIC 0x466243b1u
#define BUNDLE_MAGIC 0xba55ed50u
#define KIND_PTX 1
#define KIND_ELF 2
#define FLAG_LZ4 0x2000u
#define FLAG_ZSTD 0x8000u
#define MAX_UNPACKED_BYTES (1ull << 32)

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
    uint64_t flags, reserved1, unpacked_bytes;
};

/* How far the bytes before `unpacked_bytes` go: an entry that is not packed may end there. */
#define ENTRY_LEAST_BYTES offsetof(struct entry, unpacked_bytes)

/* Reads the further bytes of a length of LZ4: each adds up to 255, and a smaller one is the last.
 * Returns false at the end of the data. */
static bool lz4_length(const uint8_t **at, const uint8_t *end, uint64_t *length)
{
    uint8_t more = 255;
    while (more == 255) {
        if (*at == end)
            return false;
        more = *(*at)++;
        *length += more;
    }
    return true;
}

/* Unpacks one LZ4 block: runs of literal bytes, each followed by a copy from what is out already.
 * Returns how many bytes came out, 0 when the data is damaged. */
static uint64_t lz4_unpack(const uint8_t *at, uint64_t packed_bytes, uint8_t *out, uint64_t room)
{
    const uint8_t *end = at + packed_bytes;
    uint64_t filled = 0;
    while (at < end) {
        uint8_t token = *at++;
        uint64_t literals = token >> 4, match = token & 15;
        if (literals == 15 && !lz4_length(&at, end, &literals))
            return 0;
        if (literals > (uint64_t)(end - at) || literals > room - filled)
            return 0;
        memcpy(out + filled, at, literals);
        at += literals;
        filled += literals;
        if (at == end) /* the last run has no copy */
            return filled;
        if (end - at < 2)
            return 0;
        uint64_t distance = at[0] | (uint64_t)at[1] << 8;
        at += 2;
        if (match == 15 && !lz4_length(&at, end, &match))
            return 0;
        match += 4;
        if (distance == 0 || distance > filled || match > room - filled)
            return 0;
        for (; match; match--, filled++) /* may overlap itself */
            out[filled] = out[filled - distance];
    }
    return filled;
}

/* --- zstd, by the system's library --- */

static size_t (*zstd_decompress)(void *out, size_t room, const void *packed, size_t packed_bytes);

static void find_zstd(void)
{
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library)
        *(void **)&zstd_decompress = dlsym(library, "ZSTD_decompress");
}

static bool has_zstd(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_zstd);
    return zstd_decompress != NULL;
}

/* How good an entry is for the device: 0 not at all. */
static uint32_t worth(const struct entry *entry, uint32_t architecture)
{
    if (entry->architecture > architecture)
        return 0;
    if (entry->kind == KIND_ELF && entry->architecture / 10 == architecture / 10)
        return 0x10000u + entry->architecture;
    return entry->kind == KIND_PTX ? entry->architecture : 0;
}

static CUresult take(const struct entry *entry, const uint8_t *payload, const void **image,
                     uint64_t *image_bytes, void **owned)
{
    if (!(entry->flags & (FLAG_LZ4 | FLAG_ZSTD))) {
        *image = payload;
        *image_bytes = entry->payload_bytes;
        return CUDA_SUCCESS;
    }
    REFUSE_IF(entry->packed_bytes > entry->payload_bytes ||
                  entry->unpacked_bytes < sizeof(uint32_t) ||
                  entry->unpacked_bytes > MAX_UNPACKED_BYTES,
              CUDA_ERROR_INVALID_IMAGE);
    uint8_t *out = malloc(entry->unpacked_bytes);
    REFUSE_IF(!out, CUDA_ERROR_OUT_OF_MEMORY);
    *owned = out;
    *image = out;
    *image_bytes = entry->flags & FLAG_LZ4
                       ? lz4_unpack(payload, entry->packed_bytes, out, entry->unpacked_bytes)
                       : zstd_decompress(out, entry->unpacked_bytes, payload, entry->packed_bytes);
    return *image_bytes == entry->unpacked_bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult fatbin_choose(const void *bytes, uint64_t length, uint32_t architecture,
                       const void **payload, uint64_t *payload_length, void **owned)
{
    struct bundle bundle;
    struct wrapper wrapper;
    memcpy(&wrapper.magic, bytes, sizeof wrapper.magic);
    if (wrapper.magic == WRAPPER_MAGIC) {
        REFUSE_IF(length && length < sizeof wrapper, CUDA_ERROR_INVALID_IMAGE);
        memcpy(&wrapper, bytes, sizeof wrapper);
        bytes = wrapper.bundle; /* somewhere else: its own header tells its length */
        length = 0;
    }
    REFUSE_IF(!bytes || (length && length < sizeof bundle), CUDA_ERROR_INVALID_IMAGE);
    memcpy(&bundle, bytes, sizeof bundle);
    REFUSE_IF(bundle.magic != BUNDLE_MAGIC || bundle.header_bytes < sizeof bundle ||
                  (length && (bundle.header_bytes > length ||
                              bundle.entries_bytes > length - bundle.header_bytes)),
              CUDA_ERROR_INVALID_IMAGE);
    const uint8_t *at = (const uint8_t *)bytes + bundle.header_bytes;
    uint64_t left = bundle.entries_bytes;
    struct entry best = {0};
    const uint8_t *best_payload = NULL;
    bool passed_over = false;
    while (left >= ENTRY_LEAST_BYTES) {
        struct entry entry = {0};
        memcpy(&entry, at, left < sizeof entry ? left : sizeof entry);
        REFUSE_IF(entry.header_bytes < ENTRY_LEAST_BYTES || entry.header_bytes > left ||
                      entry.payload_bytes > left - entry.header_bytes,
                  CUDA_ERROR_INVALID_IMAGE);
        bool fits = worth(&entry, architecture) != 0;
        bool is_readable = !(entry.flags & FLAG_ZSTD) || (fits && has_zstd());
        if (fits && (!is_readable || entry.payload_bytes < sizeof(uint32_t))) {
            passed_over = true;
        } else if (fits && worth(&entry, architecture) > worth(&best, architecture)) {
            best = entry;
            best_payload = at + entry.header_bytes;
        }
        at += entry.header_bytes + entry.payload_bytes;
        left -= entry.header_bytes + entry.payload_bytes;
    }
    if (!best_payload)
        return passed_over ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NO_BINARY_FOR_GPU;
    return take(&best, best_payload, payload, payload_length, owned);
}
