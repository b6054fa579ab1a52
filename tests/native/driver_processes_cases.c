/* What is made of lists of processes and samples as drivers give them, one case a run:
 *
 *     ENTRY_BYTES VERSION PIDS SAMPLES OWN...
 *
 * The driver lists PIDS processes, 100 and on, each holding its pid in bytes, by the list VERSION alone ("v2"
 * or "v3") with entries of ENTRY_BYTES. It has SAMPLES samples of processes, 100 and on, or from 5000 on where
 * the number begins with "h", as the host's pids would be. "N+M" pids: N processes, and M more that have the
 * numbers of the first. Prints how long entries of the third list are; then for each pid of OWN how many have
 * it and the sum of their bytes; then how many samples are ours, or "unknown". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/driver_processes.h"
#include "driver/real.h"
#include "hooks/own_samples.h"

#define FIRST_PID 100
#define FIRST_HOST_PID 5000
#define MOST_OWN 8

struct real real;

static size_t entry_bytes;
static unsigned int pid_count, more_count, sample_count, first_sampled = FIRST_PID;

static nvmlReturn_t list(unsigned int *count, char *infos)
{
    unsigned int room = *count;
    *count = pid_count + more_count;
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < *count; i++) {
        unsigned int pid = FIRST_PID + (i < pid_count ? i : i - pid_count);
        nvmlProcessInfo_v2_t info = {.pid = pid, .usedGpuMemory = pid};
        memset(infos + i * entry_bytes, 0, entry_bytes - (entry_bytes > 32 ? 4 : 0)); /* padded */
        memcpy(infos + i * entry_bytes, &info, sizeof info);
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t second(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)
{
    (void)device;
    return list(count, (char *)infos);
}

static nvmlReturn_t third(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    (void)device;
    return list(count, (char *)infos);
}

static nvmlReturn_t sample(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                           unsigned int *count, unsigned long long since_us)
{
    unsigned int room = *count;
    (void)device, (void)since_us;
    *count = sample_count;
    if (sample_count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < sample_count; i++)
        samples[i] = (nvmlProcessUtilizationSample_t){.pid = first_sampled + i, .smUtil = 1};
    return sample_count > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

struct sum {
    unsigned int pid, count;
    unsigned long long bytes;
};

static void add(void *context, unsigned int pid, unsigned long long bytes)
{
    struct sum *sum = context;
    if (pid == sum->pid) {
        sum->count++;
        sum->bytes += bytes;
    }
}

int main(int argc, char **argv)
{
    static nvmlProcessUtilizationSample_t kept[OWN_SAMPLES_MOST];
    struct process own[MOST_OWN] = {0};
    unsigned int count;
    if (argc < 5)
        return 2;
    entry_bytes = strtoul(argv[1], NULL, 10);
    char *more;
    pid_count = (unsigned int)strtoul(argv[3], &more, 10);
    more_count = *more == '+' ? (unsigned int)strtoul(more + 1, NULL, 10) : 0;
    if (*argv[4] == 'h')
        first_sampled = FIRST_HOST_PID;
    sample_count = (unsigned int)strtoul(argv[4] + (*argv[4] == 'h'), NULL, 10);
    real.nvmlDeviceGetProcessUtilization = sample;
    if (strcmp(argv[2], "v2") == 0)
        real.nvmlDeviceGetComputeRunningProcesses_v2 = second;
    else
        real.nvmlDeviceGetComputeRunningProcesses_v3 = third;
    printf("%zu", driver_processes_third_entry_bytes(NULL));
    uint32_t own_count = 0;
    for (int i = 5; i < argc && own_count < MOST_OWN; i++) {
        struct sum sum = {.pid = (unsigned int)strtoul(argv[i], NULL, 10)};
        driver_processes(NULL, add, &sum);
        printf(" %u:%llu", sum.count, sum.bytes);
        own[own_count++].pid = sum.pid;
    }
    if (own_samples(NULL, own, own_count, 0, kept, &count))
        printf(" %u\n", count);
    else
        printf(" unknown\n");
    return 0;
}
