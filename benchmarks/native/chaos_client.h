/* What a program of `chaos` and whoever runs it tell each other: one board that all of them map. */
#ifndef CHAOS_CLIENT_H
#define CHAOS_CLIENT_H

#include <stdatomic.h>
#include <stdint.h>

#define CHAOS_SEATS 256

/* What a program found to be wrong with its slice. */
enum chaos_wrong {
    CHAOS_NOTHING,
    CHAOS_OTHER_TOTAL,   /* the memory that it is shown is not its limit */
    CHAOS_REFUSED,       /* it was refused what its slice has room for */
    CHAOS_BEYOND,        /* it was granted more than its limit */
    CHAOS_OTHER_CONTENT, /* its memory holds what it did not write */
};

struct chaos_seat {
    _Atomic uint32_t stands; /* number of the pause in which it stands still */
    _Atomic uint32_t wrong;
    _Atomic uint64_t loops, wanted, seen;
    _Atomic uint32_t code; /* the CUresult that ended it */
    char call[36];         /* of which function */
};

struct chaos_board {
    _Atomic uint32_t pause; /* number of the pause that all are in, 0 for none */
    char free_space[60];
    struct chaos_seat seats[CHAOS_SEATS];
};

#endif
