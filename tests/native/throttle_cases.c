/* Programs under a cap, over simulated time (throttle_model.h). Arguments: which one, its cap in
 * percent, and what it takes besides. Prints what happened in a second or more of its
 * steady state, as pairs of a name and a number. */
#include "throttle_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "slice/region.h"

#define WARM_UP_NS (500 * (int64_t)MS)
#define LONG 5 /* times as long: where it takes seconds until all is known */
#define STREAMS_OPEN 16

static int64_t numbers[4]; /* what is given besides */
static int64_t lengths = 1;
static int64_t begun_ns, before[8], rounds, longest_ns;

static void look(int64_t *seen)
{
    const struct vgpu_usage_slot_device *counters = region_counters(0);
    int64_t now[] = {
        model_records, model_launches[0], model_busy_ns[0], (int64_t)counters->gpu_time_ns,
        rounds,        model_sleeps,      model_prepaid};
    memcpy(seen, now, sizeof now);
}

/* True while a program goes on; notes where its steady state begins. */
static bool goes_on(void)
{
    if (begun_ns == 0 && model_now_ns() >= MODEL_START_NS + lengths * WARM_UP_NS) {
        begun_ns = model_now_ns();
        longest_ns = 0;
        look(before);
    }
    return model_now_ns() < MODEL_START_NS + 3 * lengths * WARM_UP_NS;
}

static void tell(void)
{
    static const char *const names[] = {"records", "launches", "busy_ns", "booked_ns",
                                        "rounds",  "sleeps",   "prepaid"};
    int64_t after[8];
    look(after);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s %lld\n", names[i], (long long)(after[i] - before[i]));
    printf("booked_in_all_ns %lld\nin_all_ns %lld\n", (long long)region_counters(0)->gpu_time_ns,
           (long long)(model_now_ns() - MODEL_START_NS));
    printf("passed_ns %lld\nlongest_ns %lld\n", (long long)(model_now_ns() - begun_ns),
           (long long)longest_ns);
}

/* A stream a launch: kernel time, whether it is waited for, how many streams are open at a time, and
 * kernel time from the warm-up's end on. */
static void stream_each(void *unused)
{
    CUstream open[STREAMS_OPEN] = {NULL};
    for (uint64_t i = 0; goes_on(); i++) {
        CUstream *stream = &open[i % (uint64_t)numbers[2]];
        if (*stream != NULL)
            model_end_stream(*stream);
        *stream = model_stream(0);
        model_launch(*stream, 0, numbers[begun_ns == 0 ? 0 : 3]);
        if (numbers[1])
            model_sync(*stream);
    }
    tell();
}

static void end_round(int64_t began_ns)
{
    int64_t took_ns = model_now_ns() - began_ns;
    longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
    rounds++;
}

/* A launch whose stream waits for a word that is written behind the next launch: kernel time, whether
 * both are of one kind, whether rounds are waited for. */
static void wait_for_next(void *unused)
{
    CUstream one = model_stream(0), other = model_stream(0);
    for (int64_t i = 1; goes_on(); i++) {
        int64_t began_ns = model_now_ns();
        model_wait_word(one, 0, i);
        model_launch(one, 0, numbers[0]);
        model_launch(other, numbers[1] ? 0 : 1, numbers[0]);
        model_write_word(other, 0, i);
        if (numbers[2]) {
            model_sync(one);
            model_sync(other);
        }
        end_round(began_ns);
    }
    tell();
}

/* Kernels that look at words until later launches have run: kernel time, whether all are of one kind, how
 * many at a time, whether the host writes the word behind the later launch itself. */
static void spin_for_next(void *unused)
{
    int64_t count = numbers[2];
    lengths = LONG;
    CUstream spinning[2] = {model_stream(0), model_stream(0)}, other = model_stream(0);
    for (int64_t i = 1; goes_on(); i++) {
        int64_t began_ns = model_now_ns();
        for (int64_t k = 0; k < count; k++)
            model_spin(spinning[k], 0, (int)k, i, US);
        for (int64_t k = 0; k < count; k++) {
            model_launch(other, numbers[1] ? 0 : 1, numbers[0]);
            if (numbers[3])
                model_host_writes((int)k, i);
            else
                model_write_word(other, (int)k, i);
        }
        for (int64_t k = 0; k < count; k++)
            model_sync(spinning[k]);
        model_sync(other);
        end_round(began_ns);
    }
    tell();
}

/* Launches in a row and a pause behind them: kernel time, how many, the pause; two kinds by turns. */
static void paced(void *unused)
{
    CUstream stream = model_stream(0);
    model_launch_ns = 4 * US;
    while (goes_on()) {
        for (int64_t i = 0; i < numbers[1]; i++)
            model_launch(stream, i % 2, numbers[0]);
        model_pause(numbers[2]);
        rounds++;
    }
    tell();
}

/* Back to back, while others use the GPU and it is enough for all: kernel time. A round is a burst. */
static void shared(void *unused)
{
    CUstream stream = model_stream(0);
    struct vgpu_grant grant = {.mode = VGPU_GRANT_SHARED, .beat_ns = 2 * MODEL_START_NS};
    model_grant(0, grant);
    while (goes_on()) {
        int64_t began_ns = model_now_ns();
        model_launch(stream, 0, numbers[0]);
        rounds += model_now_ns() - began_ns > 10 * model_launch_ns;
    }
    tell();
}

/* One of two processes, each with a GPU of its own: kernels, then a part of a collective, without a wait
 * or with one. Kernel time, how many, whether it is waited for, the other one's cap. */
static int64_t reached[MODEL_DEVICES], most_apart;

static void collective(void *of)
{
    uint32_t device = *(uint32_t *)of;
    CUstream stream = model_stream(device);
    while (device == 0 ? goes_on() : model_now_ns() < MODEL_START_NS + 3 * lengths * WARM_UP_NS) {
        for (int64_t i = 0; i < numbers[1]; i++)
            model_launch(stream, 0, numbers[0]);
        model_collective(stream, 1, 50 * US);
        if (numbers[2])
            model_sync(stream);
        reached[device]++;
        int64_t apart = reached[device] - reached[1 - device];
        most_apart = apart > most_apart ? apart : most_apart;
        rounds += device == 0;
    }
    if (device == 0) {
        tell();
        printf("apart %lld\n", (long long)most_apart);
        fflush(stdout);
        _Exit(0); /* the other one may wait for a part that does not come any more */
    }
}

static const struct {
    const char *name;
    void (*body)(void *);
} cases[] = {{"stream-each", stream_each},
             {"wait-for-next", wait_for_next},
             {"spin-for-next", spin_for_next},
             {"paced", paced},
             {"shared", shared}};

int main(int argc, char **argv)
{
    for (int i = 3; i < argc && i < 7; i++)
        numbers[i - 3] = atoll(argv[i]);
    static uint32_t devices[] = {0, 1};
    bool are_two = argc > 2 && strcmp(argv[1], "collectives") == 0;
    model_begin(are_two ? 2 : 1);
    model_cap(0, argc > 2 ? (uint32_t)atoi(argv[2]) : 0, VGPU_COMPUTE_STRICT);
    if (are_two) {
        model_cap(1, (uint32_t)numbers[3], VGPU_COMPUTE_STRICT);
        lengths = LONG;
        model_add(collective, &devices[0]);
        model_add(collective, &devices[1]);
        model_run();
        return 3;
    }
    for (size_t i = 0; argc > 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            model_add(cases[i].body, NULL);
            model_run();
            return 0;
        }
    return 2;
}
