/* A multicast object of this process (multicast.c), and its team, which processes may share
 * (multicast_export.c). All under vmm_mutex; what the team has of the file is atomic. */
#ifndef VGPU_SIM_MULTICAST_H
#define VGPU_SIM_MULTICAST_H

#include "vmm.h"

/* In a file that can be exported: on the page of its record. */
struct multicast_team {
    uint64_t size;
    uint64_t added; /* a bit for each device of the machine, by its index */
};

struct binding {
    struct physical *physical;
    uint64_t offset, bytes; /* in the object */
    struct binding *next;
};

struct multicast {
    struct multicast_team *team;
    struct multicast_team own_team; /* of an object that cannot be exported */
    void *page;                     /* holds the team; NULL: the object has none */
    struct physical *physical;
    struct binding *bindings; /* of this process */
    struct multicast *next_shared;
};

/* Gives a new object a file and a team there, or one that an importer finds in `file`. False: there
 * is no memory for it. */
bool multicast_share(struct multicast *multicast, struct shareable_file *file, uint64_t bytes,
                     uint64_t team_size);
bool multicast_attach(struct multicast *multicast, const struct shareable_file *file,
                      uint64_t bytes);
/* Makes it one that an import into this process finds. */
void multicast_list_locked(struct multicast *multicast);
void multicast_end_share_locked(struct multicast *multicast);

#endif
