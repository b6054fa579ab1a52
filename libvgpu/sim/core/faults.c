/* Faults on request. They stand next to the state, and whoever makes a driver call looks at one flag
 * for all of them. */
#include <errno.h>

#include "machine.h"

/* Called after every change: the flag that all calls look at. */
static void sum_up(struct sim_machine *machine)
{
    struct sim_machine_header *header = machine->header;
    bool faulty = header->call_faults.delay_ns || header->call_faults.code_count;
    for (uint32_t i = 0; i < header->device_count; i++) {
        const struct sim_device_faults *faults = &sim_layout_device(header, i)->faults;
        faulty |= faults->lost || faults->broken_code || faults->failing_allocations;
        for (int rule = 0; rule < SIM_NVML_FAULTS; rule++)
            faulty |= faults->nvml[rule].function[0] != 0;
    }
    __atomic_store_n(&header->faulty, faulty, __ATOMIC_RELEASE);
}

int sim_machine_read_device_faults(const struct sim_machine *machine, uint32_t index,
                                   struct sim_device_faults *faults)
{
    REFUSE_IF(index >= machine->header->device_count, -EINVAL);
    *faults = sim_layout_device(machine->header, index)->faults;
    return 0;
}

int sim_machine_write_device_faults(struct sim_machine *machine, uint32_t index,
                                    const struct sim_device_faults *faults)
{
    REFUSE_IF(index >= machine->header->device_count, -EINVAL);
    sim_layout_device(machine->header, index)->faults = *faults;
    sum_up(machine);
    return 0;
}

void sim_machine_read_call_faults(const struct sim_machine *machine, struct sim_call_faults *faults)
{
    *faults = machine->header->call_faults;
}

void sim_machine_write_call_faults(struct sim_machine *machine,
                                   const struct sim_call_faults *faults)
{
    machine->header->call_faults = *faults;
    sum_up(machine);
}

bool sim_fault_take(uint64_t *remaining)
{
    uint64_t seen = __atomic_load_n(remaining, __ATOMIC_RELAXED);
    while (seen && !__atomic_compare_exchange_n(remaining, &seen, seen - 1, false, __ATOMIC_ACQ_REL,
                                                __ATOMIC_RELAXED))
        ;
    return seen != 0;
}

bool sim_fault_take_code(struct sim_machine *machine, uint32_t *code)
{
    struct sim_call_faults *faults = &machine->header->call_faults;
    uint32_t seen = __atomic_load_n(&faults->code_count, __ATOMIC_RELAXED);
    while (seen && !__atomic_compare_exchange_n(&faults->code_count, &seen, seen - 1, false,
                                                __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        ;
    *code = faults->code;
    return seen != 0;
}
