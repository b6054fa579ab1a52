/* Copies of a device's state (device.c). */
#ifndef VGPU_SIM_STATE_H
#define VGPU_SIM_STATE_H

#include "machine.h"

/* Copies what is in use of a state; torn if `source` is being written. */
void sim_state_copy(struct sim_state *target, const struct sim_state *source);
/* Makes a lane ready for use (client.c). */
int sim_queue_open_locked(struct sim_device *device, uint32_t lane);

#endif
