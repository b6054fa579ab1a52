/* A program starts in a slice whose `limits`, `usage` and `ring` are damaged: the shim attaches or
 * refuses, its ledger stays within bounds, and nothing goes on for ever. */
#include "slice_input.h"

#include "slice/region.c" /* what it keeps for a process is forgotten after each input */

#include "compute/cap/launch_queue.h"
#include "compute/cap/virtual_time.h"
#include "compute/measure/utilisation.h"

#define ASKED_BYTES (1u << 20)

bool fork_watch(void)
{
    return true;
}

static void forget(const struct slice_input *slice)
{
    if (is_claimed)
        life_end(own_slot.life_page);
    lifeline_close(&lifeline);
    if (state == REGION_MAPPED) {
        munmap((void *)limits_map, slice->limits_bytes);
        munmap(usage_map, slice->usage_bytes);
    }
    lifeline = (struct lifeline){0};
    is_claimed = false;
    state = REGION_UNKNOWN;
}

static void use_memory(uint32_t device)
{
    struct ledger ledger = region_ledger(device);
    struct ledger_refusal refusal = {0};
    int result = ledger_reserve(&ledger, region_slot(), ASKED_BYTES, &refusal);
    HOLDS(result == 0 || result == -ENOMEM);
    HOLDS(ledger_used_bytes(&ledger) <= LEDGER_MAX_BYTES);
    HOLDS(refusal.used_bytes <= LEDGER_MAX_BYTES && refusal.limit_bytes <= LEDGER_MAX_BYTES);
    if (result == 0)
        ledger_release(&ledger, region_slot(), ASKED_BYTES);
    ledger_sweep(&ledger);
}

static void use_time(uint32_t device, int64_t gpu_ns)
{
    struct vgpu_usage_device *shared = region_shared(device);
    virtual_time_set_percent(shared, NOW_NS, 30);
    virtual_time_enter(shared, NOW_NS);
    virtual_time_charge(shared, NOW_NS, gpu_ns, 30);
    virtual_time_correct(shared, NOW_NS, -gpu_ns, 30);
    HOLDS(virtual_time_wait_ns(shared, NOW_NS, 0) >= 0);
    virtual_time_left_ns(shared, NOW_NS);
    HOLDS(virtual_time_busy_ns(shared, NOW_NS) >= 0);
    virtual_time_lasts(shared, NOW_NS + gpu_ns);
    virtual_time_forgive(shared, NOW_NS);
    arrival_wait(usage_map, device, region_slot(), NOW_NS, NOW_NS + gpu_ns);
    arrival_is_behind(usage_map, device, region_slot(), NOW_NS, NOW_NS);
    arrival_served(usage_map, device, region_slot(), NOW_NS);
    arrival_serve(usage_map, device, region_slot(), NOW_NS);
    wait_histogram_note(region_counters(device), gpu_ns);
    utilisation_sample(usage_map, device, NOW_NS);
    struct utilisation_window window = utilisation_window(usage_map, device, NOW_NS);
    HOLDS(utilisation_of_container(usage_map, device, &window) <= 100);
    HOLDS(utilisation_of_slot(usage_map, region_slot(), device, &window) <= 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    uint64_t kinds = take(&input, 1), ring = take(&input, 1);
    int64_t gpu_ns = (int64_t)take(&input, 4);
    uint32_t at = 0, joined;
    struct piece_seen seen;
    struct held_piece piece;
    setenv("VGPU_DIR", slice_folder(), 1);
    setenv("VGPU_LOG", "error", 1);
    struct slice_input slice = slice_make(&input);
    if (ring & 64) { /* for fewer devices than `limits` has */
        usage_format(slice.usage, 1, "a");
        slice.usage_bytes = usage_file_bytes(1);
    }
    slice_lay("limits", slice.limits, &slice.limits_bytes, kinds);
    slice_lay("usage", slice.usage, &slice.usage_bytes, kinds >> 4);
    uint64_t ring_bytes = 1;
    slice_lay("ring", "", &ring_bytes, ring);
    if (region_claim()) {
        HOLDS(region_device_count() <= VGPU_MAX_DEVICES && region_slot() < VGPU_SLOT_COUNT);
        if (ring & 32)
            setenv("CUDA_MPS_PIPE_DIRECTORY", "its own", 1);
        else
            unsetenv("CUDA_MPS_PIPE_DIRECTORY");
        mps_limits_apply(limits_map, region_device_count(), ring & 128);
        HOLDS(region_find_device("GPU-0") < (int)region_device_count());
        for (uint32_t device = 0; device < region_device_count(); device++) {
            use_memory(device);
            use_time(device, gpu_ns);
            region_ring(device);
        }
        while (slot_pieces_next(usage_map, &at, &seen))
            HOLDS(seen.slot < VGPU_SLOT_COUNT && seen.row < VGPU_SLOT_PIECES);
        uint64_t joined_bytes = region_piece_join(&piece, 7, &joined);
        if (joined_bytes > 0 || region_piece_make(&piece, joined = 0, 7, 0, ASKED_BYTES))
            region_piece_leave(&piece, joined);
    }
    forget(&slice);
    slice_free(&slice);
    return 0;
}
