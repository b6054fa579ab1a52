/* The `usage` file as bytes in memory: making it and finding its parts (contract.h has the form).
 * Pure. Who may write what: contract.h; the totals: ledger.h; claiming a slot: slot.h. */
#ifndef VGPU_USAGE_FILE_H
#define VGPU_USAGE_FILE_H

#include <stdint.h>
#ifndef VGPU_CFFI
#include "vgpu/contract.h"
#endif

/* Returns the size of a file for that many devices and VGPU_SLOT_COUNT slots; 0 if out of range. */
uint64_t usage_file_bytes(uint32_t device_capacity);

/* Writes the header of a new file into a zeroed image. `allocation_id` is cut at 63 bytes. */
void usage_format(void *file, uint32_t device_capacity, const char *allocation_id);

/* Returns 0 when the header describes a file of exactly `file_bytes` bytes that this code can use,
 * -EPROTO for another layout version, else -EINVAL. Every offset it holds is then in bounds. */
int usage_check_header(const void *file, uint64_t file_bytes);

struct vgpu_usage_device *usage_device(void *file, uint32_t device);
struct vgpu_usage_slot *usage_slot(void *file, uint32_t slot);
struct vgpu_usage_slot_device *usage_slot_device(void *file, uint32_t slot, uint32_t device);

/* Adds to what a slot has of one kind, after the ledger's own step. Any thread of its process. Plain
 * memory, of which most is taken, is what `bytes` has beyond all other kinds: it is not counted. */
void usage_count_kind(struct vgpu_usage_slot_device *row, uint32_t kind, int64_t bytes);

/* What a slot has of one kind. Of a hostile file no more than anything. */
uint64_t usage_kind_bytes(const struct vgpu_usage_slot_device *row, uint32_t kind);

#endif
