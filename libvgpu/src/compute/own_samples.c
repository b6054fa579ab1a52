#include "compute/own_samples.h"

#include <sys/mman.h>

#include "hooks/driver_processes.h"
#include "hooks/real.h"

#define MOST_SAMPLES 65536 /* what claims more is no count */
#define TRIES 4

static bool has_pid(const struct process *own, uint32_t own_count, unsigned int pid)
{
    for (uint32_t i = 0; i < own_count; i++)
        if (own[i].pid == pid)
            return true;
    return false;
}

/* What the driver's list of processes says about ours. */
struct listing {
    const struct process *own;
    uint32_t own_count;
    bool is_known; /* one of ours is there */
    bool is_twice; /* and another one by the same pid */
    uint8_t seen[VGPU_SLOT_COUNT];
};

static void note(void *context, unsigned int pid, unsigned long long bytes)
{
    struct listing *listing = context;
    (void)bytes;
    for (uint32_t i = 0; i < listing->own_count; i++) {
        if (listing->own[i].pid != pid)
            continue;
        listing->is_known = true;
        listing->is_twice |= listing->seen[i];
        listing->seen[i] = 1;
    }
}

/* Whether the driver counts our processes as we do, and nobody else's like ours. */
static __attribute__((noinline)) bool knows_our_pids(nvmlDevice_t handle, const struct process *own,
                                                     uint32_t own_count)
{
    struct listing listing = {.own = own, .own_count = own_count};
    return driver_processes(handle, note, &listing) == NVML_SUCCESS && listing.is_known &&
           !listing.is_twice;
}

/* Keeps those of ours among `found`, in `samples`, at most OWN_SAMPLES_MOST. */
static unsigned int keep(const struct process *own, uint32_t own_count,
                         const nvmlProcessUtilizationSample_t *found, unsigned int found_count,
                         nvmlProcessUtilizationSample_t *samples)
{
    unsigned int count = 0;
    for (unsigned int i = 0; i < found_count && count < OWN_SAMPLES_MOST; i++)
        if (has_pid(own, own_count, found[i].pid))
            samples[count++] = found[i];
    return count;
}

/* As own_samples, where the driver has more than OWN_SAMPLES_MOST: it said how many. */
static nvmlReturn_t sort_many(nvmlDevice_t handle, const struct process *own, uint32_t own_count,
                              unsigned long long since_us, nvmlProcessUtilizationSample_t *samples,
                              unsigned int *count, unsigned int needed)
{
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (int i = 0; i < TRIES && result == NVML_ERROR_INSUFFICIENT_SIZE; i++) {
        unsigned int room = 2 * needed;
        size_t bytes = room * sizeof *samples;
        if (needed > MOST_SAMPLES)
            return result;
        void *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED)
            return NVML_ERROR_MEMORY;
        needed = room;
        result = real.nvmlDeviceGetProcessUtilization(handle, found, &needed, since_us);
        if (result == NVML_SUCCESS)
            *count = keep(own, own_count, found, needed < room ? needed : room, samples);
        munmap(found, bytes);
    }
    return result;
}

bool own_samples(nvmlDevice_t handle, const struct process *own, uint32_t own_count,
                 unsigned long long since_us, nvmlProcessUtilizationSample_t *samples,
                 unsigned int *count)
{
    unsigned int room = OWN_SAMPLES_MOST;
    *count = 0;
    if (real.nvmlDeviceGetProcessUtilization == NULL || !knows_our_pids(handle, own, own_count))
        return false;
    nvmlReturn_t result = real.nvmlDeviceGetProcessUtilization(handle, samples, &room, since_us);
    if (result == NVML_SUCCESS)
        *count = keep(own, own_count, samples, room < OWN_SAMPLES_MOST ? room : OWN_SAMPLES_MOST,
                      samples);
    else if (result == NVML_ERROR_INSUFFICIENT_SIZE)
        result = sort_many(handle, own, own_count, since_us, samples, count, room);
    return result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND; /* that: nobody worked */
}
