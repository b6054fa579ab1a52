/* File descriptors that stand for device memory: which piece one is of, in whatever process and
 * under whatever number, and whether any copy of it is still open.
 *
 * An exported descriptor's open file description gets a read lock on one byte, far beyond any end
 * of file, that names the piece. The lock goes with the description to whoever gets the descriptor
 * and is dropped by the kernel with its last copy. A *probe* is another description of the same
 * file: it sees these locks, as locks of others. Nothing here keeps state; any thread may call. */
#ifndef VGPU_DESCRIPTOR_H
#define VGPU_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

/* Opens a probe for the file of a descriptor, with a high number; -1: this file cannot have one. */
int descriptor_probe(int descriptor);

/* Whether `probe` is still what descriptor_probe opened: a program may have closed it and another
 * file have its number. `identity` is what descriptor_identity said of it then. */
uint64_t descriptor_identity(int probe);

/* Locks byte `place` through the descriptor. */
bool descriptor_mark(int descriptor, uint64_t place);

/* Whether any description but the probe's has a byte of [place, place + count) locked. */
bool descriptor_is_marked(int probe, uint64_t place, uint64_t count);

/* Whether this very description has one of them locked. */
bool descriptor_has_mark(int descriptor, int probe, uint64_t place, uint64_t count);

#endif
