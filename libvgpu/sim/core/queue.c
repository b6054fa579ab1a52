/* Submitting work and waiting for it. A launch is a few stores under the process's own mutex; only
 * a full queue, a question or a wait looks at the shared state. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "machine.h"
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
/* Keeps products with percentages inside 64 bits. */
#define LONGEST_OPERATION_NS 100000000000000ull

static uint64_t predict_locked(struct sim_device *device, uint64_t sequence)
{
    /* Another process may publish meanwhile, but nobody writes the active buffer; a prediction
     * from a state that has just been replaced is a prediction all the same. */
    uint32_t own = 2 * device->machine->slot;
    uint64_t active = __atomic_load_n(&device->header->active, __ATOMIC_ACQUIRE);
    uint32_t buffer = active & 0xffff;
    if (buffer / 2 != own / 2)
        return device->settled_ns; /* overtaken: look again */
    const struct sim_state *state = sim_layout_state(device->header, buffer);
    memcpy(device->scratch, state,
           offsetof(struct sim_state, clients) + state->client_limit * sizeof(struct sim_client));
    struct sim_timeline timeline = {.state = device->scratch, .device = device->header};
    return sim_timeline_predict(&timeline, device->machine->slot, sequence);
}

static void sleep_until(uint64_t wake_ns)
{
    struct timespec wake = {.tv_sec = (time_t)(wake_ns / 1000000000u),
                            .tv_nsec = (long)(wake_ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL); /* an early return is fine */
}

static void pause_until(uint64_t end_ns)
{
    uint64_t now_ns = sim_now_ns();
    if (end_ns > now_ns + SPIN_NS + SHORTEST_SLEEP_NS) {
        uint64_t wake_ns = end_ns - SPIN_NS;
        if (wake_ns > now_ns + LONGEST_SLEEP_NS) {
            sleep_until(now_ns + LONGEST_SLEEP_NS);
            return;
        }
        sleep_until(wake_ns);
    }
    for (int turn = 1; sim_now_ns() < end_ns; turn++) {
        if (turn % 64 == 0)
            sched_yield(); /* many waiters on few cores: let the others look */
        else
            __builtin_ia32_pause();
    }
}

/* Looks once; returns 0 when done, else when it should be. */
static uint64_t look(struct sim_device *device, uint64_t sequence, uint64_t *done)
{
    uint64_t end_ns = 0;
    pthread_mutex_lock(&device->mutex);
    if (device->done <= sequence)
        sim_device_transact_locked(device, NULL, NULL, false);
    if (device->done <= sequence) {
        end_ns = predict_locked(device, sequence);
        if (end_ns == 0)
            end_ns = 1;
    }
    if (done)
        *done = device->done;
    pthread_mutex_unlock(&device->mutex);
    return end_ns;
}

void sim_queue_wait(struct sim_device *device, uint64_t sequence)
{
    uint64_t end_ns;
    while ((end_ns = look(device, sequence, NULL)) != 0)
        pause_until(end_ns);
}

bool sim_queue_query(struct sim_device *device, uint64_t sequence)
{
    pthread_mutex_lock(&device->mutex);
    if (device->done <= sequence)
        sim_device_transact_locked(device, NULL, NULL, false);
    bool done = device->done > sequence;
    pthread_mutex_unlock(&device->mutex);
    return done;
}

/* Waits until operation `first` is done, or, where that is soon, for some more of them. */
static void wait_for_room(struct sim_device *device, uint64_t first)
{
    uint64_t end_ns = look(device, first, NULL);
    if (end_ns == 0)
        return;
    uint64_t soon_ns = sim_now_ns() + FULL_QUEUE_WAIT_NS;
    if (end_ns < soon_ns) {
        uint64_t portion_ns = look(device, first + FULL_QUEUE_PORTION - 1, NULL);
        end_ns = portion_ns && portion_ns < soon_ns ? portion_ns : soon_ns;
    }
    pause_until(end_ns);
}

uint64_t sim_queue_submit(struct sim_device *device, const struct sim_submission *submission)
{
    struct sim_queue *queue = sim_layout_queue(device->header, device->machine->slot);
    pthread_mutex_lock(&device->mutex);
    while (queue->tail - device->done >= SIM_QUEUE_DEPTH) {
        uint64_t first = queue->tail - SIM_QUEUE_DEPTH;
        pthread_mutex_unlock(&device->mutex);
        wait_for_room(device, first);
        pthread_mutex_lock(&device->mutex);
    }
    uint64_t sequence = queue->tail;
    uint32_t place = sequence % SIM_QUEUE_DEPTH;
    struct sim_operation *operation = &queue->operations[place];
    operation->submitted_ns = sim_now_ns();
    operation->cost_ns =
        submission->cost_ns < LONGEST_OPERATION_NS ? submission->cost_ns : LONGEST_OPERATION_NS;
    operation->kind = submission->kind;
    operation->kernels = submission->kernels;
    __atomic_store_n(&operation->stamp, (sequence / SIM_QUEUE_DEPTH & 0xff) << SIM_STAMP_TAG_SHIFT,
                     __ATOMIC_RELAXED);
    device->notes[place] = submission->note;
    __atomic_store_n(&queue->tail, sequence + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&device->mutex);
    return sequence;
}
