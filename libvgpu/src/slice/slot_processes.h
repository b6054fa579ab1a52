/* The container's own processes, from the slots of `usage`: who lives, and what it holds.
 *
 * Pure apart from questions to the kernel (ledger.is_held, and pids.h, where a process is of another PID
 * namespace). Reads without a lock what others
 * change meanwhile: each figure is whole, a list is a moment's. */
#ifndef VGPU_SLOT_PROCESSES_H
#define VGPU_SLOT_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>

#include "slice/ledger.h"

struct process {
    uint32_t pid; /* as we know it; of one that we cannot see a number from PIDS_END on */
    uint32_t slot;
    uint64_t bytes; /* of the ledger's device, in its own slot */
};

/* How many slots there are to look at. */
uint32_t slot_processes_slots(const struct ledger *ledger);

/* True when a slot is a process's (not a shared piece of memory's) and that lives. */
bool slot_processes_look(const struct ledger *ledger, uint32_t slot, struct process *process);

/* Those that hold any of the device, pieces that they share included, or, _using, have worked on
 * it. `found` has room for VGPU_SLOT_COUNT; returns how many. */
uint32_t slot_processes_holding(const struct ledger *ledger, struct process *found);
uint32_t slot_processes_using(const struct ledger *ledger, struct process *found);

#endif
