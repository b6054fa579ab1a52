#include "compute/turns/window.h"

#include "slice/limits_file.h"
#include "slice/region.h"
#include "slice/waiting.h"

#define MOST_READS 16

static uint64_t silent_number[VGPU_MAX_DEVICES]; /* atomic: of the grant nobody stands behind */
static uint64_t rang_ns[VGPU_MAX_DEVICES];       /* atomic: when this process last rang */

static const struct vgpu_grant *grant_of(uint32_t device)
{
    const struct vgpu_limits_header *header = region_limits();
    return (const void *)((const char *)header + header->grant_offset +
                          (uint64_t)device * header->grant_stride);
}

const uint64_t *window_number_word(uint32_t device)
{
    return &grant_of(device)->number;
}

bool window_is_arbitrated(uint32_t device)
{
    return __atomic_load_n(&grant_of(device)->mode, __ATOMIC_RELAXED) != VGPU_GRANT_NONE;
}

/* False while it is being changed: then only single fields are good, and it is no one's turn. */
static bool read_grant(uint32_t device, struct vgpu_grant *copy)
{
    const struct vgpu_grant *grant = grant_of(device);
    for (int i = 0; i < MOST_READS; i++) {
        copy->number = __atomic_load_n(&grant->number, __ATOMIC_ACQUIRE);
        copy->start_ns = __atomic_load_n(&grant->start_ns, __ATOMIC_RELAXED);
        copy->end_ns = __atomic_load_n(&grant->end_ns, __ATOMIC_RELAXED);
        copy->beat_ns = __atomic_load_n(&grant->beat_ns, __ATOMIC_RELAXED);
        copy->mode = __atomic_load_n(&grant->mode, __ATOMIC_RELAXED);
        copy->window = __atomic_load_n(&grant->window, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (copy->number % 2 == 0 &&
            copy->number == __atomic_load_n(&grant->number, __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

struct window window_at(uint32_t device, int64_t now_ns)
{
    struct vgpu_grant grant;
    struct window window = {.state = WINDOW_NONE};
    bool is_whole = read_grant(device, &grant);
    if (grant.mode == VGPU_GRANT_NONE)
        return window;
    window.number = grant.number;
    window.id = grant.window;
    window.start_ns = (int64_t)grant.start_ns;
    window.end_ns = (int64_t)grant.end_ns;
    if (grant.number == __atomic_load_n(&silent_number[device], __ATOMIC_RELAXED) ||
        (grant.mode >= VGPU_GRANT_WINDOWS && now_ns - (int64_t)grant.beat_ns > WINDOW_BEAT_NS))
        window.state = WINDOW_LOST;
    else if (grant.mode == VGPU_GRANT_FREE)
        window.state = WINDOW_FREE;
    else if (grant.mode == VGPU_GRANT_SHARED)
        window.state = WINDOW_SHARED;
    else
        window.state =
            is_whole && now_ns >= window.start_ns - WINDOW_EARLY_NS && now_ns < window.end_ns
                ? WINDOW_OPEN
                : WINDOW_CLOSED;
    return window;
}

static void ring(uint32_t device, const struct window *window, int64_t now_ns)
{
    __atomic_store_n(&rang_ns[device], (uint64_t)now_ns, __ATOMIC_RELAXED);
    if (!region_ring(device))
        __atomic_store_n(&silent_number[device], window->number, __ATOMIC_RELAXED);
}

void window_want(uint32_t device, const struct window *window, int64_t now_ns, bool is_waiting)
{
    struct vgpu_usage_device *shared = region_shared(device);
    int64_t since_ns = now_ns - (int64_t)__atomic_load_n(&shared->demand_ns, __ATOMIC_RELAXED);
    int64_t ring_ns = now_ns - (int64_t)__atomic_load_n(&rang_ns[device], __ATOMIC_RELAXED);
    if (window->state == WINDOW_NONE)
        return;
    if (since_ns != 0)
        __atomic_store_n(&shared->demand_ns, (uint64_t)now_ns, __ATOMIC_RELEASE);
    bool is_due = ring_ns >= (is_waiting ? WINDOW_RING_NS : WINDOW_ASK_NS);
    if (since_ns > WINDOW_PAUSE_NS || since_ns < 0 || is_due)
        ring(device, window, now_ns);
}

void window_yield(uint32_t device, const struct window *window, bool wants_another)
{
    struct vgpu_usage_device *shared = region_shared(device);
    if (!wants_another) /* first: the arbiter must not wait for what is wanted next */
        __atomic_store_n(&shared->demand_ns, 0, __ATOMIC_RELEASE);
    if (__atomic_exchange_n(&shared->yielded_window, window->id, __ATOMIC_RELEASE) != window->id)
        ring(device, window, waiting_now_ns());
}

void window_wait(uint32_t device, const struct window *window, int64_t now_ns)
{
    const uint32_t *word = (const uint32_t *)&grant_of(device)->number;
    uint32_t number = (uint32_t)window->number;
    int64_t until_ns = now_ns + WINDOW_RING_NS;
    bool is_coming = window->end_ns > now_ns && window->start_ns > now_ns;
    if (is_coming && window->start_ns - WINDOW_SPIN_NS < until_ns)
        until_ns = window->start_ns - WINDOW_SPIN_NS;
    if (until_ns > now_ns) {
        waiting_on_word(word, number, until_ns);
        return;
    }
    while (waiting_now_ns() < window->start_ns - WINDOW_EARLY_NS &&
           __atomic_load_n(word, __ATOMIC_RELAXED) == number)
        __builtin_ia32_pause();
}

bool window_fits(uint32_t device, const struct window *window, int64_t gpu_ns, int64_t now_ns)
{
    const struct vgpu_usage_device *shared = region_shared(device);
    int64_t busy_ns = (int64_t)__atomic_load_n(&shared->busy_until_ns, __ATOMIC_RELAXED);
    if (__atomic_load_n(&shared->launched_window, __ATOMIC_RELAXED) != window->id)
        return true;
    return (busy_ns > now_ns ? busy_ns : now_ns) + gpu_ns / 2 <= window->end_ns;
}

void window_use(uint32_t device, const struct window *window)
{
    struct vgpu_usage_device *shared = region_shared(device);
    if (__atomic_load_n(&shared->launched_window, __ATOMIC_RELAXED) != window->id)
        __atomic_store_n(&shared->launched_window, window->id, __ATOMIC_RELAXED);
}
