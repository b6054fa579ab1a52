#include "shareable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RECORD_MAGIC 0x4552414853555047ull /* "GPUSHARE" as bytes */

/* ---- files ----------------------------------------------------------------------------------- */

bool shareable_file_adopt(struct shareable_file *file, int descriptor)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0)
        return false;
    *file = (struct shareable_file){descriptor, status.st_dev, status.st_ino};
    return true;
}

bool shareable_file_create(struct shareable_file *file, uint64_t bytes)
{
    file->descriptor = -1;
    /* glibc has had a name for it since 2.27, Linux the call since 3.17 */
    int descriptor =
        (int)syscall(SYS_memfd_create, "vgpu-sim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0)
        return false;
    if (ftruncate(descriptor, (off_t)bytes) == 0 &&
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
        shareable_file_adopt(file, descriptor))
        return true;
    close(descriptor);
    return false;
}

bool shareable_file_ours(const struct shareable_file *file)
{
    struct shareable_file seen;
    return file->descriptor >= 0 && shareable_file_adopt(&seen, file->descriptor) &&
           seen.filesystem == file->filesystem && seen.inode == file->inode;
}

int shareable_file_reopen(const struct shareable_file *file)
{
    char path[64];
    if (!shareable_file_ours(file))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file->descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    return descriptor >= 0 ? descriptor : fcntl(file->descriptor, F_DUPFD_CLOEXEC, 0);
}

void shareable_file_close(struct shareable_file *file)
{
    if (shareable_file_ours(file))
        close(file->descriptor);
    file->descriptor = -1;
}

/* ---- records --------------------------------------------------------------------------------- */

bool shareable_record_write(const struct shareable_file *file, uint32_t kind,
                            const struct driver_device *device, uint64_t bytes, uint64_t identifier)
{
    struct shareable_record record = {
        .magic = RECORD_MAGIC, .kind = kind, .bytes = bytes, .identifier = identifier};
    strncpy(record.machine, sim_machine_identifier(driver.machine), sizeof record.machine - 1);
    if (device)
        memcpy(record.device, device->identity->uuid, sizeof record.device);
    return pwrite(file->descriptor, &record, sizeof record, (off_t)bytes) == sizeof record;
}

bool shareable_record_check(int descriptor, uint32_t kind, struct shareable_record *record)
{
    struct stat status;
    /* other kinds of file (a pipe, a device) are not read from: that would have effects */
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < SIM_PAGE ||
        pread(descriptor, record, sizeof *record, status.st_size - SIM_PAGE) != sizeof *record)
        return false;
    return record->magic == RECORD_MAGIC && record->kind == kind &&
           record->bytes == (uint64_t)status.st_size - SIM_PAGE &&
           strncmp(record->machine, sim_machine_identifier(driver.machine),
                   sizeof record->machine) == 0;
}

struct driver_device *shareable_record_read(int descriptor, uint32_t kind,
                                            struct shareable_record *record)
{
    if (!shareable_record_check(descriptor, kind, record))
        return NULL;
    for (int i = 0; i < driver.device_count; i++)
        if (!strncmp(record->device, driver.devices[i].identity->uuid, sizeof record->device))
            return &driver.devices[i];
    return NULL;
}

/* FNV-1a, for handles that are too short for the identifier itself. */
uint64_t shareable_machine_digest(void)
{
    uint64_t digest = 0xcbf29ce484222325ull;
    for (const char *at = sim_machine_identifier(driver.machine); *at; at++)
        digest = (digest ^ (unsigned char)*at) * 0x100000001b3ull;
    return digest;
}

/* ---- holds ----------------------------------------------------------------------------------- */

struct hold {
    const struct driver_device *device;
    uint64_t identifier;
    unsigned int count;
    struct hold *next;
};

static pthread_mutex_t holds_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct hold *holds;

static struct hold **find_hold(const struct driver_device *device, uint64_t identifier)
{
    struct hold **at = &holds;
    while (*at && ((*at)->device != device || (*at)->identifier != identifier))
        at = &(*at)->next;
    return at;
}

int shared_export(struct driver_device *device, uint64_t bytes, uint64_t *identifier)
{
    struct hold *hold = malloc(sizeof *hold);
    REFUSE_IF(!hold, -ENOMEM);
    pthread_mutex_lock(&holds_mutex);
    int error = sim_shared_export(device->device, bytes, identifier);
    if (error) {
        free(hold);
    } else {
        *hold = (struct hold){device, *identifier, 1, holds};
        holds = hold;
    }
    pthread_mutex_unlock(&holds_mutex);
    return error;
}

int shared_hold(struct driver_device *device, uint64_t identifier, uint64_t *bytes)
{
    struct hold *hold = malloc(sizeof *hold);
    int error = hold ? memory_attach(device) : -ENOMEM;
    pthread_mutex_lock(&holds_mutex);
    if (!error)
        error = sim_shared_hold(device->device, identifier, bytes);
    struct hold *known = error ? NULL : *find_hold(device, identifier);
    if (known) {
        known->count++;
    } else if (!error) {
        *hold = (struct hold){device, identifier, 1, holds};
        holds = hold;
        hold = NULL;
    }
    pthread_mutex_unlock(&holds_mutex);
    free(hold);
    return error;
}

void shared_drop(struct driver_device *device, uint64_t identifier)
{
    pthread_mutex_lock(&holds_mutex);
    struct hold **at = find_hold(device, identifier), *hold = *at;
    if (hold && --hold->count == 0) {
        *at = hold->next;
        free(hold);
        sim_shared_drop(device->device, identifier);
    }
    pthread_mutex_unlock(&holds_mutex);
}

bool shared_held(const struct driver_device *device, uint64_t identifier)
{
    pthread_mutex_lock(&holds_mutex);
    bool held = *find_hold(device, identifier) != NULL;
    pthread_mutex_unlock(&holds_mutex);
    return held;
}
