/*
 * Changes of what a GPU is cut into, while the machine runs. Who changes holds a lock of the
 * machine's file, one a GPU, which the kernel lets go of when it dies; nobody else ever waits for
 * it. Whether a process may use a device stands in that device's own state (`closed`), so that a
 * process that comes and an instance that goes cannot miss each other: whichever is published first
 * refuses the other.
 *
 * An instance is opened before the word names it and closed before the word forgets it. One whose
 * changer was killed in between is free to be made again, or is there and takes no process until it
 * is destroyed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mig.h"

#ifndef F_OFD_SETLKW
#define F_OFD_SETLKW 38
#endif

#define UUID_BYTES 16

static int lock_gpu(struct sim_machine *machine, uint32_t gpu)
{
    REFUSE_IF(sim_mig_mode(machine, gpu) < 0, -ENOTSUP);
    int file = open(machine->path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return -errno;
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SIM_MIG_BASE + gpu, .l_len = 1};
    while (fcntl(file, F_OFD_SETLKW, &lock) != 0)
        if (errno != EINTR) {
            int error = -errno;
            close(file);
            return error;
        }
    return file;
}

static void publish(struct sim_machine *machine, uint32_t gpu, uint64_t word)
{
    __atomic_store_n(&machine->devices[gpu].header->mig, word, __ATOMIC_RELEASE);
}

/* ---- whether processes may use a device ------------------------------------------------------ */

static int close_idle(struct sim_device *device, struct sim_state *state, void *argument)
{
    (void)device;
    (void)argument;
    for (uint32_t i = 0; i < state->client_limit; i++)
        REFUSE_IF(state->clients[i].flags & SIM_CLIENT_ATTACHED, -EBUSY);
    state->closed = 1;
    return 0;
}

static int close_device(struct sim_device *device)
{
    return sim_device_is_served(device) ? -EBUSY
                                        : sim_device_transact(device, close_idle, NULL, true);
}

/* Opens a device that nobody is on; with `argument`, as a new one, whose books are empty. What the
 * queues of each slot are at stays: they are counted on. */
static int open_closed(struct sim_device *device, struct sim_state *state, void *argument)
{
    (void)device;
    if (argument) {
        state->busy_ns = state->peak_bytes = 0;
        state->window_busy_ns = state->last_window_busy_ns = 0;
        state->compute_mode = 0;
        state->generation++;
        for (uint32_t i = 0; i < state->client_limit; i++) {
            struct sim_client *client = &state->clients[i];
            struct sim_client fresh = {.lanes_open = client->lanes_open};
            memcpy(fresh.lanes, client->lanes, sizeof fresh.lanes);
            *client = fresh;
        }
    }
    state->closed = 0;
    return 0;
}

/* ---- GPU instances --------------------------------------------------------------------------- */

static int enable(struct sim_machine *machine, uint32_t gpu)
{
    int error = close_device(&machine->devices[gpu]);
    publish(machine, gpu, error ? MIG_ON_PENDING : MIG_ON | MIG_ON_PENDING);
    return error;
}

/* Changing the mode resets the GPU, which ends all instances; a process on one is in the way. */
static int disable(struct sim_machine *machine, uint32_t gpu, uint64_t word)
{
    int error = 0;
    publish(machine, gpu, word & ~MIG_ON_PENDING);
    for (uint32_t slot = 0; slot < SIM_MIG_SLOTS && !error; slot++)
        if (mig_byte(word, slot) & MIG_COMPUTE)
            error = close_device(&machine->devices[mig_room(machine, gpu, slot)]);
    for (uint32_t slot = 0; slot < SIM_MIG_SLOTS && error; slot++)
        if (mig_byte(word, slot) & MIG_COMPUTE)
            sim_device_transact(&machine->devices[mig_room(machine, gpu, slot)], open_closed, NULL,
                                false);
    if (error)
        return error;
    publish(machine, gpu, 0);
    return sim_device_transact(&machine->devices[gpu], open_closed, NULL, false);
}

int sim_mig_set_mode(struct sim_machine *machine, uint32_t gpu, uint32_t on)
{
    int lock = lock_gpu(machine, gpu), error;
    if (lock < 0)
        return lock;
    uint64_t word = mig_word(machine, gpu);
    if (!on) /* also where it is off: a changer may have been killed */
        error = disable(machine, gpu, word);
    else if (!(word & MIG_ON))
        error = enable(machine, gpu);
    else {
        publish(machine, gpu, word | MIG_ON_PENDING);
        error = 0;
    }
    close(lock);
    return error;
}

static int create_locked(struct sim_machine *machine, uint32_t gpu, uint32_t profile, int32_t start)
{
    const struct sim_device_identity *identity = mig_identity(machine, gpu);
    uint64_t word = mig_word(machine, gpu);
    REFUSE_IF(!(word & MIG_ON), -ENOTSUP);
    REFUSE_IF(profile >= identity->mig_profile_count || start >= SIM_MIG_SLICES ||
                  (start >= 0 && !(identity->mig_profiles[profile].starts >> start & 1)),
              -EINVAL);
    uint32_t occupied = mig_occupied(machine, gpu, word);
    if (start >= 0) /* leave it no other place */
        occupied |= ~mig_mask((uint32_t)start, identity->mig_profiles[profile].size);
    int place = sim_mig_place(identity->mig_profiles, identity->mig_profile_count, occupied,
                              mig_existing(word, profile), profile);
    if (place < 0)
        return place;
    for (uint32_t slot = 0; slot < SIM_MIG_SLOTS; slot++)
        if (!mig_is_used(mig_byte(word, slot))) {
            publish(machine, gpu, mig_with_byte(word, slot, (profile + 1) | (uint32_t)place << 4));
            return (int)slot;
        }
    return -ENOSPC;
}

int sim_mig_create(struct sim_machine *machine, uint32_t gpu, uint32_t profile, int32_t start)
{
    int lock = lock_gpu(machine, gpu);
    if (lock < 0)
        return lock;
    int slot = create_locked(machine, gpu, profile, start);
    close(lock);
    return slot;
}

/* ---- compute instances ----------------------------------------------------------------------- */

static int random_uuid(char uuid[64])
{
    unsigned char b[UUID_BYTES];
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t had = file < 0 ? -1 : read(file, b, sizeof b);
    if (file >= 0)
        close(file);
    REFUSE_IF(had != (ssize_t)sizeof b, -EIO);
    b[6] = (b[6] & 0x0f) | 0x40; /* version 4 */
    b[8] = (b[8] & 0x3f) | 0x80;
    snprintf(uuid, 64, "MIG-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
    return 0;
}

/* The room becomes the instance: its part of the GPU's memory, SMs, cache and bandwidth. */
static int fill_identity(struct sim_machine *machine, uint32_t gpu, uint32_t byte,
                         struct sim_device_identity *identity)
{
    const struct sim_device_identity *whole = mig_identity(machine, gpu);
    const struct sim_mig_profile *part = &whole->mig_profiles[mig_profile_at(byte)];
    struct sim_profile *profile = &identity->profile;
    *profile = whole->profile;
    snprintf(profile->name, sizeof profile->name, "%.14s-%s", whole->profile.name, part->name);
    snprintf(profile->product, sizeof profile->product, "%.42s MIG %s", whole->profile.product,
             part->name);
    profile->memory_bytes = (uint64_t)part->memory_mib << 20;
    profile->memory_bytes_per_second =
        whole->profile.memory_bytes_per_second / SIM_MIG_SLICES * part->size;
    profile->l2_bytes = whole->profile.l2_bytes / SIM_MIG_SLICES * part->size;
    profile->sm_count = part->sm_count;
    memcpy(identity->serial, whole->serial, sizeof identity->serial);
    identity->pci_bus = whole->pci_bus;
    identity->numa_node = whole->numa_node;
    identity->instance = mig_instance_id(mig_start(byte), part->size);
    return random_uuid(identity->uuid);
}

static int create_compute_locked(struct sim_machine *machine, uint32_t gpu, uint32_t slot)
{
    uint64_t word = mig_word(machine, gpu);
    uint32_t byte = slot < SIM_MIG_SLOTS ? mig_byte(word, slot) : 0;
    REFUSE_IF(!mig_is_used(byte), -ENOENT);
    REFUSE_IF(byte & MIG_COMPUTE, -EEXIST);
    struct sim_device *device = &machine->devices[mig_room(machine, gpu, slot)];
    int error = fill_identity(machine, gpu, byte, &device->header->identity);
    if (!error)
        error = sim_device_transact(device, open_closed, device, false);
    if (!error)
        publish(machine, gpu, mig_with_byte(word, slot, byte | MIG_COMPUTE));
    return error;
}

int sim_mig_create_compute(struct sim_machine *machine, uint32_t gpu, uint32_t slot)
{
    int lock = lock_gpu(machine, gpu);
    if (lock < 0)
        return lock;
    int error = create_compute_locked(machine, gpu, slot);
    close(lock);
    return error;
}

static int destroy_locked(struct sim_machine *machine, uint32_t gpu, uint32_t slot, bool compute)
{
    uint64_t word = mig_word(machine, gpu);
    uint32_t byte = slot < SIM_MIG_SLOTS ? mig_byte(word, slot) : 0;
    REFUSE_IF(!mig_is_used(byte) || (compute && !(byte & MIG_COMPUTE)), -ENOENT);
    REFUSE_IF(!compute && byte & MIG_COMPUTE, -EBUSY);
    int error = compute ? close_device(&machine->devices[mig_room(machine, gpu, slot)]) : 0;
    if (!error)
        publish(machine, gpu, mig_with_byte(word, slot, compute ? byte & ~MIG_COMPUTE : 0));
    return error;
}

static int destroy(struct sim_machine *machine, uint32_t gpu, uint32_t slot, bool compute)
{
    int lock = lock_gpu(machine, gpu);
    if (lock < 0)
        return lock;
    int error = destroy_locked(machine, gpu, slot, compute);
    close(lock);
    return error;
}

int sim_mig_destroy(struct sim_machine *machine, uint32_t gpu, uint32_t slot)
{
    return destroy(machine, gpu, slot, false);
}

int sim_mig_destroy_compute(struct sim_machine *machine, uint32_t gpu, uint32_t slot)
{
    return destroy(machine, gpu, slot, true);
}
