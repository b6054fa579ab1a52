/* What a hook does of a call that must not be measured with the launches before it: it ends the open
 * measurement, and asks the driver. */
#ifndef VGPU_HOOK_MEASUREMENT_H
#define VGPU_HOOK_MEASUREMENT_H

#include "compute/cap/gate.h"
#include "compute/cap/throttle.h"
#include "hooks/hook.h"

#define ENDS_MEASUREMENT(symbol, arguments, values) \
    VGPU_EXPORT CUresult symbol arguments \
    { \
        if (gate_is_open()) \
            return real.symbol values; \
        NEEDS(symbol); \
        throttle_before_wait(); \
        return real.symbol values; \
    }

#endif
