#include "slice/pids.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_BYTES 4096
#define NAMESPACE_PIDS "\nNSpid:"
#define LOCK_LINE "lock:"
#define LINK_BYTES 512
#define ENTRIES_BYTES 1024

/* The kernel is called directly: callers hold locks, and may be cancelled in the C library's calls. */
static int open_quietly(const char *path)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
}

static void close_quietly(int descriptor)
{
    syscall(SYS_close, descriptor);
}

/* Reads the beginning of /proc/PID/NAME as a string. False where it is not there. */
static bool read_file(const char *pid, const char *name, char text[FILE_BYTES])
{
    char path[sizeof "/proc//status" + NAME_MAX];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    int descriptor = open_quietly(path);
    if (descriptor < 0)
        return false;
    long length = syscall(SYS_read, descriptor, text, FILE_BYTES - 1);
    close_quietly(descriptor);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* The numbers that name entries of a folder of /proc. */
struct numbers {
    int folder;
    long length, at;
    _Alignas(struct dirent64) char entries[ENTRIES_BYTES];
};

/* The next of them, NULL at the end or where there is no folder, which is then closed. */
static const char *next_number(struct numbers *numbers)
{
    for (;;) {
        if (numbers->at >= numbers->length) {
            numbers->at = 0;
            numbers->length =
                syscall(SYS_getdents64, numbers->folder, numbers->entries, ENTRIES_BYTES);
        }
        if (numbers->length <= 0) {
            close_quietly(numbers->folder);
            return NULL;
        }
        const struct dirent64 *entry = (const void *)(numbers->entries + numbers->at);
        numbers->at += entry->d_reclen;
        if (isdigit((unsigned char)entry->d_name[0]))
            return entry->d_name;
    }
}

uint64_t pids_start_time(const char *pid)
{
    char text[FILE_BYTES];
    unsigned long long ticks = 0;
    if (!read_file(pid, "stat", text))
        return 0;
    const char *at = strrchr(text, ')'); /* the command before it may hold anything */
    if (at == NULL || sscanf(at,
                             ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                             "%*d %*d %*d %*d %llu",
                             &ticks) != 1)
        return 0;
    return ticks;
}

/* 0 also where we may not look. */
static uint32_t namespace_of(const char *pid)
{
    char path[sizeof "/proc//ns/pid" + NAME_MAX];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%s/ns/pid", pid);
    return stat(path, &status) == 0 ? (uint32_t)status.st_ino : 0;
}

uint32_t pids_own_namespace(void)
{
    return namespace_of("self");
}

/* The pid of a process in its own namespace, and in how many namespaces below that of /proc it has one;
 * 0 where it has gone. */
static uint32_t innermost_pid(const char *pid, int *depth)
{
    char text[FILE_BYTES];
    uint32_t found = 0;
    *depth = 0;
    const char *at = read_file(pid, "status", text) ? strstr(text, NAMESPACE_PIDS) : NULL;
    if (at == NULL)
        return 0;
    at += strlen(NAMESPACE_PIDS);
    while (*at == '\t') {
        char *end;
        found = (uint32_t)strtoul(at + 1, &end, 10);
        ++*depth;
        at = end;
    }
    return found;
}

/* Whether /proc has the numbers of our own namespace: it may have been mounted in one above it. */
static bool is_proc_ours(void)
{
    int depth;
    return innermost_pid("self", &depth) == (uint32_t)syscall(SYS_getpid) && depth == 1;
}

static bool is_process_of(const char *pid, const struct vgpu_usage_slot *row)
{
    int depth;
    if (innermost_pid(pid, &depth) != row->pid || depth < 2)
        return false;
    uint32_t namespace = namespace_of(pid);
    return namespace != 0 ? namespace == row->pid_namespace
                          : pids_start_time(pid) == row->start_time_ticks;
}

uint32_t pids_visible(const struct vgpu_usage_slot *row)
{
    uint32_t own_namespace = row->pid_namespace != 0 ? pids_own_namespace() : 0, found = 0;
    if (own_namespace == 0 || row->pid_namespace == own_namespace)
        return row->pid;
    if (!is_proc_ours())
        return 0;
    struct numbers pids = {.folder = open_quietly("/proc")};
    for (const char *pid; (pid = next_number(&pids)) != NULL;)
        if (found == 0 && is_process_of(pid, row))
            found = (uint32_t)strtoul(pid, NULL, 10);
    return found;
}

/* ---- who still has the GPU ---- */

/* What is asked about a process: both from its descriptors. */
struct finding {
    bool has_lock, has_gpu;
};

static bool has_lock(const char *pid, const char *number, uint64_t at)
{
    char name[sizeof "fdinfo/" + NAME_MAX], text[FILE_BYTES];
    snprintf(name, sizeof name, "fdinfo/%s", number);
    if (!read_file(pid, name, text))
        return false;
    for (const char *line = strstr(text, LOCK_LINE); line != NULL;
         line = strstr(line + 1, LOCK_LINE)) {
        unsigned long long first, last;
        if (sscanf(line, LOCK_LINE "%*s OFDLCK %*s %*s %*s %*s %llu %llu", &first, &last) == 2 &&
            first <= at && at <= last)
            return true;
    }
    return false;
}

/* The driver's are /dev/nvidiactl, /dev/nvidia0, /dev/nvidia-uvm and so on. */
static bool is_of_gpu(const char *link)
{
    const char *name = strrchr(link, '/');
    return name != NULL && strncmp(name, "/nvidia", strlen("/nvidia")) == 0;
}

static bool read_link(const char *folder, const char *number, char link[LINK_BYTES])
{
    char path[sizeof "/proc//fd/" + 2 * NAME_MAX];
    snprintf(path, sizeof path, "/proc/%s/fd/%s", folder, number);
    ssize_t length = readlink(path, link, LINK_BYTES - 1);
    link[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static struct finding look_through(const char *pid, const char *locked, uint64_t at)
{
    struct finding found = {false, false};
    char path[sizeof "/proc//fd" + NAME_MAX], link[LINK_BYTES];
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    struct numbers descriptors = {.folder = open_quietly(path)};
    for (const char *number; (number = next_number(&descriptors)) != NULL;) {
        if (!read_link(pid, number, link))
            continue;
        found.has_gpu |= is_of_gpu(link);
        found.has_lock |= strcmp(link, locked) == 0 && has_lock(pid, number, at);
    }
    return found;
}

bool pids_with_lock_have_gpu(int file, uint64_t at)
{
    char own[16], locked[LINK_BYTES];
    bool is_seen = false, has_gpu = false;
    snprintf(own, sizeof own, "%d", file);
    if (!read_link("self", own, locked))
        return true;
    struct numbers pids = {.folder = open_quietly("/proc")};
    for (const char *pid; (pid = next_number(&pids)) != NULL;) {
        struct finding found = look_through(pid, locked, at);
        is_seen |= found.has_lock;
        has_gpu |= found.has_lock && found.has_gpu;
    }
    return has_gpu || !is_seen;
}
