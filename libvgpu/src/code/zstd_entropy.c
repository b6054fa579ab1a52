#include "code/zstd_entropy.h"

#include <string.h>

#define HUFFMAN_MOST_WEIGHTS 255
#define WEIGHTS_MOST_LOG 6
#define MOST_WEIGHT (HUFFMAN_MOST_BITS + 1)

static unsigned int highest_bit(uint64_t value)
{
    return 63u - (unsigned int)__builtin_clzll(value);
}

/* `count` bits from bit `place` on; behind the end there are zeros. */
static uint64_t bits_at(const uint8_t *data, uint64_t bytes, uint64_t place, unsigned int count)
{
    uint64_t word = 0, first = place / 8;
    uint64_t there = first < bytes ? bytes - first : 0;
    if (there > 0)
        memcpy(&word, data + first, there < sizeof word ? there : sizeof word);
    return word >> place % 8 & ((1ull << count) - 1);
}

bool back_bits_open(struct back_bits *bits, const uint8_t *data, uint64_t bytes)
{
    if (bytes == 0 || data[bytes - 1] == 0)
        return false;
    *bits =
        (struct back_bits){data, bytes, (int64_t)(8 * (bytes - 1) + highest_bit(data[bytes - 1]))};
    return true;
}

uint64_t back_bits_read(struct back_bits *bits, unsigned int count)
{
    bits->left -= count;
    if (bits->left >= 0)
        return bits_at(bits->data, bits->bytes, (uint64_t)bits->left, count);
    int64_t there = bits->left + count;
    return there <= 0 ? 0 : bits_at(bits->data, bits->bytes, 0, (unsigned int)there) << -bits->left;
}

/* ---- finite-state tables ---- */

bool fse_build(struct fse_table *table, const int16_t *counts, unsigned int count_number,
               unsigned int log)
{
    uint32_t size = 1u << log, high = size, place = 0;
    uint16_t next[FSE_MOST_SYMBOLS];
    table->is_set = false;
    for (unsigned int symbol = 0; symbol < count_number; symbol++) {
        next[symbol] = counts[symbol] < 0 ? 1 : (uint16_t)counts[symbol];
        if (counts[symbol] < 0) {
            if (high == 0)
                return false;
            table->cells[--high].symbol = (uint8_t)symbol;
        }
    }
    for (unsigned int symbol = 0; symbol < count_number; symbol++)
        for (int i = 0; i < counts[symbol]; i++) {
            if (high == 0)
                return false;
            table->cells[place].symbol = (uint8_t)symbol;
            do
                place = (place + (size >> 1) + (size >> 3) + 3) & (size - 1);
            while (place >= high);
        }
    if (place != 0)
        return false;
    for (uint32_t state = 0; state < size; state++) {
        struct fse_cell *cell = &table->cells[state];
        uint32_t number = next[cell->symbol]++;
        cell->bits = (uint8_t)(log - highest_bit(number));
        cell->base = (uint16_t)((number << cell->bits) - size);
    }
    table->log = log;
    table->is_set = true;
    return true;
}

void fse_build_single(struct fse_table *table, uint8_t symbol)
{
    table->log = 0;
    table->is_set = true;
    table->cells[0] = (struct fse_cell){.symbol = symbol};
}

/* One count less one, in as many bits as what is left of the sum needs, or one bit less. */
static int read_count(const uint8_t *data, uint64_t bytes, uint64_t *place, uint32_t left)
{
    unsigned int count = highest_bit(left + 1) + 1;
    uint32_t value = (uint32_t)bits_at(data, bytes, *place, count);
    uint32_t lower = (1u << (count - 1)) - 1, spared = (1u << count) - 1 - (left + 1);
    *place += count;
    if ((value & lower) < spared) {
        *place -= 1;
        value &= lower;
    } else if (value > lower) {
        value -= spared;
    }
    return (int)value - 1;
}

uint64_t fse_read(struct fse_table *table, const uint8_t *data, uint64_t bytes,
                  unsigned int most_log, unsigned int most_symbol)
{
    int16_t counts[FSE_MOST_SYMBOLS] = {0};
    if (bytes == 0)
        return 0;
    unsigned int log = (unsigned int)bits_at(data, bytes, 0, 4) + 5, symbol = 0;
    uint64_t place = 4;
    if (log > most_log)
        return 0;
    uint32_t left = 1u << log;
    while (left > 0 && symbol <= most_symbol && place <= 8 * bytes) {
        int count = read_count(data, bytes, &place, left);
        uint32_t taken = count < 0 ? 1 : (uint32_t)count;
        if (taken > left)
            return 0;
        left -= taken;
        counts[symbol++] = (int16_t)count;
        /* behind a zero stands how many more follow, three at a time */
        for (uint64_t more = count == 0 ? 3 : 0; more == 3 && symbol <= most_symbol;) {
            more = bits_at(data, bytes, place, 2);
            place += 2;
            symbol += (unsigned int)more;
        }
    }
    if (left > 0 || symbol > most_symbol + 1 || place > 8 * bytes ||
        !fse_build(table, counts, symbol, log))
        return 0;
    return (place + 7) / 8;
}

/* ---- Huffman trees ---- */

/* Weights packed by a finite-state table, two states in turn. How many there are; 0: damaged. */
static unsigned int unpack_weights(uint8_t *weights, const uint8_t *data, uint64_t bytes)
{
    struct fse_table table;
    struct back_bits bits;
    uint64_t head = fse_read(&table, data, bytes, WEIGHTS_MOST_LOG, MOST_WEIGHT);
    if (head == 0 || !back_bits_open(&bits, data + head, bytes - head))
        return 0;
    uint32_t states[2];
    states[0] = (uint32_t)back_bits_read(&bits, table.log);
    states[1] = (uint32_t)back_bits_read(&bits, table.log);
    if (bits.left < 0)
        return 0;
    for (unsigned int count = 0; count + 1 < HUFFMAN_MOST_WEIGHTS; count++) {
        uint32_t *state = &states[count % 2];
        weights[count] = table.cells[*state].symbol;
        fse_next(&table, state, &bits);
        if (bits.left < 0) {
            weights[count + 1] = table.cells[states[(count + 1) % 2]].symbol;
            return count + 2;
        }
    }
    return 0;
}

/* The last weight is not stored: it fills the sum up to a power of two. */
static bool build_tree(struct huffman_table *table, uint8_t *weights, unsigned int count)
{
    uint32_t sum = 0, place = 0;
    table->most_bits = 0;
    for (unsigned int i = 0; i < count; i++) {
        if (weights[i] > MOST_WEIGHT)
            return false;
        sum += weights[i] > 0 ? 1u << (weights[i] - 1) : 0;
    }
    if (sum == 0)
        return false;
    unsigned int most_bits = highest_bit(sum) + 1;
    uint32_t rest = (1u << most_bits) - sum;
    if (most_bits > HUFFMAN_MOST_BITS || (rest & (rest - 1)) != 0)
        return false;
    weights[count++] = (uint8_t)(highest_bit(rest) + 1);
    for (unsigned int weight = 1; weight <= most_bits; weight++)
        for (unsigned int symbol = 0; symbol < count; symbol++)
            for (uint32_t i = 0; weights[symbol] == weight && i < 1u << (weight - 1); i++) {
                table->cells[place].symbol = (uint8_t)symbol;
                table->cells[place++].bits = (uint8_t)(most_bits + 1 - weight);
            }
    table->most_bits = most_bits;
    return place == 1u << most_bits;
}

uint64_t huffman_read(struct huffman_table *table, const uint8_t *data, uint64_t bytes)
{
    uint8_t weights[HUFFMAN_MOST_WEIGHTS + 1] = {0};
    if (bytes == 0)
        return 0;
    unsigned int count = data[0];
    uint64_t taken = count < 128 ? count : (count - 127 + 1) / 2;
    if (taken > bytes - 1)
        return 0;
    if (count < 128) {
        count = unpack_weights(weights, data + 1, taken);
    } else {
        count -= 127;
        for (unsigned int i = 0; i < count; i++)
            weights[i] = i % 2 == 0 ? data[1 + i / 2] >> 4 : data[1 + i / 2] & 15;
    }
    return count > 0 && build_tree(table, weights, count) ? 1 + taken : 0;
}

bool huffman_unpack(const struct huffman_table *table, const uint8_t *data, uint64_t bytes,
                    uint8_t *out, uint64_t count)
{
    struct back_bits bits;
    if (!back_bits_open(&bits, data, bytes))
        return false;
    for (uint64_t i = 0; i < count && bits.left >= 0; i++) {
        struct back_bits ahead = bits;
        uint64_t code = back_bits_read(&ahead, table->most_bits);
        out[i] = table->cells[code].symbol;
        bits.left -= table->cells[code].bits;
    }
    return bits.left == 0;
}
