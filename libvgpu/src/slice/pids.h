/* What /proc tells of other processes: by which pid we know those of other PID namespaces, and who
 * has the GPU.
 *
 * A pid counts in one namespace, and the first process of each is 1. So a slot of `usage` names its process
 * by pid and namespace; and by its start time, for those that may not look at another one's namespace. A
 * process below our namespace has a number in ours, too, which /proc tells; one that is elsewhere has none.
 * No state: pids are given again. */
#ifndef VGPU_PIDS_H
#define VGPU_PIDS_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/contract.h"

/* No process has this pid or a greater one (PID_MAX_LIMIT of the kernel). */
#define PIDS_END (1u << 22)

/* The inode of our namespace, 0 where there is no /proc. */
uint32_t pids_own_namespace(void);

/* Field 22 of /proc/PID/stat ("self" or a number); 0 where it cannot be read. */
uint64_t pids_start_time(const char *pid);

/* The pid by which we know the process of a slot, 0 where we cannot see it. */
uint32_t pids_visible(const struct vgpu_usage_slot *row);

/* Whether those with a lock on that byte, through descriptors of what `file` has open, have any of the
 * driver's descriptors, too. True when none of them is to be seen. */
bool pids_with_lock_have_gpu(int file, uint64_t at);

#endif
