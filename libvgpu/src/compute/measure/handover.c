#include "compute/measure/handover.h"

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
