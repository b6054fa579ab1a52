/* Names that the driver answers with what hooks.def does not know, as a driver newer than this build
 * does: noted once a name, said on stderr for the first few, and counted in the process's slot as
 * soon as it has one. No lock and no allocation; any thread, at any time. */
#ifndef VGPU_ENTRY_NOTES_H
#define VGPU_ENTRY_NOTES_H

#include "vgpu/contract.h"

enum entry_kind {
    ENTRY_UNKNOWN, /* no row has that name */
    ENTRY_MOVED,   /* a hooked name, at an address that is no row's */
    ENTRY_KINDS
};

void entry_note(enum entry_kind kind, const char *name);

/* For region_claim: writes down what was noted before there was a slot. */
void entry_notes_tell(struct vgpu_usage_slot *slot);

#endif
