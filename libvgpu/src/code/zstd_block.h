/* One packed block of a zstd frame (RFC 8878, section 3.1.1.3): literals, and sequences that put
 * them out and repeat what came out before. */
#ifndef VGPU_ZSTD_BLOCK_H
#define VGPU_ZSTD_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "code/zstd_entropy.h"

#define ZSTD_MOST_BLOCK_BYTES (128u << 10)
#define ZSTD_TABLE_COUNT 3

struct zstd_input {
    const uint8_t *at;
    uint64_t left;
};

/* What one block leaves for the next, and room for a block's literals. */
struct zstd_frame {
    uint8_t *out;
    uint64_t filled, room;
    uint64_t offsets[3]; /* the last ones, the newest first */
    struct fse_table tables[ZSTD_TABLE_COUNT];
    struct huffman_table tree;
    const uint8_t *literals;
    uint64_t literal_bytes;
    uint8_t literal_room[ZSTD_MOST_BLOCK_BYTES];
};

/* The next bytes, as a little-endian number of at most eight; false when there are fewer. */
bool zstd_take(struct zstd_input *input, uint64_t bytes, uint64_t *value);

/* Steps over bytes; false when there are fewer. */
bool zstd_skip(struct zstd_input *input, uint64_t bytes, const uint8_t **start);

/* Puts the next literals out; false when there are fewer, or no room. */
bool zstd_put_literals(struct zstd_frame *frame, uint64_t bytes);

/* False when the block is damaged or does not fit. */
bool zstd_block_unpack(struct zstd_frame *frame, struct zstd_input input);

#endif
