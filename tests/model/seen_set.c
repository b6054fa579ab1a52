#include "seen_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY (1u << 16)

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 32) * 0xd6e8feb86659fd93u;
    value = (value ^ value >> 32) * 0xd6e8feb86659fd93u;
    return value ^ value >> 32;
}

static struct seen_key key_of(const unsigned char *bytes, size_t length)
{
    struct seen_key key = {0x243f6a8885a308d3u, 0x13198a2e03707344u};
    for (size_t at = 0; at < length; at += 8) {
        uint64_t part = 0;
        memcpy(&part, bytes + at, length - at < 8 ? length - at : 8);
        key.low = mix(key.low ^ part);
        key.high = mix(key.high + part * 0x9e3779b97f4a7c15u);
    }
    key.low |= 1; /* never the free one */
    return key;
}

/* Where the key is, or where it would go. */
static struct seen_key *find(const struct seen_set *set, struct seen_key key)
{
    uint64_t at = key.high & (set->capacity - 1);
    while (set->keys[at].low != 0 &&
           (set->keys[at].low != key.low || set->keys[at].high != key.high))
        at = (at + 1) & (set->capacity - 1);
    return &set->keys[at];
}

static void grow(struct seen_set *set)
{
    struct seen_set larger = {.capacity = set->capacity ? 2 * set->capacity : FIRST_CAPACITY,
                              .count = set->count};
    larger.keys = calloc(larger.capacity, sizeof *larger.keys);
    if (larger.keys == NULL) {
        fprintf(stderr, "no memory for %llu states\n", (unsigned long long)larger.capacity);
        exit(2);
    }
    for (uint64_t i = 0; i < set->capacity; i++)
        if (set->keys[i].low != 0)
            *find(&larger, set->keys[i]) = set->keys[i];
    free(set->keys);
    *set = larger;
}

bool seen_set_add(struct seen_set *set, const void *bytes, size_t length)
{
    if (4 * (set->count + 1) > 3 * set->capacity)
        grow(set);
    struct seen_key key = key_of(bytes, length);
    struct seen_key *place = find(set, key);
    if (place->low != 0)
        return false;
    *place = key;
    set->count++;
    return true;
}

void seen_set_free(struct seen_set *set)
{
    free(set->keys);
    *set = (struct seen_set){0};
}
