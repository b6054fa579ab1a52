#include "hooks/own_samples.h"

#include <sys/mman.h>

#include "driver/driver_processes.h"
#include "driver/real.h"

#define MOST_SAMPLES 65536 /* what claims more is no count */
#define TRIES 4

static bool has_pid(const struct process *own, uint32_t own_count, unsigned int pid)
{
    for (uint32_t i = 0; i < own_count; i++)
        if (own[i].pid == pid)
            return true;
    return false;
}

struct samples {
    nvmlProcessUtilizationSample_t *found;
    unsigned int count;
};

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

/* Strikes out the samples of a process that the driver lists. */
static void strike(void *context, unsigned int pid, unsigned long long bytes)
{
    struct samples *samples = context;
    (void)bytes;
    for (unsigned int i = 0; i < samples->count; i++)
        if (samples->found[i].pid == pid)
            samples->found[i].pid = 0;
}

/* Whether the driver lists the processes of all samples, as it does where both have one kind of pids: those
 * of samples may be the host's where those of the list are not. Spoils `samples`. */
static bool are_listed(nvmlDevice_t handle, struct samples *samples)
{
    if (driver_processes(handle, strike, samples) != NVML_SUCCESS)
        return false;
    for (unsigned int i = 0; i < samples->count; i++)
        if (samples->found[i].pid != 0)
            return false;
    return true;
}

/* Puts those of ours among `samples` into `kept`, at most OWN_SAMPLES_MOST. False where none is ours and
 * it cannot be told whether that is because none of ours worked. */
static bool keep(nvmlDevice_t handle, const struct process *own, uint32_t own_count,
                 struct samples *samples, nvmlProcessUtilizationSample_t *kept, unsigned int *count)
{
    for (unsigned int i = 0; i < samples->count && *count < OWN_SAMPLES_MOST; i++)
        if (has_pid(own, own_count, samples->found[i].pid))
            kept[(*count)++] = samples->found[i];
    return *count > 0 || are_listed(handle, samples);
}

/* Asks the driver; what it answers. `most`: for how many `samples` has room. */
static nvmlReturn_t ask(nvmlDevice_t handle, unsigned long long since_us, struct samples *samples,
                        unsigned int most)
{
    samples->count = most;
    nvmlReturn_t result =
        real.nvmlDeviceGetProcessUtilization(handle, samples->found, &samples->count, since_us);
    if (result == NVML_ERROR_NOT_FOUND) { /* nobody worked */
        samples->count = 0;
        return NVML_SUCCESS;
    }
    if (result == NVML_SUCCESS && samples->count > most)
        samples->count = most;
    return result;
}

/* As own_samples, where the driver has more than OWN_SAMPLES_MOST: `samples->count` of them. */
static bool keep_of_many(nvmlDevice_t handle, const struct process *own, uint32_t own_count,
                         unsigned long long since_us, struct samples *samples,
                         nvmlProcessUtilizationSample_t *kept, unsigned int *count)
{
    bool is_told = false;
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
    for (int i = 0; i < TRIES && result == NVML_ERROR_INSUFFICIENT_SIZE; i++) {
        unsigned int most = 2 * samples->count;
        size_t bytes = most * sizeof *samples->found;
        if (most == 0 || most > MOST_SAMPLES)
            return false;
        void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED)
            return false;
        samples->found = room;
        result = ask(handle, since_us, samples, most);
        if (result == NVML_SUCCESS)
            is_told = keep(handle, own, own_count, samples, kept, count);
        munmap(room, bytes);
    }
    return is_told;
}

bool own_samples(nvmlDevice_t handle, const struct process *own, uint32_t own_count,
                 unsigned long long since_us, nvmlProcessUtilizationSample_t *kept,
                 unsigned int *count)
{
    struct samples samples = {.found = kept};
    *count = 0;
    if (real.nvmlDeviceGetProcessUtilization == NULL || !knows_our_pids(handle, own, own_count))
        return false;
    nvmlReturn_t result = ask(handle, since_us, &samples, OWN_SAMPLES_MOST);
    if (result == NVML_ERROR_INSUFFICIENT_SIZE)
        return keep_of_many(handle, own, own_count, since_us, &samples, kept, count);
    return result == NVML_SUCCESS && keep(handle, own, own_count, &samples, kept, count);
}
