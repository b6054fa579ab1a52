#include "processes.h"

#include "usage_file.h"

uint32_t processes_slots(const struct ledger *ledger)
{
    const struct vgpu_usage_header *header = ledger->usage;
    uint32_t hi_slot = __atomic_load_n(&header->hi_slot, __ATOMIC_ACQUIRE);
    return hi_slot < VGPU_SLOT_COUNT ? hi_slot : VGPU_SLOT_COUNT;
}

static uint64_t bytes_of(const struct ledger *ledger, uint32_t slot)
{
    const struct vgpu_usage_slot_device *counters =
        usage_slot_device(ledger->usage, slot, ledger->device);
    uint64_t bytes = __atomic_load_n(&counters->bytes, __ATOMIC_RELAXED);
    return bytes < LEDGER_MAX_BYTES ? bytes : LEDGER_MAX_BYTES;
}

bool processes_look(const struct ledger *ledger, uint32_t slot, struct process *process)
{
    const struct vgpu_usage_slot *row = usage_slot(ledger->usage, slot);
    uint64_t gen = __atomic_load_n(&row->gen, __ATOMIC_ACQUIRE);
    *process = (struct process){__atomic_load_n(&row->pid, __ATOMIC_RELAXED), slot,
                                bytes_of(ledger, slot)};
    /* Without a pid it holds memory on behalf of several, and is nobody. */
    return gen % 2 == 1 && process->pid != 0 && ledger->is_held(ledger->is_held_context, slot) &&
           __atomic_load_n(&row->gen, __ATOMIC_ACQUIRE) == gen;
}

static bool has_worked(const struct ledger *ledger, uint32_t slot)
{
    const struct vgpu_usage_slot_device *counters =
        usage_slot_device(ledger->usage, slot, ledger->device);
    return __atomic_load_n(&counters->launches, __ATOMIC_RELAXED) > 0;
}

uint32_t processes_holding(const struct ledger *ledger, struct process *found)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < processes_slots(ledger); slot++)
        if (bytes_of(ledger, slot) > 0 && processes_look(ledger, slot, &found[count]))
            count++;
    return count;
}

uint32_t processes_using(const struct ledger *ledger, struct process *found)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < processes_slots(ledger); slot++)
        if ((bytes_of(ledger, slot) > 0 || has_worked(ledger, slot)) &&
            processes_look(ledger, slot, &found[count]))
            count++;
    return count;
}
