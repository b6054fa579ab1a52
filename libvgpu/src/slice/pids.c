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

/* Reads the beginning of /proc/PID/NAME as a string. False where it is not there. */
static bool read_file(const char *pid, const char *name, char text[FILE_BYTES])
{
    char path[sizeof "/proc//status" + NAME_MAX];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return false;
    ssize_t length = read(descriptor, text, FILE_BYTES - 1);
    close(descriptor);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

uint64_t pids_start_time(const char *pid)
{
    char text[FILE_BYTES];
    unsigned long long ticks = 0;
    if (!read_file(pid, "stat", text))
        return 0;
    const char *at = strrchr(text, ')'); /* the command before it may hold anything */
    if (at == NULL || sscanf(at + 2,
                             "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
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
    DIR *processes = is_proc_ours() ? opendir("/proc") : NULL;
    if (processes == NULL)
        return 0;
    for (const struct dirent *each; found == 0 && (each = readdir(processes)) != NULL;)
        if (isdigit((unsigned char)each->d_name[0]) && is_process_of(each->d_name, row))
            found = (uint32_t)strtoul(each->d_name, NULL, 10);
    closedir(processes);
    return found;
}
