/* Unpacks a frame of zstd (RFC 8878), as fat binaries hold since CUDA 13. Frames that need a
 * dictionary are not read; checksums are not compared. Bounded by both buffers, whatever the
 * data says. */
#ifndef VGPU_ZSTD_FRAME_H
#define VGPU_ZSTD_FRAME_H

#include <stdint.h>

/* How many bytes came out; 0 when the frame is damaged or does not fit. */
uint64_t zstd_frame_unpack(const uint8_t *packed, uint64_t packed_bytes, uint8_t *out,
                           uint64_t room);

#endif
