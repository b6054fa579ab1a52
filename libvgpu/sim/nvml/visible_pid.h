/* The pid by which whoever asks knows a process of another PID namespace. */
#ifndef VGPU_SIM_NVML_VISIBLE_PID_H
#define VGPU_SIM_NVML_VISIBLE_PID_H

#include "machine.h"

/* Returns the pid of a client as this process sees it, as NVML does for an agent with the host's
 * pids. Where it cannot be seen from here it is the pid by which the client knows itself. */
uint32_t nvml_visible_pid(const struct sim_client_books *client);

#endif
