/* A search, depth first, through every state that a scenario can reach. */
#ifndef LEDGER_SEARCH_H
#define LEDGER_SEARCH_H

#include <stdint.h>

#include "model.h"

struct search_result {
    uint64_t states;
    const char *wrong; /* NULL: everything holds */
};

/* Searches `scenario`. What leads to a state that is wrong goes to stdout. From every fourth state
 * on, each thread must also come to an end alone, and then get the last byte and no more. */
struct search_result search_run(void);

#endif
