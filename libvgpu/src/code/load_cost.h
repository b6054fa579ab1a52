/* What loading code took in device memory, by what was held before and after. Asked of NVML where
 * it knows this process, else of the driver's free bytes, which neighbours change as well. What
 * this process's other threads were charged for meanwhile is told apart by the ledger. */
#ifndef VGPU_LOAD_COST_H
#define VGPU_LOAD_COST_H

#include <stdbool.h>
#include <stdint.h>

enum load_cost_source {
    LOAD_COST_NONE,
    LOAD_COST_OWN, /* NVML: this process's bytes */
    LOAD_COST_FREE /* the free bytes of the current context's device */
};

struct load_cost {
    uint32_t device;
    enum load_cost_source source;
    uint64_t taken_bytes;   /* before: held by us, or what is not free */
    uint64_t charged_bytes; /* before: of this process in the ledger */
};

/* `may_guess`: the free bytes will do where NVML does not know us. */
void load_cost_begin(struct load_cost *cost, uint32_t device, bool may_guess);

/* What was taken since; false when that cannot be known. With `is_bound` never less than the truth:
 * what others of this process took meanwhile is then not subtracted, since they may have been
 * charged for it before we began. */
bool load_cost_end(const struct load_cost *cost, bool is_bound, uint64_t *bytes);

#endif
