#include "code/lz4_block.h"

#include <stdbool.h>
#include <string.h>

#define LEAST_COPY_BYTES 4 /* a copy's length is stored less this */
#define LENGTH_CONTINUES 15
#define OFFSET_BYTES 2

struct block {
    const uint8_t *at, *end;
    uint8_t *out;
    uint64_t filled, room;
};

/* A length of four bits; when all are set, bytes follow that are added to it, up to the first that
 * is not 255. */
static bool read_length(struct block *block, uint64_t nibble, uint64_t *length)
{
    *length = nibble;
    if (nibble < LENGTH_CONTINUES)
        return true;
    for (uint8_t byte = 255; byte == 255; *length += byte) {
        if (block->at == block->end)
            return false;
        byte = *block->at++;
    }
    return true;
}

static bool put_literals(struct block *block, uint64_t length)
{
    if (length > (uint64_t)(block->end - block->at) || length > block->room - block->filled)
        return false;
    memcpy(block->out + block->filled, block->at, length);
    block->at += length;
    block->filled += length;
    return true;
}

/* Repeats what came out `distance` bytes ago, which may reach into what it puts out itself. */
static bool put_copy(struct block *block, uint64_t distance, uint64_t length)
{
    if (distance == 0 || distance > block->filled || length > block->room - block->filled)
        return false;
    uint8_t *to = block->out + block->filled;
    block->filled += length;
    if (distance >= length) {
        memcpy(to, to - distance, length);
        return true;
    }
    for (uint64_t i = 0; i < length; i++)
        to[i] = to[i - distance];
    return true;
}

uint64_t lz4_block_unpack(const uint8_t *packed, uint64_t packed_bytes, uint8_t *out, uint64_t room)
{
    struct block block = {.at = packed, .end = packed + packed_bytes, .out = out, .room = room};
    while (block.at < block.end) {
        uint8_t token = *block.at++;
        uint64_t length;
        if (!read_length(&block, token >> 4, &length) || !put_literals(&block, length))
            return 0;
        if (block.at == block.end)
            return block.filled; /* the last run has no copy behind it */
        if (block.end - block.at < OFFSET_BYTES)
            return 0;
        uint64_t distance = (uint64_t)block.at[0] | (uint64_t)block.at[1] << 8;
        block.at += OFFSET_BYTES;
        if (!read_length(&block, token & LENGTH_CONTINUES, &length) ||
            !put_copy(&block, distance, length + LEAST_COPY_BYTES))
            return 0;
    }
    return block.filled;
}
