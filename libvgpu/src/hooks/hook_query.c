/* Hooks of what asks whether the GPU is done. A program may ask as often as it likes, so they cost a
 * comparison where there is no cap, and read the clock only where an arbiter wants to know for how long it
 * is held up. */
#include "compute/cap/gate.h"
#include "compute/cap/throttle.h"
#include "hooks/hook.h"

#define QUERY(symbol, type) \
    VGPU_EXPORT CUresult symbol(type object) \
    { \
        if (gate_is_open()) \
            return real.symbol(object); \
        NEEDS(symbol); \
        CUresult result = real.symbol(object); \
        if (result == CUDA_ERROR_NOT_READY) \
            throttle_asked_in_vain(); \
        return result; \
    }

QUERY(cuEventQuery, CUevent)
QUERY(cuStreamQuery, CUstream)
QUERY(cuStreamQuery_ptsz, CUstream)
