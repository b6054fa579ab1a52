/*
 * Memory in separate physical and virtual parts.
 *
 * A physical piece (vmm.c; vmm_export.c between processes) is charged on its device from cuMemCreate
 * until neither a handle nor a mapping of any process is left. Its bytes are a shared mapping that
 * nobody may access, the `window`; cuMemMap duplicates that mapping into the reservation, which
 * needs no descriptor, so a process may have as many pieces as it likes and may close what it
 * wants. Only a piece that can be exported has a file of its own. A reservation (vmm_range.c) is an
 * inaccessible private mapping.
 *
 * All of it is kept under vmm_mutex. A mapping that somebody may access stands in the allocation
 * map too, where copies look.
 */
#ifndef VGPU_SIM_VMM_H
#define VGPU_SIM_VMM_H

#include "shareable.h"

#define VMM_GRANULARITY_BYTES (2ull << 20)

struct multicast;

struct physical {
    CUmemGenericAllocationHandle handle; /* first: the key of the tree of pieces */
    uint64_t bytes;
    struct driver_device *device; /* NULL: host memory, which is not charged */
    CUmemAllocationProp properties;
    void *window;
    struct shareable_file file;
    uint64_t shared_id; /* 0: no other process can have it */
    unsigned int references, mappings;
    struct backing backing; /* host memory behind it, whichever mapping it was written through */
    struct physical *next_shared;
    struct multicast *multicast; /* of a multicast object, which has no memory; else NULL */
};

struct vmm_mapping {
    uint64_t address, bytes; /* first: the key of the tree of mappings */
    struct physical *physical;
    unsigned char access[SIM_MAX_GPUS]; /* CUmemAccess_flags */
    unsigned char host_access;
    bool listed; /* in the allocation map */
};

extern pthread_mutex_t vmm_mutex;
struct physical *physical_find_locked(CUmemGenericAllocationHandle handle);
/* Makes a piece whose bytes are charged, or held, already. Takes the file, also when it fails. */
struct physical *physical_make_locked(struct driver_device *device, uint64_t bytes,
                                      const CUmemAllocationProp *properties,
                                      struct shareable_file *file);
/* Makes, or finds, the piece whose file another process exported; one reference more. */
CUresult physical_import_locked(int descriptor, struct driver_device *device,
                                const struct shareable_record *record, struct physical **physical);
void physical_end_shared_locked(struct physical *physical); /* vmm_export.c */
/* Frees a piece that has neither reference nor mapping left. */
void physical_drop_locked(struct physical *physical);

/* multicast.c, multicast_export.c */
bool multicast_supported(const struct driver_device *device);
bool multicast_complete(const struct multicast *multicast); /* all devices of the team are added */
void multicast_end_locked(struct multicast *multicast); /* unbinds what is bound, and frees it */
/* Makes, or finds, the object that a descriptor is of; one reference more. */
CUresult multicast_import_locked(int descriptor, struct physical **physical);

/* What a pointer into a reservation means; false: it is none. */
struct vmm_view {
    uint64_t reserved_address, reserved_bytes;
    bool mapped;
    struct vmm_mapping mapping;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationHandleType handle_types;
    struct driver_device *device; /* NULL: host memory */
};
bool vmm_view(uint64_t address, struct vmm_view *view);
struct physical *vmm_physical_locked(uint64_t address);
struct vmm_mapping *vmm_mapping_locked(uint64_t address); /* that holds it; NULL: none */
bool vmm_whole_granules(uint64_t address, uint64_t bytes);
/* Whether mappings fill the range without a gap and without standing out of it. */
bool vmm_filled_locked(uint64_t address, uint64_t bytes);

#endif
