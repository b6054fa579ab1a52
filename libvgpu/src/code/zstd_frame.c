#include "code/zstd_frame.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "code/zstd_block.h"

#define FRAME_MAGIC 0xfd2fb528u
#define BLOCK_HEADER_BYTES 3

enum { BLOCK_RAW, BLOCK_RUN, BLOCK_PACKED };

static bool read_header(struct zstd_input *input)
{
    static const uint8_t dictionary_bytes[] = {0, 1, 2, 4}, content_bytes[] = {0, 2, 4, 8};
    uint64_t magic, descriptor, window, dictionary, content;
    if (!zstd_take(input, 4, &magic) || magic != FRAME_MAGIC || !zstd_take(input, 1, &descriptor))
        return false;
    bool is_single = (descriptor & 0x20) != 0;
    uint64_t content_size_bytes = content_bytes[descriptor >> 6];
    if (content_size_bytes == 0 && is_single)
        content_size_bytes = 1;
    return zstd_take(input, is_single ? 0 : 1, &window) &&
           zstd_take(input, dictionary_bytes[descriptor & 3], &dictionary) && dictionary == 0 &&
           zstd_take(input, content_size_bytes, &content);
}

/* One block; false when it is damaged. */
static bool read_block(struct zstd_frame *frame, struct zstd_input *input, bool *is_last)
{
    uint64_t header, byte;
    struct zstd_input data;
    if (!zstd_take(input, BLOCK_HEADER_BYTES, &header))
        return false;
    *is_last = header & 1;
    uint64_t bytes = header >> 3;
    switch (header >> 1 & 3) {
    case BLOCK_RAW:
        frame->literal_bytes = bytes;
        return zstd_skip(input, bytes, &frame->literals) && zstd_put_literals(frame, bytes);
    case BLOCK_RUN:
        if (!zstd_take(input, 1, &byte) || bytes > frame->room - frame->filled)
            return false;
        memset(frame->out + frame->filled, (int)byte, bytes);
        frame->filled += bytes;
        return true;
    case BLOCK_PACKED:
        data.left = bytes;
        return zstd_skip(input, bytes, &data.at) && zstd_block_unpack(frame, data);
    default:
        return false;
    }
}

uint64_t zstd_frame_unpack(const uint8_t *packed, uint64_t packed_bytes, uint8_t *out,
                           uint64_t room)
{
    struct zstd_input input = {packed, packed_bytes};
    if (!read_header(&input))
        return 0;
    /* too large for the stack of a thread that is not ours */
    struct zstd_frame *frame =
        mmap(NULL, sizeof *frame, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (frame == MAP_FAILED)
        return 0;
    frame->out = out;
    frame->room = room;
    frame->offsets[0] = 1;
    frame->offsets[1] = 4;
    frame->offsets[2] = 8;
    bool is_last = false, is_whole = true;
    while (is_whole && !is_last)
        is_whole = read_block(frame, &input, &is_last);
    uint64_t filled = is_whole ? frame->filled : 0;
    munmap(frame, sizeof *frame);
    return filled;
}
