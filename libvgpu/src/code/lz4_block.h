/* Unpacks a block of LZ4, as fat binaries hold. Bounded by both buffers, whatever the data. */
#ifndef VGPU_LZ4_BLOCK_H
#define VGPU_LZ4_BLOCK_H

#include <stdint.h>

/* How many bytes came out; 0 when the block is damaged or does not fit. */
uint64_t lz4_block_unpack(const uint8_t *packed, uint64_t packed_bytes, uint8_t *out,
                          uint64_t room);

#endif
