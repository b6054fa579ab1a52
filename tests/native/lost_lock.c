/*
 * A library that is preloaded before the shim. Where a page to read of the file LOSES is mapped it
 * maps another, as file systems do whose files are mapped from elsewhere: its locks are lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_lost(int descriptor)
{
    char link[32], path[4096];
    const char *lost = getenv("LOSES");
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path);
    return lost != NULL && length == (ssize_t)strlen(lost) && memcmp(path, lost, length) == 0;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int descriptor, off_t offset)
{
    if (protection == PROT_READ && is_lost(descriptor)) {
        flags |= MAP_ANONYMOUS;
        descriptor = -1;
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, descriptor, offset);
}
