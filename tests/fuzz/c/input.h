/* What a target takes from the bytes of one input; behind its end all is zero. Single-threaded. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *at, *end;
};

static inline uint64_t take(struct input *input, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && input->at < input->end; i++)
        value |= (uint64_t)*input->at++ << 8 * i;
    return value;
}

/* A number at the edge of some range as often as any. */
static inline uint64_t take_odd(struct input *input)
{
    uint64_t how = take(input, 1);
    uint64_t edge = how % 64 == 63 ? 0 : 1ull << how % 64;
    return how < 64 ? edge : how < 128 ? edge - 1 : how < 160 ? 0 - edge : take(input, how % 8 + 1);
}

/* What must hold of the answers, whatever came in. */
#define HOLDS(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

#endif
