/* What the shim reads of other processes in /proc: their names are their own to choose. The files
 * come from the input, the folders from here. */
#include "input.h"

#include <dirent.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "slice/pids.h"

#define FILE_AT 100
#define FOLDER_AT 101
#define LINK "/run/vgpu/usage"

static struct input files;
static int entries_left;
static char file[8]; /* the beginning of the name of what was opened last */

static long serve(long number, ...);
static ssize_t serve_link(const char *path, char *link, size_t room);
static int serve_stat(const char *path, struct stat *status);
#define syscall serve
#define readlink serve_link
#define stat(path, status) serve_stat(path, status)
#include "slice/pids.c"
#undef syscall

static size_t piece(void *into, size_t room)
{
    size_t bytes = (size_t)take(&files, 2) % (room + 1);
    bytes = bytes < (size_t)(files.end - files.at) ? bytes : (size_t)(files.end - files.at);
    memcpy(into, files.at, bytes);
    files.at += bytes;
    return bytes;
}

/* What the kernel writes, about numbers of the input. */
static size_t known(void *into, size_t room)
{
    unsigned first = (unsigned)take(&files, 1), second = (unsigned)take(&files, 1);
    if (strcmp(file, "stat") == 0)
        return (size_t)snprintf(into, room, "7 (a) b) R 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 %u 0\n",
                                first);
    if (strcmp(file, "status") == 0 && second < 128)
        return (size_t)snprintf(into, room, "Name:\tx\nNSpid:\t%u\n", first);
    if (strcmp(file, "status") == 0)
        return (size_t)snprintf(into, room, "Name:\tx\nNSpid:\t%u\t%u\n", second, first);
    return (size_t)snprintf(
        into, room, "pos:\t0\nlock:\t1: OFDLCK ADVISORY WRITE -1 00:1:2 %u %u\n", first, second);
}

static long serve(long number, ...)
{
    va_list rest;
    va_start(rest, number);
    long first = va_arg(rest, long), second = va_arg(rest, long), third = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_read)
        return (long)(take(&files, 1) < 160 ? known : piece)((void *)second, (size_t)third);
    if (number == SYS_openat) {
        const char *name = strrchr((const char *)second, '/');
        snprintf(file, sizeof file, "%s", name + 1);
        return strcmp(name, "/fd") == 0 || strcmp(name, "/proc") == 0 ? FOLDER_AT : FILE_AT;
    }
    if (number == SYS_getdents64 && first == FOLDER_AT && entries_left-- > 0) {
        struct dirent64 entry = {.d_reclen = sizeof entry};
        snprintf(entry.d_name, sizeof entry.d_name, "%d", 10 + entries_left);
        memcpy((void *)second, &entry, sizeof entry);
        return sizeof entry;
    }
    return number == SYS_getpid ? 7 : 0;
}

static ssize_t serve_link(const char *path, char *link, size_t room)
{
    uint64_t how = take(&files, 1);
    if (how < 128) {
        const char *known = how & 1 ? LINK : "/dev/nvidia0";
        memcpy(link, known, strlen(known));
        return (ssize_t)strlen(known);
    }
    return how < 200 ? (ssize_t)piece(link, room) : -1;
}

static int serve_stat(const char *path, struct stat *status)
{
    uint64_t inode = take(&files, 1);
    *status = (struct stat){.st_ino = inode};
    return inode < 200 ? 0 : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    files = (struct input){data, data + size};
    struct vgpu_usage_slot row = {.pid = (uint32_t)take(&files, 1),
                                  .pid_namespace = (uint32_t)take(&files, 1),
                                  .start_time_ticks = take(&files, 1)};
    entries_left = 3;
    pids_start_time("7");
    pids_visible(&row);
    entries_left = 5;
    pids_with_lock_have_gpu(3, 64);
    return 0;
}
