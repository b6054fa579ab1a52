/*
 * What processes of one machine need to share device memory: files whose descriptors travel, a
 * record that tells an importer what a file holds, and this process's holds on shared memory
 * (core/shared.c).
 *
 * A program may close or reuse a descriptor behind the driver's back, so every use of one is
 * preceded by a look whether it still names the same file.
 */
#ifndef VGPU_SIM_SHAREABLE_H
#define VGPU_SIM_SHAREABLE_H

#include "driver.h"

struct shareable_file {
    int descriptor; /* -1: none */
    uint64_t filesystem, inode;
};

#define SHARE_RECORD_MEMORY 1u
#define SHARE_RECORD_POOL 2u
#define SHARE_RECORD_EVENT 3u
#define SHARE_RECORD_MULTICAST 4u

/* Written behind the bytes of a file, on a page of its own. */
struct shareable_record {
    uint64_t magic;
    uint32_t kind;
    uint32_t reserved;
    char machine[64]; /* its identifier */
    char device[64];  /* its UUID; empty: of no device */
    uint64_t bytes;   /* that lie before this record */
    uint64_t identifier;
};

/* A file of anonymous memory of that size, which nobody can shrink. */
bool shareable_file_create(struct shareable_file *file, uint64_t bytes);
bool shareable_file_adopt(struct shareable_file *file, int descriptor); /* fills in what it names */
bool shareable_file_ours(const struct shareable_file *file);
/* Opens it once more, closed by an exec as all of the driver's; -1: cannot be. Who exports a piece gives away
 * an open file of its own each time, as a real driver does, and who imports keeps none that was given: so
 * locks on that end with the last copy of its descriptor. */
int shareable_file_reopen(const struct shareable_file *file);
void shareable_file_close(struct shareable_file *file);

bool shareable_record_write(const struct shareable_file *file, uint32_t kind,
                            const struct driver_device *device, uint64_t bytes,
                            uint64_t identifier);
/* Reads and checks the record of a file; false: it is not one of this machine and kind. */
bool shareable_record_check(int descriptor, uint32_t kind, struct shareable_record *record);
/* The same with the device it is of; NULL also where this process does not see that. */
struct driver_device *shareable_record_read(int descriptor, uint32_t kind,
                                            struct shareable_record *record);
uint64_t shareable_machine_digest(void);

/* The core counts a process once for each piece of shared memory; these count how often this process has it. Return 0 or a
 * negative errno. */
int shared_export(struct driver_device *device, uint64_t bytes, uint64_t *identifier);
int shared_hold(struct driver_device *device, uint64_t identifier, uint64_t *bytes);
void shared_drop(struct driver_device *device, uint64_t identifier);
bool shared_held(const struct driver_device *device, uint64_t identifier);

#endif
