/* Submitting work and waiting for it. A launch is a few stores under the process's own mutex; only
 * a full queue, a question or a wait looks at the shared state. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "machine.h"
#include "spread.h"
#include "state.h"
#include "timeline.h"

/* A wait sleeps until this long before the predicted end and spins the rest: a sleeper is up to
 * 75 us late with the default timer slack. Shorter waits only spin. */
#define SPIN_NS 100000ull
#define SHORTEST_SLEEP_NS 100000ull
/* Somebody else's arrival or death changes a prediction: look again at least this often. */
#define LONGEST_SLEEP_NS 20000000ull
/* A full queue of short operations is waited for in portions worth sleeping for. */
#define FULL_QUEUE_PORTION 256
#define FULL_QUEUE_WAIT_NS 300000ull
#define WHOLE_PERCENT 100
/* Keeps products with percentages and lanes inside 64 bits: eleven hours. */
#define LONGEST_OPERATION_NS 40000000000000ull

static uint64_t predict_locked(struct sim_device *device, uint64_t place)
{
    /* Another process may publish meanwhile, but nobody writes the active buffer; a prediction
     * from a state that has just been replaced is a prediction all the same. */
    uint32_t own = 2 * device->machine->slot;
    uint64_t active = __atomic_load_n(&device->header->active, __ATOMIC_ACQUIRE);
    uint32_t buffer = active & 0xffff;
    if (buffer / 2 != own / 2)
        return device->settled_ns; /* overtaken: look again */
    sim_state_copy(device->scratch, sim_layout_state(device->header, buffer));
    struct sim_timeline timeline = {
        .state = device->scratch, .device = device->header, .workers = device->workers};
    return sim_timeline_predict(&timeline, device->machine->slot, place);
}

/* Sleeps until then, or until a gate is let go that was not when `releases` was read. */
static void sleep_until(struct sim_device *device, uint32_t releases, uint64_t wake_ns)
{
    struct timespec wake = {.tv_sec = (time_t)(wake_ns / 1000000000u),
                            .tv_nsec = (long)(wake_ns % 1000000000u)};
    syscall(SYS_futex, &device->releases, FUTEX_WAIT_BITSET_PRIVATE, releases, &wake, NULL,
            FUTEX_BITSET_MATCH_ANY); /* an early return is fine */
}

static void pause_until(struct sim_device *device, uint32_t releases, uint64_t end_ns)
{
    uint64_t now_ns = sim_now_ns();
    uint64_t spun_ns = SIM_SPUN_NS(SPIN_NS);
    if (end_ns > now_ns + spun_ns + SIM_SPUN_NS(SHORTEST_SLEEP_NS)) {
        uint64_t wake_ns = end_ns - spun_ns;
        if (wake_ns > now_ns + LONGEST_SLEEP_NS) {
            sleep_until(device, releases, now_ns + LONGEST_SLEEP_NS);
            return;
        }
        sleep_until(device, releases, wake_ns);
    }
    for (int turn = 1; sim_now_ns() < end_ns; turn++) {
        if (__atomic_load_n(&device->releases, __ATOMIC_RELAXED) != releases)
            return;
        if (turn % 64 == 0)
            sched_yield(); /* many waiters on few cores: let the others look */
        else
            __builtin_ia32_pause();
    }
}

static bool known_done_locked(const struct sim_device *device, uint64_t place)
{
    return sim_device_failed(device) || sim_queue_known_done(device, place);
}

/* Looks once; returns 0 when done, else when it should be. */
static uint64_t look(struct sim_device *device, uint64_t place)
{
    uint64_t end_ns = 0;
    pthread_mutex_lock(&device->mutex);
    if (!known_done_locked(device, place))
        sim_device_transact_locked(device, NULL, NULL, false);
    if (!known_done_locked(device, place)) {
        end_ns = predict_locked(device, place);
        if (end_ns == 0)
            end_ns = 1;
    }
    pthread_mutex_unlock(&device->mutex);
    return end_ns;
}

static __thread uint64_t waited_until_ns;

uint64_t sim_queue_waited_until(void)
{
    return waited_until_ns;
}

void sim_queue_has_waited(void)
{
    waited_until_ns = sim_now_ns();
}

void sim_queue_wait(struct sim_device *device, uint64_t place)
{
    for (;;) {
        uint32_t releases = __atomic_load_n(&device->releases, __ATOMIC_ACQUIRE);
        uint64_t end_ns = look(device, place);
        if (end_ns == 0)
            return;
        pause_until(device, releases, end_ns);
        sim_queue_has_waited();
    }
}

bool sim_queue_query(struct sim_device *device, uint64_t place)
{
    pthread_mutex_lock(&device->mutex);
    if (!known_done_locked(device, place))
        sim_device_transact_locked(device, NULL, NULL, false);
    bool done = known_done_locked(device, place);
    pthread_mutex_unlock(&device->mutex);
    return done;
}

/* Waits until the operation at `place` is done, or, where that is soon, for some more of them. */
static void wait_for_room(struct sim_device *device, uint64_t place)
{
    uint32_t releases = __atomic_load_n(&device->releases, __ATOMIC_ACQUIRE);
    uint64_t end_ns = look(device, place);
    if (end_ns == 0)
        return;
    uint64_t soon_ns = sim_now_ns() + FULL_QUEUE_WAIT_NS;
    if (end_ns < soon_ns) {
        uint64_t portion_ns = look(device, place + FULL_QUEUE_PORTION - 1);
        end_ns = portion_ns && portion_ns < soon_ns ? portion_ns : soon_ns;
    }
    pause_until(device, releases, end_ns);
}

int sim_queue_open(struct sim_device *device, uint32_t lane)
{
    pthread_mutex_lock(&device->mutex);
    int error = sim_queue_open_locked(device, lane);
    pthread_mutex_unlock(&device->mutex);
    return error;
}

static __thread uint64_t not_before_ns;

void sim_queue_not_before(uint64_t at_ns)
{
    not_before_ns = at_ns;
}

/* Returns how much of a submission may pass while the operation ahead of it in the queue ends. */
static uint32_t overlap_of(const struct sim_queue *queue, uint32_t lane,
                           const struct sim_submission *submission)
{
    const struct sim_operation *ahead = &queue->operations[(queue->tail - 1) % SIM_QUEUE_DEPTH];
    if (!submission->overlap_ns || submission->behind != sim_place(lane, queue->tail - 1) ||
        ahead->kind != SIM_OPERATION_KERNEL)
        return 0;
    return (uint32_t)(ahead->cost_ns < submission->overlap_ns ? ahead->cost_ns
                                                              : submission->overlap_ns);
}

/* Sets the times of an operation of a known kind, the so many-th of its lane. */
static void set_times(const struct sim_device *device, struct sim_operation *operation,
                      uint64_t cost_ns, uint64_t number)
{
    const struct sim_calibration *calibration = &device->header->identity.profile.calibration;
    bool is_event = operation->kind == SIM_OPERATION_EVENT;
    uint64_t latency_ns = is_event ? calibration->event_latency_ns : calibration->latency_ns;
    if (operation->kind == SIM_OPERATION_KERNEL || operation->kind == SIM_OPERATION_MEMORY)
        cost_ns = sim_spread(calibration, SIM_SPREAD_KERNEL, cost_ns, number);
    operation->cost_ns = cost_ns;
    operation->latency_ns =
        (uint32_t)sim_spread(calibration, SIM_SPREAD_LATENCY, latency_ns, number);
}

uint64_t sim_queue_submit(struct sim_device *device, uint32_t lane,
                          const struct sim_submission *submission)
{
    struct sim_queue *queue = sim_layout_queue(device->header, device->machine->slot, lane);
    pthread_mutex_lock(&device->mutex);
    while (queue->tail - device->done[lane] >= SIM_QUEUE_DEPTH && !sim_device_failed(device)) {
        uint64_t first = sim_place(lane, queue->tail - SIM_QUEUE_DEPTH);
        pthread_mutex_unlock(&device->mutex);
        wait_for_room(device, first);
        pthread_mutex_lock(&device->mutex);
    }
    if (__builtin_expect(sim_device_failed(device), 0)) {
        if (submission->place)
            __atomic_store_n(submission->place, 0, __ATOMIC_RELEASE);
        if (submission->note)
            device->on_done(submission->note, 0, 0);
        pthread_mutex_unlock(&device->mutex);
        return 0;
    }
    uint64_t sequence = queue->tail;
    uint32_t index = sequence % SIM_QUEUE_DEPTH;
    struct sim_operation *operation = &queue->operations[index];
    uint64_t now_ns = sim_now_ns();
    operation->submitted_ns = now_ns > not_before_ns ? now_ns : not_before_ns;
    operation->kind = submission->kind;
    set_times(device, operation,
              submission->cost_ns < LONGEST_OPERATION_NS ? submission->cost_ns
                                                         : LONGEST_OPERATION_NS,
              sim_place(lane, sequence));
    operation->kernels = submission->kernels;
    operation->released_ns = 0;
    operation->after = submission->after;
    operation->priority = submission->priority;
    operation->parts = (uint16_t)submission->parts;
    operation->dram_percent = submission->kind == SIM_OPERATION_MEMORY
                                  ? WHOLE_PERCENT
                                  : (uint16_t)submission->dram_percent;
    operation->overlap_ns = overlap_of(queue, lane, submission);
    __atomic_store_n(&operation->stamp, (sequence / SIM_QUEUE_DEPTH & 0xff) << SIM_STAMP_TAG_SHIFT,
                     __ATOMIC_RELAXED);
    device->notes[lane * SIM_QUEUE_DEPTH + index] = submission->note;
    uint64_t place = sim_place(lane, sequence);
    if (submission->place)
        __atomic_store_n(submission->place, place, __ATOMIC_RELEASE);
    __atomic_store_n(&queue->tail, sequence + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&device->mutex);
    return place;
}

void sim_queue_release(struct sim_device *device, uint64_t place)
{
    struct sim_queue *queue =
        sim_layout_queue(device->header, device->machine->slot, sim_place_lane(place));
    struct sim_operation *gate = &queue->operations[sim_place_sequence(place) % SIM_QUEUE_DEPTH];
    __atomic_store_n(&gate->released_ns, sim_now_ns(), __ATOMIC_RELEASE);
    __atomic_add_fetch(&device->releases, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &device->releases, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
