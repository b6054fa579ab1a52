/* Whether NVML's figure of this process has the memory that other processes made and it imported.
 *
 * It is documented nowhere, and said to be counted for its maker alone. So it is learnt: the figure
 * then does not grow with an import, and so lacks more of what the ledger has than before. One that
 * was made by who let go of it since may be counted here or not, and is taken to be. Under the lock
 * of reconcile.c. */
#ifndef VGPU_IMPORTED_H
#define VGPU_IMPORTED_H

#include <stdbool.h>
#include <stdint.h>

struct imported {
    uint64_t seen_bytes; /* at the last look: what others made, and hold, too */
    bool is_changing;    /* that was something else the look before, so one may be under way */
    bool is_elsewhere;   /* the figure has none of it */
    bool is_measured;
    int64_t lack_bytes;           /* then the figure had so much less than the ledger … */
    uint64_t lack_imported_bytes; /* … with this imported */
};

/* Looks what is imported on a device. Returns whether that has just begun to change. */
bool imported_look(struct imported *imported, uint32_t device);

/* How much of it a figure does not have, which has `lack_bytes` less than the ledger with all of it. */
uint64_t imported_elsewhere_bytes(struct imported *imported, uint32_t device, int64_t lack_bytes);

#endif
