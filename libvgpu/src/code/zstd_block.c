#include "code/zstd_block.h"

#include <string.h>

enum { LITERALS_RAW, LITERALS_RUN, LITERALS_PACKED, LITERALS_SAME_TREE };
enum { TABLE_DEFAULT, TABLE_RUN, TABLE_PACKED, TABLE_SAME };
enum { LENGTHS, OFFSETS, MATCHES };

/* What a code stands for: a base, and how many bits are added to it. */
struct code {
    uint32_t base;
    uint8_t bits;
};

static const struct code length_codes[] = {
    {0, 0},     {1, 0},      {2, 0},      {3, 0},     {4, 0},   {5, 0},     {6, 0},     {7, 0},
    {8, 0},     {9, 0},      {10, 0},     {11, 0},    {12, 0},  {13, 0},    {14, 0},    {15, 0},
    {16, 1},    {18, 1},     {20, 1},     {22, 1},    {24, 2},  {28, 2},    {32, 3},    {40, 3},
    {48, 4},    {64, 6},     {128, 7},    {256, 8},   {512, 9}, {1024, 10}, {2048, 11}, {4096, 12},
    {8192, 13}, {16384, 14}, {32768, 15}, {65536, 16}};
static const struct code match_codes[] = {
    {3, 0},     {4, 0},     {5, 0},      {6, 0},      {7, 0},     {8, 0},   {9, 0},     {10, 0},
    {11, 0},    {12, 0},    {13, 0},     {14, 0},     {15, 0},    {16, 0},  {17, 0},    {18, 0},
    {19, 0},    {20, 0},    {21, 0},     {22, 0},     {23, 0},    {24, 0},  {25, 0},    {26, 0},
    {27, 0},    {28, 0},    {29, 0},     {30, 0},     {31, 0},    {32, 0},  {33, 0},    {34, 0},
    {35, 1},    {37, 1},    {39, 1},     {41, 1},     {43, 2},    {47, 2},  {51, 3},    {59, 3},
    {67, 4},    {83, 4},    {99, 5},     {131, 7},    {259, 8},   {515, 9}, {1027, 10}, {2051, 11},
    {4099, 12}, {8195, 13}, {16387, 14}, {32771, 15}, {65539, 16}};

static const int16_t default_lengths[] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,  1,  2,  2,
                                          2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
static const int16_t default_offsets[] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
static const int16_t default_matches[] = {
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const struct {
    const int16_t *counts;
    unsigned int count_number, log, most_log, most_symbol;
} table_kinds[ZSTD_TABLE_COUNT] = {
    [LENGTHS] = {default_lengths, COUNT_OF(default_lengths), 6, 9, 35},
    [OFFSETS] = {default_offsets, COUNT_OF(default_offsets), 5, 8, 31},
    [MATCHES] = {default_matches, COUNT_OF(default_matches), 6, 9, 52},
};

bool zstd_take(struct zstd_input *input, uint64_t bytes, uint64_t *value)
{
    *value = 0;
    if (bytes > input->left)
        return false;
    memcpy(value, input->at, bytes);
    input->at += bytes;
    input->left -= bytes;
    return true;
}

bool zstd_skip(struct zstd_input *input, uint64_t bytes, const uint8_t **start)
{
    if (bytes > input->left)
        return false;
    *start = input->at;
    input->at += bytes;
    input->left -= bytes;
    return true;
}

/* ---- literals ---- */

static bool unpack_streams(struct zstd_frame *frame, struct zstd_input data,
                           unsigned int stream_count)
{
    uint64_t sizes[3] = {0};
    uint64_t each = (frame->literal_bytes + 3) / 4, done = 0;
    for (unsigned int i = 0; stream_count == 4 && i < 3; i++)
        if (!zstd_take(&data, 2, &sizes[i]))
            return false;
    for (unsigned int i = 0; i < stream_count; i++) {
        const uint8_t *start;
        bool is_last = i + 1 == stream_count;
        uint64_t bytes = is_last ? data.left : sizes[i];
        uint64_t count = is_last ? frame->literal_bytes - done : each;
        if (count > frame->literal_bytes - done || !zstd_skip(&data, bytes, &start) ||
            !huffman_unpack(&frame->tree, start, bytes, frame->literal_room + done, count))
            return false;
        done += count;
    }
    return true;
}

static bool read_packed_literals(struct zstd_frame *frame, struct zstd_input *input,
                                 unsigned int type, unsigned int format)
{
    static const uint8_t header_bytes[] = {3, 3, 4, 5}, size_bits[] = {10, 10, 14, 18};
    uint64_t header, tree_bytes = 0;
    struct zstd_input data;
    if (!zstd_take(input, header_bytes[format], &header))
        return false;
    uint64_t mask = (1ull << size_bits[format]) - 1;
    frame->literal_bytes = header >> 4 & mask;
    data.left = header >> (4 + size_bits[format]) & mask;
    if (frame->literal_bytes > ZSTD_MOST_BLOCK_BYTES || !zstd_skip(input, data.left, &data.at))
        return false;
    if (type == LITERALS_PACKED)
        tree_bytes = huffman_read(&frame->tree, data.at, data.left);
    if (frame->tree.most_bits == 0 || (type == LITERALS_PACKED && tree_bytes == 0))
        return false;
    data.at += tree_bytes;
    data.left -= tree_bytes;
    frame->literals = frame->literal_room;
    return unpack_streams(frame, data, format == 0 ? 1 : 4);
}

static bool read_literals(struct zstd_frame *frame, struct zstd_input *input)
{
    uint64_t header, byte;
    if (input->left == 0)
        return false;
    unsigned int type = *input->at & 3, format = *input->at >> 2 & 3;
    if (type == LITERALS_PACKED || type == LITERALS_SAME_TREE)
        return read_packed_literals(frame, input, type, format);
    if (!zstd_take(input, format == 1 ? 2 : format == 3 ? 3 : 1, &header))
        return false;
    frame->literal_bytes = header >> (format % 2 == 0 ? 3 : 4);
    if (frame->literal_bytes > ZSTD_MOST_BLOCK_BYTES)
        return false;
    if (type == LITERALS_RAW)
        return zstd_skip(input, frame->literal_bytes, &frame->literals);
    if (!zstd_take(input, 1, &byte))
        return false;
    memset(frame->literal_room, (int)byte, frame->literal_bytes);
    frame->literals = frame->literal_room;
    return true;
}

/* ---- sequences ---- */

static bool read_table(struct zstd_frame *frame, struct zstd_input *input, int kind,
                       unsigned int mode)
{
    struct fse_table *table = &frame->tables[kind];
    uint64_t value;
    const uint8_t *start;
    switch (mode) {
    case TABLE_DEFAULT:
        return fse_build(table, table_kinds[kind].counts, table_kinds[kind].count_number,
                         table_kinds[kind].log);
    case TABLE_RUN:
        if (!zstd_take(input, 1, &value) || value > table_kinds[kind].most_symbol)
            return false;
        fse_build_single(table, (uint8_t)value);
        return true;
    case TABLE_PACKED:
        value = fse_read(table, input->at, input->left, table_kinds[kind].most_log,
                         table_kinds[kind].most_symbol);
        return value > 0 && zstd_skip(input, value, &start);
    default:
        return table->is_set;
    }
}

bool zstd_put_literals(struct zstd_frame *frame, uint64_t bytes)
{
    if (bytes > frame->literal_bytes || bytes > frame->room - frame->filled)
        return false;
    memcpy(frame->out + frame->filled, frame->literals, bytes);
    frame->literals += bytes;
    frame->literal_bytes -= bytes;
    frame->filled += bytes;
    return true;
}

static bool put_match(struct zstd_frame *frame, uint64_t offset, uint64_t bytes)
{
    if (offset == 0 || offset > frame->filled || bytes > frame->room - frame->filled)
        return false;
    uint8_t *to = frame->out + frame->filled;
    for (uint64_t i = 0; i < bytes; i++) /* may reach into what it puts out itself */
        to[i] = to[i - offset];
    frame->filled += bytes;
    return true;
}

/* Values up to 3 stand for one of the last offsets, counted on by one where no literals precede. */
static uint64_t offset_of(struct zstd_frame *frame, uint64_t value, bool has_literals)
{
    uint64_t *last = frame->offsets;
    uint64_t place = value > 3 ? 3 : value - (has_literals ? 1 : 0);
    uint64_t offset = value > 3 ? value - 3 : place < 3 ? last[place] : last[0] - 1;
    if (place > 1)
        last[2] = last[1];
    if (place > 0)
        last[1] = last[0];
    last[0] = offset;
    return offset;
}

static bool run_sequences(struct zstd_frame *frame, struct zstd_input *input, uint64_t count)
{
    struct back_bits bits;
    uint32_t states[ZSTD_TABLE_COUNT];
    if (!back_bits_open(&bits, input->at, input->left))
        return false;
    for (int kind = 0; kind < ZSTD_TABLE_COUNT; kind++)
        states[kind] = (uint32_t)back_bits_read(&bits, frame->tables[kind].log);
    for (uint64_t i = 0; i < count && bits.left >= 0; i++) {
        unsigned int symbols[ZSTD_TABLE_COUNT];
        for (int kind = 0; kind < ZSTD_TABLE_COUNT; kind++)
            symbols[kind] = frame->tables[kind].cells[states[kind]].symbol;
        struct code match = match_codes[symbols[MATCHES]], length = length_codes[symbols[LENGTHS]];
        uint64_t value = (1ull << symbols[OFFSETS]) + back_bits_read(&bits, symbols[OFFSETS]);
        uint64_t match_bytes = match.base + back_bits_read(&bits, match.bits);
        uint64_t literal_bytes = length.base + back_bits_read(&bits, length.bits);
        if (!zstd_put_literals(frame, literal_bytes) ||
            !put_match(frame, offset_of(frame, value, literal_bytes > 0), match_bytes))
            return false;
        if (i + 1 < count) {
            fse_next(&frame->tables[LENGTHS], &states[LENGTHS], &bits);
            fse_next(&frame->tables[MATCHES], &states[MATCHES], &bits);
            fse_next(&frame->tables[OFFSETS], &states[OFFSETS], &bits);
        }
    }
    return bits.left == 0;
}

static bool read_sequence_count(struct zstd_input *input, uint64_t *count)
{
    uint64_t more;
    if (!zstd_take(input, 1, count))
        return false;
    if (*count < 128)
        return true;
    if (!zstd_take(input, *count == 255 ? 2 : 1, &more))
        return false;
    *count = *count == 255 ? more + 0x7f00 : ((*count - 128) << 8) + more;
    return true;
}

bool zstd_block_unpack(struct zstd_frame *frame, struct zstd_input input)
{
    uint64_t count, modes;
    if (!read_literals(frame, &input) || !read_sequence_count(&input, &count))
        return false;
    if (count > 0) {
        if (!zstd_take(&input, 1, &modes) || !read_table(frame, &input, LENGTHS, modes >> 6 & 3) ||
            !read_table(frame, &input, OFFSETS, modes >> 4 & 3) ||
            !read_table(frame, &input, MATCHES, modes >> 2 & 3) ||
            !run_sequences(frame, &input, count))
            return false;
    }
    return zstd_put_literals(frame, frame->literal_bytes); /* what no sequence took */
}
