#include "compute/cap/uncapped.h"

#include <pthread.h>
#include <string.h>

#include "compute/cap/gate.h"
#include "compute/measure/timing.h"
#include "compute/measure/utilisation.h"
#include "driver/capture.h"
#include "slice/locks.h"
#include "slice/region.h"
#include "slice/waiting.h"

#define MOST_PASSED_OVER 3 /* rounds before a sample, so that it does not always begin alike */
#define MOST_OWED_NS 1000000000
/* A launch that took longer let the GPU idle between its events. */
#define MOST_LAUNCHING_NS 50000

enum phase {
    RESTING,
    SAMPLING,
    DRAINING, /* the sample is over, and not all of its pairs are measured */
};

/* What is known of one device. */
struct sample {
    uint64_t launches; /* atomic */
    uint32_t pairs;    /* measured */
    int64_t pairs_ns;
    int64_t owed_ns; /* claimed by earlier samples, and not credited yet */
};

static struct {
    pthread_mutex_t lock;
    struct timing timing; /* the one kind in a batch is the device */
    enum phase phase;
    struct sample samples[VGPU_MAX_DEVICES];
    int64_t credited_ns; /* up to when time is accounted for; 0: there was no wait yet */
    int64_t began_ns;
    int64_t ended_ns;
    int64_t next_ns;  /* not before then is there another sample */
    uint32_t rounds;  /* of this sample */
    uint64_t waits;   /* rounds since the last sample */
    uint64_t weight;  /* rounds that this sample stands for, its own included */
    uint64_t pairing; /* number of the open pair */
    uint64_t passing; /* rounds still to pass over */
    uint64_t random;
} state;

/* Atomic; apart from the state, so that launches and waits read them without the lock. */
static bool is_wanted;      /* there was a launch without a cap */
static bool is_sampling;    /* launches are counted */
static uint64_t counted;    /* in this sample, on all devices */
static uint64_t stride = 1; /* one launch in so many gets a pair … */
static uint64_t offset;     /* … from this one back on */

void uncapped_after_fork(void)
{
    memset(&state, 0, sizeof state);
    is_sampling = false;
    is_wanted = false;
}

bool uncapped_is_sampling(void)
{
    return __atomic_load_n(&is_sampling, __ATOMIC_SEQ_CST);
}

static uint64_t any_below(uint64_t bound) /* xorshift */
{
    state.random ^= state.random << 13;
    state.random ^= state.random >> 7;
    state.random ^= state.random << 17;
    return state.random % bound;
}

void uncapped_before(struct launch *launch)
{
    if (!__atomic_load_n(&is_wanted, __ATOMIC_RELAXED))
        __atomic_store_n(&is_wanted, true, __ATOMIC_RELAXED);
    if (!uncapped_is_sampling() || capture_is_active(launch->stream) || !region_claim())
        return;
    uint64_t number = __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
    if (number >= UNCAPPED_MOST_LAUNCHES) {
        __atomic_store_n(&is_sampling, false, __ATOMIC_SEQ_CST);
        return;
    }
    __atomic_fetch_add(&state.samples[launch->device].launches, 1, __ATOMIC_RELAXED);
    number += __atomic_load_n(&offset, __ATOMIC_RELAXED);
    if (number % __atomic_load_n(&stride, __ATOMIC_RELAXED) != 0 ||
        !lock_try(&state.lock, LOCK_SAMPLES))
        return;
    if (state.phase == SAMPLING && timing_open(&state.timing, launch->stream, waiting_now_ns())) {
        batch_count(timing_open_batch(&state.timing), launch->device, 0, 1);
        launch->pairing = ++state.pairing;
    }
    lock_give_back(&state.lock);
}

void uncapped_after(const struct launch *launch)
{
    lock_take(&state.lock, LOCK_SAMPLES);
    const struct batch *open = timing_open_batch(&state.timing);
    if (open != NULL && state.pairing == launch->pairing) {
        int64_t now_ns = waiting_now_ns();
        if (now_ns > open->opened_ns + MOST_LAUNCHING_NS)
            timing_drop_open(&state.timing);
        else
            timing_close(&state.timing, now_ns);
    }
    lock_give_back(&state.lock);
}

/* The stride follows the launches of the last sample; the place of the first pair is random. */
static void begin_sample(int64_t now_ns)
{
    uint64_t last = __atomic_load_n(&counted, __ATOMIC_RELAXED);
    uint64_t next_stride = last < UNCAPPED_MOST_PAIRS ? 1 : last / UNCAPPED_MOST_PAIRS;
    for (uint32_t i = 0; i < region_device_count(); i++)
        state.samples[i] = (struct sample){.owed_ns = state.samples[i].owed_ns};
    state.began_ns = now_ns;
    state.rounds = 0;
    state.phase = SAMPLING;
    __atomic_store_n(&stride, next_stride, __ATOMIC_RELAXED);
    __atomic_store_n(&offset, any_below(next_stride), __ATOMIC_RELAXED);
    __atomic_store_n(&counted, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&is_sampling, true, __ATOMIC_SEQ_CST);
    gate_shut();
}

static void end_sample(int64_t now_ns)
{
    __atomic_store_n(&is_sampling, false, __ATOMIC_SEQ_CST);
    timing_drop_open(&state.timing); /* of a launch that is being made just now */
    state.phase = DRAINING;
    state.ended_ns = now_ns;
    state.weight = state.waits;
    state.waits = 0;
}

/* Adds what the sample says of all rounds that it stands for. */
static void credit(uint32_t device, double factor)
{
    struct sample *sample = &state.samples[device];
    struct vgpu_usage_slot_device *counters = region_counters(device);
    double launches = (double)sample->launches * factor;
    double each_ns = sample->pairs > 0 ? (double)sample->pairs_ns / sample->pairs : 0;
    int64_t claimed_ns = sample->owed_ns + (int64_t)(launches * each_ns);
    int64_t passed_ns = state.ended_ns - state.credited_ns;
    int64_t credited_ns = claimed_ns < passed_ns ? claimed_ns : passed_ns;
    int64_t owed_ns = claimed_ns - credited_ns;
    sample->owed_ns = owed_ns < MOST_OWED_NS ? owed_ns : MOST_OWED_NS;
    region_add(&counters->launches, (int64_t)(launches + 0.5));
    region_add(&counters->gpu_time_ns, credited_ns);
    __atomic_fetch_or(&counters->books, VGPU_BOOKS_ESTIMATED, __ATOMIC_RELAXED);
    utilisation_note(region_usage(), region_shared(device), device, (uint64_t)waiting_now_ns());
}

/* True when the sample is whole and told something of every device it had launches on. */
static bool is_telling(uint32_t *pairs)
{
    bool tells = __atomic_load_n(&counted, __ATOMIC_RELAXED) <= UNCAPPED_MOST_LAUNCHES;
    *pairs = 0;
    for (uint32_t i = 0; i < region_device_count(); i++) {
        const struct sample *sample = &state.samples[i];
        *pairs += sample->pairs;
        tells = tells && (sample->pairs > 0 || sample->launches == 0);
    }
    return tells;
}

/* Measures what has ended; once all has, the sample counts. */
static void drain(int64_t now_ns)
{
    struct batch batch;
    int64_t gpu_ns;
    uint32_t pairs;
    int outcome;
    while ((outcome = timing_harvest(&state.timing, &batch, &gpu_ns)) != 0) {
        struct sample *sample = &state.samples[batch.kinds[0].key];
        sample->pairs += outcome > 0;
        sample->pairs_ns += outcome > 0 ? gpu_ns : 0;
    }
    if (state.timing.count > 0)
        return;
    if (is_telling(&pairs)) {
        for (uint32_t i = 0; i < region_device_count(); i++)
            if (state.samples[i].pairs > 0 || state.samples[i].owed_ns > 0)
                credit(i, (double)state.weight / state.rounds);
        state.credited_ns = state.ended_ns;
    } else {
        state.waits += state.weight; /* the next one stands for these rounds, too */
    }
    state.phase = RESTING;
    state.next_ns = now_ns + UNCAPPED_PAIR_NS * (int64_t)(pairs > 0 ? pairs : 1);
    state.passing = any_below(MOST_PASSED_OVER + 1);
}

void uncapped_after_wait(void)
{
    if (!__atomic_load_n(&is_wanted, __ATOMIC_RELAXED) || !lock_try(&state.lock, LOCK_SAMPLES))
        return;
    int64_t now_ns = waiting_now_ns();
    if (state.credited_ns == 0) {
        state.credited_ns = now_ns;
        state.random = (uint64_t)now_ns | 1;
    } else {
        state.waits++;
    }
    if (state.phase == SAMPLING &&
        (++state.rounds == UNCAPPED_MOST_ROUNDS || now_ns >= state.began_ns + UNCAPPED_SAMPLE_NS))
        end_sample(now_ns);
    if (state.phase == DRAINING)
        drain(now_ns);
    else if (state.phase == RESTING && now_ns >= state.next_ns && state.passing-- == 0)
        begin_sample(now_ns);
    lock_give_back(&state.lock);
}

void uncapped_forget_context(CUcontext context)
{
    struct batch batch;
    if (!__atomic_load_n(&is_wanted, __ATOMIC_RELAXED))
        return;
    lock_take(&state.lock, LOCK_SAMPLES);
    while (timing_take_of_context(&state.timing, context, &batch))
        continue;
    timing_forget_context(&state.timing, context);
    lock_give_back(&state.lock);
}
