#include "compute/cap/budget.h"

#include "compute/cap/cap.h"
#include "compute/cap/gate.h"
#include "compute/cap/launch_queue.h"
#include "compute/cap/virtual_time.h"
#include "driver/capture.h"
#include "slice/limits_file.h"
#include "slice/region.h"

#define FULL_PERCENT 100
/* Of the kind that begins it; else one whose price is next to nothing would not be looked at again. */
#define MOST_LAUNCHES 20000

static const uint64_t no_word;
static const struct budget nothing = {
    .limits = &no_word, .grant = &no_word, .expected = BUDGET_NOTHING};

struct budget budget = {.limits = &no_word, .grant = &no_word, .expected = BUDGET_NOTHING};

void budget_reset(void)
{
    budget = nothing;
}

bool budget_is_granted(uint32_t device)
{
    return budget.expected != BUDGET_NOTHING && budget.device == device;
}

void budget_collect(struct flight *flight, int64_t now_ns)
{
    if (!budget_is_granted(flight->device))
        return;
    __atomic_store_n(&budget.expected, BUDGET_NOTHING, __ATOMIC_RELEASE);
    int64_t word = __atomic_exchange_n(&budget.word, 0, __ATOMIC_ACQ_REL);
    /* The launches are below 0 while one puts back what it took after the last collection. */
    int64_t launches = (int64_t)((uint64_t)word << (64 - BUDGET_SHIFT)) >> (64 - BUDGET_SHIFT);
    int64_t unused_ns = (word - launches) >> BUDGET_SHIFT;
    virtual_time_charge(region_shared(flight->device), now_ns, -unused_ns,
                        cap_percent(flight->device));
    /* What ran meanwhile began to run when the budget was granted. */
    struct batch *open = timing_open_batch(&flight->timing);
    flight_count(flight, NULL, budget.granted_ns - unused_ns, launches,
                 open != NULL ? now_ns : budget.granted_at_ns);
}

bool budget_take_elsewhere(const void *object, uint64_t blocks, CUstream stream)
{
    if (!budget_covers(stream))
        return false;
    struct estimate *kind = estimate_look(budget.kinds, estimate_key(object, blocks));
    return kind != NULL && budget_take_kind(kind);
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void budget_grant(struct flight *flight, const struct estimate *estimate, int64_t now_ns)
{
    struct batch *open = timing_open_batch(&flight->timing);
    if (estimate->samples < ESTIMATE_KNOWN || ticket_lock_is_busy(&flight->launches) ||
        arrival_is_behind(region_usage(), flight->device, region_slot(), now_ns, now_ns) ||
        capture_is_any() || gate_pending_is_ambiguous() || window_has_turns(&flight->window) ||
        budget_is_granted(budget.device) ||
        region_device_count() > 1) /* a kernel of a library is one object on all devices */
        return;
    if (open != NULL && (open->thread != 0 || open->ends_behind))
        return; /* a per-thread stream is another one in each thread, and they look alike */
    int64_t left_ns = FLIGHT_MOST_NS - flight->in_flight_ns;
    left_ns = lesser(left_ns, open != NULL ? FLIGHT_BATCH_NS - open->charged_ns
                                           : ration_left_ns(&flight->ration));
    if (cap_is_kept(flight->device, &flight->window))
        left_ns = lesser(left_ns, flight_left_ns(flight, now_ns) * cap_percent(flight->device) /
                                      FULL_PERCENT);
    left_ns = lesser(left_ns, MOST_LAUNCHES * estimate_price(estimate));
    if (open != NULL && open->is_sample) /* a chain: then it is seen whether the GPU idled */
        left_ns = lesser(left_ns, ((int64_t)open->least_launches - (int64_t)open->launches) *
                                      estimate_price(estimate));
    if (left_ns < estimate_price(estimate))
        return;
    virtual_time_charge(region_shared(flight->device), now_ns, left_ns,
                        cap_percent(flight->device));
    budget.stream = open != NULL ? (uintptr_t)open->streams[0] : 0;
    budget.stream_mask = open != NULL ? UINTPTR_MAX : 0;
    budget.device = flight->device;
    budget.kinds = &flight->estimates;
    budget.limits = &((const struct vgpu_limits_header *)region_limits())->active_generation;
    budget.grant = window_number_word(flight->device);
    budget.granted_ns = left_ns;
    budget.granted_at_ns = now_ns;
    __atomic_fetch_add(&budget.word, left_ns << BUDGET_SHIFT, __ATOMIC_RELAXED);
    __atomic_store_n(&budget.expected,
                     __atomic_load_n(budget.limits, __ATOMIC_ACQUIRE) +
                         __atomic_load_n(budget.grant, __ATOMIC_ACQUIRE),
                     __ATOMIC_RELEASE);
}
