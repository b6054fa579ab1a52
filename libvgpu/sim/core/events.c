/* What NVML tells those who wait for it. Events of a device stand in a ring: one is filled before
 * its number is published, and a reader looks at the number again after it has read. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"

static struct sim_device_header *header_of(const struct sim_machine *machine, uint32_t index)
{
    return index < machine->header->device_count ? sim_layout_device(machine->header, index) : NULL;
}

int sim_machine_raise_event(struct sim_machine *machine, uint32_t index, uint32_t type,
                            uint64_t data)
{
    struct sim_device_header *device = header_of(machine, index);
    REFUSE_IF(!device, -EINVAL);
    if (type == SIM_EVENT_ECC_SINGLE)
        __atomic_add_fetch(&device->ecc_corrected, 1, __ATOMIC_RELAXED);
    else if (type == SIM_EVENT_ECC_DOUBLE)
        __atomic_add_fetch(&device->ecc_uncorrected, 1, __ATOMIC_RELAXED);
    uint64_t number = __atomic_add_fetch(&device->last_event, 1, __ATOMIC_ACQ_REL);
    struct sim_event *event = &device->events[number % SIM_EVENTS_KEPT];
    __atomic_store_n(&event->number, 0, __ATOMIC_RELEASE);
    event->type = type;
    event->data = data;
    __atomic_store_n(&event->number, number, __ATOMIC_RELEASE);
    __atomic_add_fetch(&machine->header->event_count, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &machine->header->event_count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return 0;
}

uint64_t sim_machine_last_event(const struct sim_machine *machine, uint32_t index)
{
    struct sim_device_header *device = header_of(machine, index);
    return device ? __atomic_load_n(&device->last_event, __ATOMIC_ACQUIRE) : 0;
}

int sim_machine_read_event(const struct sim_machine *machine, uint32_t index, uint64_t number,
                           struct sim_event *event)
{
    struct sim_device_header *device = header_of(machine, index);
    REFUSE_IF(!device, -EINVAL);
    const struct sim_event *kept = &device->events[number % SIM_EVENTS_KEPT];
    REFUSE_IF(!number || __atomic_load_n(&kept->number, __ATOMIC_ACQUIRE) != number, -ENOENT);
    *event = *kept;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&kept->number, __ATOMIC_RELAXED) == number ? 0 : -ENOENT;
}

uint32_t sim_machine_wait_event(const struct sim_machine *machine, uint32_t seen,
                                uint64_t timeout_ns)
{
    uint32_t *count = &machine->header->event_count;
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                               .tv_nsec = (long)(timeout_ns % 1000000000u)};
    if (timeout_ns && __atomic_load_n(count, __ATOMIC_ACQUIRE) == seen)
        syscall(SYS_futex, count, FUTEX_WAIT, seen, &timeout, NULL, 0);
    return __atomic_load_n(count, __ATOMIC_ACQUIRE);
}

void sim_machine_ecc_errors(const struct sim_machine *machine, uint32_t index, uint64_t *corrected,
                            uint64_t *uncorrected)
{
    struct sim_device_header *device = header_of(machine, index);
    *corrected = device ? __atomic_load_n(&device->ecc_corrected, __ATOMIC_RELAXED) : 0;
    *uncorrected = device ? __atomic_load_n(&device->ecc_uncorrected, __ATOMIC_RELAXED) : 0;
}
