/* The names of calls.def, for those who fill in a calibration. */
#include <stddef.h>

#include "calls.h"
#include "machine_api.h"

_Static_assert(SIM_CALL_COUNT <= SIM_CALLS, "a calibration has room for every call");

const char *sim_call_name(uint32_t call)
{
    static const char *const names[SIM_CALLS] = {
#define CALL(name) [SIM_CALL_##name] = #name,
#include "calls.def"
#undef CALL
    };
    return call < SIM_CALLS ? names[call] : NULL;
}
