/* The files of one tenant, for one device, as its arbiter uses them: the grant in `limits`, which
 * only the arbiter stores; the device's row in `usage`, which is hostile and therefore read into a
 * copy, never mapped; and the FIFO `ring`, whose bytes mean "look again" and nothing else.
 *
 * `ring` is open for reading alone, so a tenant that writes to it learns by ENXIO that no arbiter
 * lives. Nothing here blocks. The caller serialises. */
#ifndef VGPU_ARBITER_TENANT_FILES_H
#define VGPU_ARBITER_TENANT_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vgpu/contract.h"

#define TENANT_RING_BYTES 4096 /* read of a ring at a time */

struct tenant_files {
    int usage_fd;
    int ring_fd;
    off_t usage_at; /* of the device's row */
    uint32_t device_index;
    void *limits;
    uint64_t limits_bytes;
    struct vgpu_grant *grant;
};

/* Takes `usage_fd` and `ring_fd` over and maps `limits_fd`, which stays the caller's. Returns 0, or
 * a negative errno and has taken nothing: -EINVAL for a damaged file or one that is no FIFO,
 * -EPROTO for another layout version, -ENODEV for a device beyond those the files have room for. */
int tenant_files_open(struct tenant_files *files, int limits_fd, int usage_fd, int ring_fd,
                      uint32_t device_index);

void tenant_files_close(struct tenant_files *files);

/* Undoes tenant_files_open: both descriptors are the caller's again. */
void tenant_files_give_back(struct tenant_files *files);

/* Copies the row out; all zero when the tenant has cut its file short. */
void tenant_files_read(const struct tenant_files *files, struct vgpu_usage_device *usage);

/* Says whether `limits` has the arbiter leave this tenant alone. */
bool tenant_files_is_off(const struct tenant_files *files);

/* The tenant's weight as `limits` has it now. */
uint32_t tenant_files_weight(const struct tenant_files *files);

/* Empties the ring as far as TENANT_RING_BYTES go; returns how many there were. */
uint32_t tenant_files_drain(const struct tenant_files *files);

/* Stores a grant whole and wakes who waits for it. */
void tenant_files_publish(const struct tenant_files *files, const struct vgpu_grant *grant);

/* Says that the arbiter is there, without waking anybody. */
void tenant_files_beat(const struct tenant_files *files, uint64_t now_ns);

#endif
