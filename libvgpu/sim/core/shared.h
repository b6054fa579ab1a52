/* What the death of a process means for the memory that it held together with others. */
#ifndef VGPU_SIM_SHARED_H
#define VGPU_SIM_SHARED_H

#include "layout.h"

void shared_drop_all(struct sim_state *state, uint32_t slot);

#endif
