#include "slice/slot_processes.h"

#include "slice/pids.h"
#include "slice/usage_file.h"

uint32_t slot_processes_slots(const struct ledger *ledger)
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

static bool is_of_pieces(const struct vgpu_usage_slot *row)
{
    return row->pieces_device != 0;
}

/* True when a slot is in use, and not by the dead. */
static bool is_in_use(const struct ledger *ledger, uint32_t slot)
{
    const struct vgpu_usage_slot *row = usage_slot(ledger->usage, slot);
    uint64_t gen = __atomic_load_n(&row->gen, __ATOMIC_ACQUIRE);
    return gen % 2 == 1 && ledger->is_held(ledger->is_held_context, slot) &&
           __atomic_load_n(&row->gen, __ATOMIC_ACQUIRE) == gen;
}

bool slot_processes_look(const struct ledger *ledger, uint32_t slot, struct process *process)
{
    const struct vgpu_usage_slot *row = usage_slot(ledger->usage, slot);
    if (row->pid == 0 || is_of_pieces(row) || !is_in_use(ledger, slot))
        return false;
    uint32_t pid = pids_visible(row);
    *process = (struct process){pid != 0 ? pid : PIDS_END + slot, slot, bytes_of(ledger, slot)};
    return true;
}

static bool is_made_by(const struct vgpu_usage_slot *piece, const struct vgpu_usage_slot *maker)
{
    return piece->pid == maker->pid && piece->pid_namespace == maker->pid_namespace &&
           piece->start_time_ticks == maker->start_time_ticks;
}

/* Bytes of the shared pieces that a process has made: the driver, too, counts them as its own. */
static uint64_t shared_bytes(const struct ledger *ledger, uint32_t slot)
{
    const struct vgpu_usage_slot *maker = usage_slot(ledger->usage, slot);
    uint64_t bytes = 0;
    for (uint32_t other = 0; other < slot_processes_slots(ledger); other++) {
        const struct vgpu_usage_slot *row = usage_slot(ledger->usage, other);
        if (is_of_pieces(row) && is_made_by(row, maker) && bytes_of(ledger, other) > 0 &&
            is_in_use(ledger, other))
            bytes += bytes_of(ledger, other);
    }
    return bytes;
}

static bool has_worked(const struct ledger *ledger, uint32_t slot)
{
    const struct vgpu_usage_slot_device *counters =
        usage_slot_device(ledger->usage, slot, ledger->device);
    return __atomic_load_n(&counters->launches, __ATOMIC_RELAXED) > 0;
}

uint32_t slot_processes_holding(const struct ledger *ledger, struct process *found)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < slot_processes_slots(ledger); slot++) {
        struct process *process = &found[count];
        if (is_of_pieces(usage_slot(ledger->usage, slot)) ||
            usage_slot(ledger->usage, slot)->gen % 2 == 0)
            continue;
        uint64_t shared = shared_bytes(ledger, slot);
        if (shared + bytes_of(ledger, slot) > 0 && slot_processes_look(ledger, slot, process)) {
            process->bytes += shared;
            count++;
        }
    }
    return count;
}

uint32_t slot_processes_using(const struct ledger *ledger, struct process *found)
{
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < slot_processes_slots(ledger); slot++)
        if ((bytes_of(ledger, slot) > 0 || has_worked(ledger, slot)) &&
            slot_processes_look(ledger, slot, &found[count]))
            count++;
    return count;
}
