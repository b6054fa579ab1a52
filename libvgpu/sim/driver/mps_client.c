/*
 * Being a client of MPS. A control daemon (sim/bin/nvidia-cuda-mps-control) holds a lock on
 * `control.lock` in its pipe directory for as long as it lives, and writes what it serves and its
 * defaults to `control.state`, one "key value..." a line:
 *   machine IDENTIFIER / device UUID / default_active_thread_percentage N / pinned DEVICE BYTES
 * A process is a client of the GPUs named there if the daemon is alive and of its own machine.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#endif

#define WHOLE_PERCENT 100

static bool daemon_is_alive(const char *pipe_directory)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/control.lock", pipe_directory) >= (int)sizeof path)
        return false;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    bool alive = fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(file);
    return alive;
}

/* "4096M", "4G", "123" as bytes; 0 where it is none. */
static uint64_t parse_bytes(const char *text)
{
    char *end;
    unsigned long long count = strtoull(text, &end, 10);
    unsigned int shift = *end == 'K' || *end == 'k'   ? 10
                         : *end == 'M' || *end == 'm' ? 20
                         : *end == 'G' || *end == 'g' ? 30
                                                      : 0;
    return count >> (64 - shift - 1) ? 0 : (uint64_t)count << shift;
}

static void cap_device(struct driver_device *device, uint64_t bytes)
{
    if (bytes && (!device->cap_bytes || bytes < device->cap_bytes))
        device->cap_bytes = bytes;
}

/* CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: "0=4096M,1=2G", by the numbers this process sees. */
static void read_own_caps(void)
{
    const char *list = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    char *copy = list ? strdup(list) : NULL, *rest = NULL;
    for (char *entry = copy ? strtok_r(copy, ", ", &rest) : NULL; entry;
         entry = strtok_r(NULL, ", ", &rest)) {
        char *value = strchr(entry, '=');
        if (!value)
            continue;
        *value++ = '\0';
        for (int i = 0; i < driver.device_count; i++) {
            char ordinal[16];
            snprintf(ordinal, sizeof ordinal, "%d", i);
            bool named =
                strcmp(entry, ordinal) == 0 || strcmp(entry, driver.devices[i].identity->uuid) == 0;
            if (driver.devices[i].percentage && named)
                cap_device(&driver.devices[i], parse_bytes(value));
        }
    }
    free(copy);
}

static void read_state(FILE *state)
{
    char line[512], key[64], first[256], second[128];
    bool ours = false;
    uint32_t served = 0, percentage = WHOLE_PERCENT;
    while (fgets(line, sizeof line, state)) {
        int fields = sscanf(line, "%63s %255s %127s", key, first, second);
        if (fields >= 2 && strcmp(key, "machine") == 0)
            ours = strcmp(first, sim_machine_identifier(driver.machine)) == 0;
        for (int i = 0; fields >= 2 && i < driver.device_count; i++) {
            bool this_one = strcmp(first, driver.devices[i].identity->uuid) == 0;
            if (this_one && strcmp(key, "device") == 0)
                served |= 1u << i;
            if (this_one && fields == 3 && strcmp(key, "pinned") == 0)
                cap_device(&driver.devices[i], parse_bytes(second));
        }
        if (fields >= 2 && strcmp(key, "default_active_thread_percentage") == 0)
            percentage = (uint32_t)atoi(first);
    }
    const char *own = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double asked = own ? atof(own) : 0;
    if (asked > 0 && asked < percentage)
        percentage = asked < 1 ? 1 : (uint32_t)asked;
    if (percentage < 1 || percentage > WHOLE_PERCENT)
        percentage = WHOLE_PERCENT;
    for (int i = 0; i < driver.device_count; i++) {
        driver.devices[i].percentage = ours && served & 1u << i ? percentage : 0;
        if (!driver.devices[i].percentage)
            driver.devices[i].cap_bytes = 0;
    }
}

void mps_client_configure(void)
{
    const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[4096];
    if (!directory || !*directory)
        directory = "/tmp/nvidia-mps";
    if (!daemon_is_alive(directory) ||
        snprintf(path, sizeof path, "%s/control.state", directory) >= (int)sizeof path)
        return;
    FILE *state = fopen(path, "re");
    if (!state)
        return;
    read_state(state);
    fclose(state);
    read_own_caps();
}
