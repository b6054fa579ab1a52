/* The `limits` file as bytes in memory: making, publishing and reading it (contract.h has the
 * form).
 *
 * Pure: works on any mapped or in-memory image. Writers are serialised by their caller (an OFD lock
 * on the file `lock`); readers need nothing. Publishing stores active_generation last, with release
 * order; reading takes a whole copy, checks it, and takes it again when a writer came by. */
#ifndef VGPU_LIMITS_FILE_H
#define VGPU_LIMITS_FILE_H

#include <stdbool.h>
#include <stdint.h>
#ifndef VGPU_CFFI
#include "vgpu/contract.h"
#endif

/* Returns the size of a file for that many devices, or 0 for a capacity out of range. */
uint64_t limits_file_bytes(uint32_t device_capacity);

/* Writes the header of a new file into a zeroed image; it reads as damaged until a publish. */
void limits_format(void *file, uint32_t device_capacity);

/* Returns 0 when the header describes a file of exactly `file_bytes` bytes that this code can read,
 * -EPROTO for another layout version, else -EINVAL. */
int limits_check_header(const void *file, uint64_t file_bytes);

/* Fills the idle copy from `head` (device_count, family, allocation_id) and `devices`, then makes
 * it the active one. Returns 0, or -EINVAL when there are more devices than the file can hold. */
int limits_publish(void *file, const struct vgpu_limits_copy *head,
                   const struct vgpu_device_limit *devices);

/* Copies the active copy out, checked. `devices` has room for `capacity`. Returns 0, -EINVAL for a
 * damaged file, -EAGAIN when writers kept overtaking. `file` has passed limits_check_header. */
int limits_read(const void *file, struct vgpu_limits_copy *head, struct vgpu_device_limit *devices,
                uint32_t capacity);

/* Returns a device of the active copy as it stands in the file, to load single fields from: one
 * aligned 8-byte load of it is always a value some writer meant. */
const struct vgpu_device_limit *limits_device(const void *file, uint32_t device);

/* Says whether a container's processes are clients of an MPS server on that device, in whichever
 * family: what runs there needs no context switch, and a fault of one client ends them all. */
bool limits_is_mps_client(const struct vgpu_device_limit *device);

/* Returns the generation that is active now. */
uint64_t limits_generation(const void *file);

#endif
