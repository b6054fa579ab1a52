/* Host functions in streams (cuLaunchHostFunc, cuStreamAddCallback): one thread of the driver calls
 * them in turn, each after the work in front of it. Work behind one does not wait for its return,
 * unlike on a real device; synchronising does. */
#ifndef VGPU_SIM_HOST_FUNCTION_H
#define VGPU_SIM_HOST_FUNCTION_H

#include "driver.h"

/* Returns once every host function of the stream has returned. */
void host_function_wait(struct CUstream_st *stream);

#endif
