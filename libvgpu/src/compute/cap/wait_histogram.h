/* How long launches waited, by powers of two: bucket 0 counts waits below
 * WAIT_HISTOGRAM_FIRST_NS, bucket i those from WAIT_HISTOGRAM_FIRST_NS * 2^(i-1) to twice that, the
 * last one all longer ones too.
 *
 * 16 buckets of 16 bits are all the room there is. When one is full, all are halved: what is left
 * is the recent past with the old behind it, which is what a percentile is asked for. A percentile
 * is a place within a bucket, so it is right to within a factor of two.
 *
 * Pure. Serialised by its caller (throttle.c holds the device's lock); readers see each count
 * whole. */
#ifndef VGPU_WAIT_HISTOGRAM_H
#define VGPU_WAIT_HISTOGRAM_H

#include <stdint.h>
#ifndef VGPU_CFFI
#include "vgpu/contract.h"
#endif

#define WAIT_HISTOGRAM_FIRST_NS 65536

/* Counts one launch that waited for `waited_ns`. */
void wait_histogram_note(struct vgpu_usage_slot_device *counters, int64_t waited_ns);

#endif
