/* The states that a search has met, each known by a hash of 128 bits. Of 10^9 states two share one
 * with a chance below 10^-20. Not synchronised. */
#ifndef SEEN_SET_H
#define SEEN_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seen_set {
    struct seen_key {
        uint64_t low;
        uint64_t high; /* both zero: free */
    } *keys;
    uint64_t capacity; /* a power of two */
    uint64_t count;
};

/* True when the bytes were not met before. Ends the program when memory runs out. */
bool seen_set_add(struct seen_set *set, const void *bytes, size_t length);

void seen_set_free(struct seen_set *set);

#endif
