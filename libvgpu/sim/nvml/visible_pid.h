/* The pid by which whoever asks knows a process of another PID namespace. */
#ifndef VGPU_SIM_NVML_VISIBLE_PID_H
#define VGPU_SIM_NVML_VISIBLE_PID_H

#include <stdbool.h>

#include "machine.h"

/* Tells the pid of a client as this process sees it, as NVML does for an agent with the host's pids.
 * Where it cannot be seen from here the lists of newer drivers leave it out: then it is false. Those of
 * older ones have a pid that means nothing here: that by which the client knows itself. */
bool nvml_visible_pid(const struct sim_client_books *client, uint32_t *pid);

#endif
