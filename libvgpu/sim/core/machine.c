/* Creating and opening the machine file, and holding a process slot in it. Who only looks has none. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"
#include "slice/life.h"
#include "timeline.h"

/* Slots are handed out in turn among the first ones, so that the books of a process outlive it for
 * a while; all of them would make every snapshot large. */
#define SLOTS_IN_TURN 64

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int machine_path(char *path, size_t length, const char *directory, const char *suffix)
{
    int written = snprintf(path, length, "%s/%s%s", directory, SIM_FILE_NAME, suffix);
    return written < 0 || (size_t)written >= length ? -ENAMETOOLONG : 0;
}

/* Of a machine's file: the name by which it is a GPU's. */
static void gpu_path_of(char *path, size_t length, const char *machine_path)
{
    int folder = (int)(strlen(machine_path) - strlen(SIM_FILE_NAME));
    snprintf(path, length, "%.*s" SIM_GPU_NAME, folder, machine_path);
}

static uint64_t file_bytes(uint32_t device_count)
{
    return SIM_PAGE + (uint64_t)device_count * SIM_DEVICE_BYTES;
}

/* Each room for an instance says of which GPU. */
static void name_rooms(void *base, const struct sim_device_identity *gpus, uint32_t gpu_count)
{
    uint32_t room = gpu_count;
    for (uint32_t gpu = 0; gpu < gpu_count; gpu++)
        for (uint32_t slot = 0; gpus[gpu].mig_profile_count && slot < SIM_MIG_SLOTS; slot++)
            sim_layout_device(base, room++)->identity.gpu = gpu + 1;
}

int sim_machine_create(const char *directory, const char *identifier,
                       const struct sim_machine_options *options,
                       const struct sim_device_identity *gpus, uint32_t gpu_count)
{
    char path[4096], draft[4096], gpu_path[4096];
    REFUSE_IF(gpu_count == 0 || gpu_count > SIM_MAX_GPUS ||
                  strlen(identifier) >= sizeof(((struct sim_machine_header *)0)->identifier),
              -EINVAL);
    uint32_t count = gpu_count;
    for (uint32_t i = 0; i < gpu_count; i++)
        count += gpus[i].mig_profile_count ? SIM_MIG_SLOTS : 0;
    int error = machine_path(path, sizeof path, directory, "");
    if (!error)
        error = machine_path(draft, sizeof draft, directory, ".XXXXXX");
    if (error)
        return error;
    int file = mkostemp(draft, O_CLOEXEC); /* a killed maker may have left its own */
    if (file < 0)
        return -errno;
    void *base = MAP_FAILED;
    /* other users' processes share the machine, whatever the creator's umask */
    if (fchmod(file, 0666) == 0 && ftruncate(file, (off_t)file_bytes(count)) == 0)
        base = mmap(NULL, file_bytes(count), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    error = base == MAP_FAILED ? -errno : posix_fallocate(file, 0, SIM_PAGE) ? -ENOSPC : 0;
    for (uint32_t i = 0; !error && i < count; i++) {
        off_t at = SIM_PAGE + (off_t)i * (off_t)SIM_DEVICE_BYTES;
        /* of room for an instance, as much as is written before there is one */
        off_t bytes = i < gpu_count ? SIM_PAGE + (off_t)SIM_STATE_STRIDE : 2 * SIM_PAGE;
        if (posix_fallocate(file, at, bytes))
            error = -ENOSPC;
    }
    if (!error) {
        struct sim_machine_header *header = base;
        for (uint32_t i = 0; i < count; i++) {
            struct sim_device_header *device = sim_layout_device(base, i);
            struct sim_state *state = sim_layout_state(device, 0);
            if (i < gpu_count)
                /* NOLINTNEXTLINE(clang-analyzer-optin.core.*): mmap's errno is never 0 */
                device->identity = gpus[i];
            state->closed = i >= gpu_count;
            state->clock_ns = sim_now_ns();
            state->window_started_ns = state->clock_ns;
            state->current = SIM_NOBODY;
        }
        name_rooms(base, gpus, gpu_count);
        header->layout_version = SIM_LAYOUT_VERSION;
        header->driver_version = options->driver_version;
        header->release = options->release;
        header->backing_bytes = options->backing_bytes;
        header->device_count = count;
        header->gpu_count = gpu_count;
        header->file_bytes = file_bytes(count);
        memcpy(header->identifier, identifier, strlen(identifier) + 1);
        __atomic_store_n(&header->magic, SIM_MAGIC, __ATOMIC_RELEASE);
        gpu_path_of(gpu_path, sizeof gpu_path, path);
        if (link(draft, path) != 0 || link(draft, gpu_path) != 0) /* never replaces one in use */
            error = -errno;
    }
    unlink(draft);
    if (base != MAP_FAILED)
        munmap(base, file_bytes(count));
    close(file);
    return error;
}

/* Takes a free slot, whose lock lasts as long as this process, and its forked children keep the
 * descriptor: as a real driver's memory does. */
static int claim_slot(struct sim_machine *machine)
{
    struct life life;
    int error = life_open(&life, machine->path);
    if (error)
        return error;
    uint32_t first = __atomic_fetch_add(&machine->header->next_slot, 1, __ATOMIC_RELAXED);
    uint32_t slot = SIM_NOBODY;
    error = -EAGAIN;
    for (uint32_t i = 0; i < SIM_PROCESS_SLOTS && (error == -EAGAIN || error == -EACCES); i++) {
        slot = i < SLOTS_IN_TURN ? (first + i) % SLOTS_IN_TURN : i;
        error = life_lock(&life, SIM_LIFE_BASE + slot, F_WRLCK);
    }
    if (!error)
        error =
            life_lock(&life, SIM_LIFE_BASE + slot, F_RDLCK); /* to be shared with the lifeline */
    life_close(&life);
    if (!error && !life_is_held_at(machine->path, SIM_LIFE_BASE + slot))
        error = -ENOLCK;
    if (error) {
        life_end(life.page);
        return error == -EAGAIN || error == -EACCES ? -EUSERS : error;
    }
    machine->slot = slot;
    machine->life_page = life.page;
    char gpu_path[4096];
    gpu_path_of(gpu_path, sizeof gpu_path, machine->path);
    lifeline_open(&machine->lifeline, gpu_path);
    lifeline_lock(&machine->lifeline, SIM_LIFE_BASE + slot, F_RDLCK);
    return 0;
}

static int map_machine(struct sim_machine *machine)
{
    struct stat status;
    if (fstat(machine->file, &status) != 0)
        return -errno;
    machine->file_device = status.st_dev;
    machine->file_inode = status.st_ino;
    REFUSE_IF((uint64_t)status.st_size < SIM_PAGE + SIM_DEVICE_BYTES, -EPROTO);
    void *base =
        mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, machine->file, 0);
    if (base == MAP_FAILED)
        return -errno;
    struct sim_machine_header *header = base;
    bool whole = __atomic_load_n(&header->magic, __ATOMIC_ACQUIRE) == SIM_MAGIC &&
                 header->layout_version == SIM_LAYOUT_VERSION && header->device_count > 0 &&
                 header->device_count <= SIM_MAX_DEVICES && header->gpu_count > 0 &&
                 header->gpu_count <= header->device_count &&
                 header->file_bytes == (uint64_t)status.st_size &&
                 header->file_bytes == file_bytes(header->device_count);
    if (!whole) {
        munmap(base, (size_t)status.st_size);
        return -EPROTO;
    }
    machine->header = header;
    return 0;
}

int sim_machine_peek_version(const char *directory, uint32_t *driver_version)
{
    char path[4096];
    struct sim_machine_header header;
    int error = machine_path(path, sizeof path, directory, "");
    if (error)
        return error;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -errno;
    ssize_t bytes = pread(file, &header, sizeof header, 0);
    close(file);
    REFUSE_IF(bytes != (ssize_t)sizeof header || header.magic != SIM_MAGIC ||
                  header.layout_version != SIM_LAYOUT_VERSION,
              -EPROTO);
    *driver_version = header.driver_version;
    return 0;
}

static bool is_machine_file(const struct sim_machine *machine, int file)
{
    struct stat status;
    return file >= 0 && fstat(file, &status) == 0 && status.st_dev == machine->file_device &&
           status.st_ino == machine->file_inode;
}

int sim_machine_file(struct sim_machine *machine)
{
    if (!is_machine_file(machine, machine->file)) {
        int file = open(machine->path, O_RDWR | O_CLOEXEC);
        if (file >= 0 && !is_machine_file(machine, file)) { /* removed, and made again */
            close(file);
            file = -1;
        }
        machine->file = file;
    }
    return machine->file;
}

int sim_machine_allocate(struct sim_machine *machine, const void *part, size_t bytes)
{
    int cancelling; /* a thread that is cancelled here would keep the device's mutex */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    int file = sim_machine_file(machine);
    off_t at = (const char *)part - (const char *)machine->header;
    int error = 0; /* without a file, as its directory is gone: nothing to ask */
    if (file >= 0)
        error = posix_fallocate(file, at, (off_t)bytes);
    pthread_setcancelstate(cancelling, NULL);
    return error == ENOSPC || error == EDQUOT || error == EFBIG ? -ENOSPC : 0;
}

int sim_machine_watch(const char *directory, struct sim_machine **result)
{
    char path[4096];
    int error = machine_path(path, sizeof path, directory, "");
    struct sim_machine *machine = error ? NULL : calloc(1, sizeof *machine);
    if (!machine)
        return error ? error : -ENOMEM;
    machine->slot = SIM_NOBODY;
    machine->path = strdup(path);
    machine->file = machine->path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    error = !machine->path ? -ENOMEM : machine->file < 0 ? -errno : map_machine(machine);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): mmap's errno is never 0 */
    for (uint32_t i = 0; !error && i < machine->header->device_count; i++) {
        struct sim_device *device = &machine->devices[i];
        device->machine = machine;
        device->index = i;
        device->header = sim_layout_device(machine->header, i);
        device->scratch = malloc(sizeof *device->scratch);
        device->workers = malloc(sizeof *device->workers);
        pthread_mutex_init(&device->mutex, NULL);
        error = device->scratch && device->workers ? 0 : -ENOMEM;
    }
    if (error) {
        sim_machine_close(machine);
        return error;
    }
    *result = machine;
    return 0;
}

int sim_machine_open(const char *directory, struct sim_machine **result)
{
    struct sim_machine *machine;
    int error = sim_machine_watch(directory, &machine);
    if (error)
        return error;
    error = claim_slot(machine);
    for (uint32_t i = 0; !error && i < machine->header->device_count; i++)
        if (sim_mig_is_there(machine, i))
            error = sim_device_detach_slot(&machine->devices[i]);
    if (error) {
        sim_machine_close(machine);
        return error;
    }
    *result = machine;
    return 0;
}

void sim_machine_close(struct sim_machine *machine)
{
    if (!machine)
        return;
    for (uint32_t i = 0; machine->header && i < machine->header->device_count; i++) {
        struct sim_device *device = &machine->devices[i];
        if (device->scratch && device->workers && sim_mig_is_there(machine, i))
            sim_device_detach_slot(device);
        free(device->scratch);
        free(device->workers);
        free(device->notes);
    }
    if (machine->life_page)
        life_end(machine->life_page);
    lifeline_close(&machine->lifeline);
    if (machine->header)
        munmap(machine->header, machine->header->file_bytes);
    if (machine->header ? is_machine_file(machine, machine->file) : machine->file >= 0)
        close(machine->file);
    free(machine->path);
    free(machine);
}

/* In the child of a fork: drops the parent's machine without touching what is shared. The lifeline
 * stays open, as a driver's files do. */
void sim_machine_forget(struct sim_machine *machine)
{
    if (is_machine_file(machine, machine->file))
        close(machine->file);
    munmap(machine->header, machine->header->file_bytes);
    /* the rest is memory of the parent, left alone: another thread held who knows which lock */
}

uint32_t sim_machine_device_count(const struct sim_machine *machine)
{
    return machine->header->device_count;
}

uint32_t sim_machine_gpu_count(const struct sim_machine *machine)
{
    return machine->header->gpu_count;
}

const char *sim_machine_identifier(const struct sim_machine *machine)
{
    return machine->header->identifier;
}

uint32_t sim_machine_driver_version(const struct sim_machine *machine)
{
    return machine->header->driver_version;
}

const struct sim_driver_release *sim_machine_release(const struct sim_machine *machine)
{
    return &machine->header->release;
}

uint64_t sim_machine_backing_bytes(const struct sim_machine *machine)
{
    return machine->header->backing_bytes;
}

struct sim_device *sim_machine_device(struct sim_machine *machine, uint32_t index)
{
    return index < machine->header->device_count ? &machine->devices[index] : NULL;
}

int sim_machine_identity(const struct sim_machine *machine, uint32_t index,
                         struct sim_device_identity *identity)
{
    REFUSE_IF(index >= machine->header->device_count, -EINVAL);
    *identity = machine->devices[index].header->identity;
    return 0;
}
