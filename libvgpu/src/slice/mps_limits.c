#include "slice/mps_limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/log.h"
#include "slice/limits_file.h"

#define MIB (1024u * 1024u)
#define ENTRY_BYTES 32 /* ",63=17592186044415M" and its end */
#define VALUE_BYTES (VGPU_MAX_DEVICES * ENTRY_BYTES)

/* What MPS holds this process to; a forked child begins again. Written in cuInit, read when the
 * process claims its slot, which is later. */
static struct {
    pid_t pid;
    uint32_t thread_percentage, pinned_mib;
} began;

static void set_variable(const char *name, const char *value)
{
    const char *now = getenv(name);
    if (value[0] == '\0' || (now != NULL && strcmp(now, value) == 0))
        return;
    log_line(LOG_INFO, "%s was %s and is now %s, as the slice says", name,
             now != NULL ? now : "not set", value);
    setenv(name, value, 1);
}

/* MPS counts in whole MiB here. Less than one would read as no memory at all, or as no limit. */
static unsigned long long whole_mib(uint64_t bytes)
{
    return bytes < MIB ? 1 : bytes / MIB;
}

static void set_pinned(const void *limits, uint32_t device_count)
{
    char value[VALUE_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < device_count && used + ENTRY_BYTES <= sizeof value; i++) {
        uint64_t bytes = limits_device(limits, i)->mps_pinned_bytes;
        if (bytes > 0)
            used += (size_t)snprintf(value + used, sizeof value - used, "%s%u=%lluM",
                                     used > 0 ? "," : "", i, whole_mib(bytes));
    }
    set_variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", value);
}

/* MPS reads the variables once a process. */
static void note(const struct vgpu_device_limit *first)
{
    if (began.pid == getpid())
        return;
    began.pid = getpid();
    began.thread_percentage = first->mps_thread_percentage;
    began.pinned_mib =
        first->mps_pinned_bytes > 0 ? (uint32_t)whole_mib(first->mps_pinned_bytes) : 0;
}

void mps_limits_apply(const void *limits, uint32_t device_count, bool is_managed)
{
    if (device_count == 0)
        return;
    const struct vgpu_device_limit *first = limits_device(limits, 0);
    if (is_managed || getenv("CUDA_MPS_PIPE_DIRECTORY") == NULL)
        set_variable("CUDA_MPS_PIPE_DIRECTORY", first->mps_pipe_directory);
    if (first->mps_thread_percentage > 0) {
        char value[ENTRY_BYTES];
        snprintf(value, sizeof value, "%u", first->mps_thread_percentage);
        set_variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", value);
    }
    set_pinned(limits, device_count);
    note(first);
}

void mps_limits_tell(struct vgpu_usage_slot *slot)
{
    if (began.pid != getpid())
        return;
    slot->mps_thread_percentage = began.thread_percentage;
    slot->mps_pinned_mib = began.pinned_mib;
}
