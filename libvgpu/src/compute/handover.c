#include "compute/handover.h"

void handover_begin(uint32_t device, struct batch *batch)
{
    handover_own()->batches[device] = batch == NULL ? 0 : batch->id;
    if (batch != NULL)
        batch->coming++;
}

bool handover_end(uint32_t device, struct batch *batch)
{
    struct handover *own = handover_own();
    uint64_t id = own->batches[device];
    own->batches[device] = 0;
    if (batch == NULL || id != batch->id)
        return false;
    batch->coming--;
    return true;
}

void handover_prepaid(struct batch *batch, const void *thread, int64_t now_ns)
{
    if (thread == handover_own())
        return;
    batch->prepaid_by = thread;
    batch->handed_ns = now_ns + HANDOVER_PREPAID_NS;
}

bool handover_is_pending(const struct batch *batch, int64_t now_ns)
{
    return batch->coming > 0 || (now_ns < batch->handed_ns && batch->prepaid_by != handover_own());
}
