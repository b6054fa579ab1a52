#include "memory/shared/descriptor.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* glibc 2.17 has no names for these (linux/fcntl.h: since Linux 3.15). */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

#define HIGH_NUMBER 700 /* out of the way of programs that count on low numbers */

static struct flock bytes_lock(uint64_t place, uint64_t count, short type)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)place, .l_len = (off_t)count};
}

int descriptor_probe(int descriptor)
{
    char path[64];
    struct stat status, opened;
    /* Pipes and sockets hold no device memory, and opening them has effects. */
    if (fstat(descriptor, &status) != 0 || !(S_ISREG(status.st_mode) || S_ISCHR(status.st_mode)))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    int low = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (low < 0)
        return -1;
    int probe = fcntl(low, F_DUPFD_CLOEXEC, HIGH_NUMBER);
    if (probe >= 0)
        close(low);
    else
        probe = low;
    if (fstat(probe, &opened) == 0 && opened.st_dev == status.st_dev &&
        opened.st_ino == status.st_ino)
        return probe;
    close(probe);
    return -1;
}

uint64_t descriptor_identity(int probe)
{
    struct stat status;
    if (probe < 0 || fstat(probe, &status) != 0)
        return 0;
    return ((uint64_t)status.st_dev * 0x9e3779b97f4a7c15u ^ status.st_ino) | 1;
}

bool descriptor_mark(int descriptor, uint64_t place)
{
    struct flock lock = bytes_lock(place, 1, F_RDLCK);
    return fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
}

/* A byte of the range that another description than `descriptor`'s has locked, not always the first
 * (locks come in the order of their making); false: there is none. */
static bool any_locked(int descriptor, uint64_t place, uint64_t count, uint64_t *locked)
{
    struct flock lock = bytes_lock(place, count, F_WRLCK);
    if (fcntl(descriptor, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
        return false;
    /* locks of one description that touch are one, which may begin before the range */
    *locked = (uint64_t)lock.l_start > place ? (uint64_t)lock.l_start : place;
    return true;
}

bool descriptor_is_marked(int probe, uint64_t place, uint64_t count)
{
    uint64_t locked;
    return any_locked(probe, place, count, &locked);
}

bool descriptor_has_mark(int descriptor, int probe, uint64_t place, uint64_t count)
{
    uint64_t seen, other;
    while (count > 0 && any_locked(probe, place, count, &seen)) {
        if (!any_locked(descriptor, seen, 1, &other))
            return true; /* nobody else has it, so it is this one */
        if (descriptor_has_mark(descriptor, probe, place, seen - place))
            return true;
        count -= seen + 1 - place;
        place = seen + 1;
    }
    return false;
}
