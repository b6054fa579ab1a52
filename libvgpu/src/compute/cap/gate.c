#include "compute/cap/gate.h"

#include "compute/cap/cap.h"
#include "compute/cap/throttle.h"
#include "compute/cap/uncapped.h"
#include "driver/capture.h"
#include "slice/devices.h"
#include "slice/limits_file.h"
#include "slice/region.h"

static const uint64_t never; /* 0, and no generation is 0 */
static const uint64_t always = 1;

const uint64_t *gate_watch = &never;
uint64_t gate_expected = 1;
const uint64_t *gate_quiet_watch = &never;
uint64_t gate_quiet_expected = 1;

static const struct gate_pending *pending; /* atomic; NULL: nobody has announced any */

void gate_announce_pending(const struct gate_pending *asked)
{
    __atomic_store_n(&pending, asked, __ATOMIC_RELEASE);
}

static bool is_any_pending(void)
{
    const struct gate_pending *asked = __atomic_load_n(&pending, __ATOMIC_ACQUIRE);
    return asked != NULL && asked->is_any();
}

bool gate_pending_is_ambiguous(void)
{
    const struct gate_pending *asked = __atomic_load_n(&pending, __ATOMIC_ACQUIRE);
    return asked != NULL && asked->is_ambiguous();
}

static void set_words(const uint64_t **watched, uint64_t *expectation, const uint64_t *watch,
                      uint64_t expected)
{
    __atomic_store_n(expectation, UINT64_MAX, __ATOMIC_RELEASE); /* no word ever holds it */
    __atomic_store_n(watched, watch, __ATOMIC_RELEASE);
    __atomic_store_n(expectation, expected, __ATOMIC_RELEASE);
}

static void set_gate(const uint64_t *watch, uint64_t expected)
{
    set_words(&gate_watch, &gate_expected, watch, expected);
}

void gate_shut(void)
{
    set_gate(&never, 1);
    set_words(&gate_quiet_watch, &gate_quiet_expected, &never, 1);
}

/* Opens the gate when no device of the slice has a cap, as of the generation read first, and no
 * launches are being counted. */
static void gate_refresh(void)
{
    const struct vgpu_limits_header *header = region_limits();
    uint64_t generation = limits_generation(header);
    for (uint32_t i = 0; i < region_device_count(); i++)
        if (cap_is_set(i)) {
            gate_shut();
            return;
        }
    set_words(&gate_quiet_watch, &gate_quiet_expected, &header->active_generation, generation);
    set_gate(&header->active_generation, generation);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (uncapped_is_sampling()) /* asked last: it may have begun meanwhile */
        gate_shut();
    else if (is_any_pending())
        set_gate(&never, 1); /* but the quiet one stays open */
}

bool gate_enter(struct launch *launch)
{
    switch (region_open()) {
    case REGION_NONE:
        set_gate(&always, always);
        return true;
    case REGION_MAPPED:
        break;
    default:
        return false;
    }
    int index = devices_of_stream(launch->stream);
    if (index < 0)
        return index == DEVICE_UNKNOWN;
    launch->device = (uint32_t)index;
    if (!cap_is_set(launch->device)) {
        gate_refresh();
        uncapped_before(launch);
    } else if (!capture_is_active(launch->stream) && region_claim()) {
        throttle_before(launch);
    }
    return true;
}
