/* A 64-bit checksum against torn and damaged copies (not against forgery: the file's mode does
 * that). Pure. */
#ifndef VGPU_CHECKSUM_H
#define VGPU_CHECKSUM_H

#include <stdint.h>

/* Returns the checksum of `bytes` bytes at `data`; a trailing part word counts as zero-padded. */
uint64_t vgpu_checksum(const void *data, uint64_t bytes);

#endif
