/* What loading code takes: measured, since no call tells it and images come packed in many ways.
 *
 * A load of a module or library goes to the driver first. What it grew this process by, less what other calls
 * were charged meanwhile, is charged until the unload; where there is no room for it the load is undone and
 * refused. So a load that does not fit is over the limit for as long as it takes.
 *
 * While others stand still (memory/contexts/reconcile.h), the GPU's free bytes tell the growth within microseconds.
 * Of more than one block NVML is asked, too, and the less counts: a neighbour may have moved just now. While
 * others move, it is the growth of this process's figure in NVML.
 *
 * Where other threads took or gave back memory at the same time nobody can tell: what it may have been must
 * fit, and the next look (memory/contexts/reconcile.h) charges what it was. So it does with what comes later: code
 * that a first launch loads, and a library's copy in each context that uses it.
 *
 * Where NVML does not tell what this process has, the GPU's free bytes do, which neighbours change as well:
 * an estimate. Where it is more than 64 MiB, or does not fit, the code is loaded again and measured again,
 * and the least counts. What comes later is not seen there but by the node agent.
 *
 * No state; any thread. */
#ifndef VGPU_CODE_LOAD_H
#define VGPU_CODE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/ledger/charge.h"

/* All zero before the first try. */
struct code_load {
    struct charge charge; /* after code_load_end: for the handle */
    bool is_own;          /* by this process's figure, else by the GPU's free bytes */
    bool is_quiet;        /* which nobody else changed lately */
    int tries;
    uint64_t held_bytes, charged_bytes, change_count; /* before */
    uint64_t least_bytes;                             /* of all tries */
};

/* Before each try: into the current context. Where there is none, or no slice, nothing is charged. */
void code_load_begin(struct code_load *load);

enum code_load_verdict {
    CODE_LOADED,   /* or the driver did not */
    CODE_REFUSED,  /* is to be unloaded: out of memory */
    CODE_TRY_AGAIN /* is to be unloaded and loaded again */
};

/* After each try, which the driver answered with `result`. */
enum code_load_verdict code_load_end(struct code_load *load, CUresult result);

#endif
