/* The compute cap of a device as `limits` has it now. Reads mapped memory and nothing else. */
#ifndef VGPU_CAP_H
#define VGPU_CAP_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/turns/window.h"

/* True when that device of the slice has a cap to hold, or a share of 100 that others wait behind. */
bool cap_is_set(uint32_t device);

/* The cap on a device in percent, 100 where there is no cap. */
uint32_t cap_percent(uint32_t device);

/* True while the container's own cap holds it: always, except for one that is elastic, or has a share
 * of 100, while its neighbours leave it the rest or take turns. */
bool cap_is_kept(uint32_t device, const struct window *window);

#endif
