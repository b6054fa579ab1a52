/* Numbers of the calls of calls.def, as `call_ns` of a calibration is indexed. */
#ifndef VGPU_SIM_CALLS_H
#define VGPU_SIM_CALLS_H

enum sim_call {
#define CALL(name) SIM_CALL_##name,
#include "calls.def"
#undef CALL
    SIM_CALL_COUNT
};

#endif
