/* The two codes that zstd packs with (RFC 8878, section 4): finite-state tables (FSE) and Huffman
 * trees. Bounded by the data and by the tables, whatever the data. No state of its own. */
#ifndef VGPU_ZSTD_ENTROPY_H
#define VGPU_ZSTD_ENTROPY_H

#include <stdbool.h>
#include <stdint.h>

#define FSE_MOST_LOG 9
#define FSE_MOST_SYMBOLS 53
#define HUFFMAN_MOST_BITS 11

/* Bits that are read from the last one backwards. Before the first bit there are zeros; `left` is
 * negative when some of them were read. */
struct back_bits {
    const uint8_t *data;
    uint64_t bytes;
    int64_t left;
};

/* False when the data has no end mark. */
bool back_bits_open(struct back_bits *bits, const uint8_t *data, uint64_t bytes);
uint64_t back_bits_read(struct back_bits *bits, unsigned int count); /* at most 32 */

struct fse_cell {
    uint16_t base; /* of the next state */
    uint8_t symbol, bits;
};

struct fse_table {
    unsigned int log; /* of the number of states */
    bool is_set;
    struct fse_cell cells[1 << FSE_MOST_LOG];
};

/* From counts that add up to 1 << log; -1 stands for "less than one". */
bool fse_build(struct fse_table *table, const int16_t *counts, unsigned int count_number,
               unsigned int log);

/* A table of one symbol, which takes no bits. */
void fse_build_single(struct fse_table *table, uint8_t symbol);

/* Reads counts from the data and builds the table. How many bytes they took; 0: damaged. */
uint64_t fse_read(struct fse_table *table, const uint8_t *data, uint64_t bytes,
                  unsigned int most_log, unsigned int most_symbol);

static inline void fse_next(const struct fse_table *table, uint32_t *state, struct back_bits *bits)
{
    const struct fse_cell *cell = &table->cells[*state];
    *state = cell->base + (uint32_t)back_bits_read(bits, cell->bits);
}

struct huffman_table {
    unsigned int most_bits; /* 0: not set */
    struct {
        uint8_t symbol, bits;
    } cells[1 << HUFFMAN_MOST_BITS];
};

/* Reads a tree. How many bytes it took; 0: damaged. */
uint64_t huffman_read(struct huffman_table *table, const uint8_t *data, uint64_t bytes);

/* Unpacks one stream, which holds exactly `count` symbols. */
bool huffman_unpack(const struct huffman_table *table, const uint8_t *data, uint64_t bytes,
                    uint8_t *out, uint64_t count);

#endif
