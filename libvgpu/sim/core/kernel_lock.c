/* The lock of the kernel driver that an NVML call and the growth of a context both need. It is no lock here
 * but the moment until which NVML calls hold it: whoever comes while one is under way waits for that moment, and
 * a process that is killed holds up nobody for longer. */
#include <time.h>

#include "machine.h"

static uint64_t *held_until(struct sim_device *device)
{
    const struct sim_device_header *header = device->header;
    uint32_t gpu = header->identity.gpu; /* of a MIG instance */
    return &sim_machine_device(device->machine, gpu ? gpu - 1 : device->index)
                ->header->nvml_until_ns;
}

static void sleep_until(uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    while (sim_now_ns() < until_ns)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

void sim_device_nvml_call(struct sim_device *device, enum sim_call call)
{
    uint32_t cost_ns = device->header->identity.profile.calibration.call_ns[call];
    if (cost_ns == 0)
        return;
    uint64_t *word = held_until(device);
    uint64_t held_ns = __atomic_load_n(word, __ATOMIC_ACQUIRE), until_ns;
    do {
        uint64_t now_ns = sim_now_ns();
        until_ns = (held_ns > now_ns ? held_ns : now_ns) + cost_ns;
    } while (!__atomic_compare_exchange_n(word, &held_ns, until_ns, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE));
    sleep_until(until_ns);
}

void sim_device_await_nvml(struct sim_device *device)
{
    uint64_t until_ns = __atomic_load_n(held_until(device), __ATOMIC_ACQUIRE);
    if (until_ns != 0)
        sleep_until(until_ns);
}
