/* A container's process notes its pid as it sees itself, and in which PID namespace that is. Here
 * /proc is searched for the process that is in that namespace and has that pid in it: the last
 * number of its NSpid (proc(5)). Only a namespace below our own can be seen so, and only where /proc is
 * of our own: one that was mounted in the namespace above has other numbers.
 *
 * Searched at each call, since pids are given again: an agent asks every few seconds. No state. */
#include "visible_pid.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvml.h"

static uint64_t namespace_of(const char *pid)
{
    char path[sizeof "/proc//ns/pid" + NAME_MAX];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%s/ns/pid", pid);
    return stat(path, &status) == 0 ? status.st_ino : 0;
}

/* Returns the pid of a process in its own namespace, 0 where it has gone, or, if asked, where it has
 * another one in the namespace of /proc. */
static uint32_t innermost_pid(const char *pid, bool is_only)
{
    char path[sizeof "/proc//status" + NAME_MAX], line[512];
    uint32_t found = 0;
    snprintf(path, sizeof path, "/proc/%s/status", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, "NSpid:", strlen("NSpid:")) != 0)
            continue;
        const char *last = strrchr(line, '\t');
        if (is_only && last != strchr(line, '\t'))
            break;
        found = last ? (uint32_t)strtoul(last, NULL, 10) : 0;
    }
    fclose(file);
    return found;
}

/* Whether /proc has the numbers of our own namespace. */
static bool is_proc_ours(void)
{
    char text[16];
    ssize_t length = readlink("/proc/self", text, sizeof text - 1);
    if (length <= 0)
        return false;
    text[length] = '\0';
    return strtoul(text, NULL, 10) == (unsigned long)getpid() && innermost_pid("self", true);
}

static uint32_t search(const struct sim_client_books *client)
{
    uint32_t found = 0;
    DIR *processes = is_proc_ours() ? opendir("/proc") : NULL;
    if (!processes)
        return 0;
    for (struct dirent *each; !found && (each = readdir(processes));) {
        if (isdigit((unsigned char)each->d_name[0]) &&
            namespace_of(each->d_name) == client->pid_namespace &&
            innermost_pid(each->d_name, false) == client->pid)
            found = (uint32_t)strtoul(each->d_name, NULL, 10);
    }
    closedir(processes);
    return found;
}

bool nvml_visible_pid(const struct sim_client_books *client, uint32_t *pid)
{
    *pid = client->pid;
    if (!client->pid_namespace || client->pid_namespace == namespace_of("self"))
        return true;
    uint32_t found = search(client);
    if (found)
        *pid = found;
    return found || sim_machine_release(nvml.machine)->lists_unseen;
}
