/* In a file of its own, since tests/native/throttle_model.c makes threads up. */
#include "compute/measure/handover.h"

struct handover *handover_own(void)
{
    static __thread struct handover own;
    return &own;
}
