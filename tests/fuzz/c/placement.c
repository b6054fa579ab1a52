/* The search for places over inventories that nodes publish: an answer that says "fits" does fit,
 * and every other one is within its bounds. */
#include "input.h"

#include "fractions.h"

#define NODES 2
#define GPUS 6

static struct placement_gpu gpu_of(struct input *input, int32_t index)
{
    uint64_t how = take(input, 1);
    bool is_sane = how & 1; /* as most nodes are; else as published.py and node_view.py let them */
    struct placement_gpu gpu = {
        .memory_unit_bytes = is_sane ? 1 << 30 : (int64_t)(take_odd(input) & ((1ull << 60) - 1)),
        .core = (int32_t)take(input, 1) % 101,
        .memory_units = is_sane ? 80 : (int32_t)(take_odd(input) & INT32_MAX),
        .containers = how & 2 ? INT32_MAX : (int32_t)take_odd(input) & INT32_MAX,
        .index = index,
        .family = how & 4 ? 2 : 1,
        .is_empty = how & 8 ? 1 : 0,
        .lone_halves = how & 16 ? 1 : 0,
        .is_spread = how & 32 ? 1 : 0,
        .has_problem = (how & 0xc0) == 0xc0,
    };
    gpu.memory_units += gpu.memory_units == 0;
    gpu.memory = (int32_t)(take_odd(input) % ((uint64_t)gpu.memory_units + 1));
    return gpu;
}

static struct placement_question question_of(struct input *input)
{
    uint64_t how = take(input, 1);
    struct placement_question question = {
        .ask_count = (int32_t)(how % (PLACEMENT_MOST_ASKS + 2)),
        .gpu_policy = (uint8_t)(how / 32 % 3),
        .spread_node = how >> 7 & 1,
    };
    if (question.ask_count == 0)
        question.ask_count = 1;
    for (int32_t i = 0; i < question.ask_count && i < PLACEMENT_MOST_ASKS; i++) {
        uint64_t kind = take(input, 1);
        struct placement_ask *ask = &question.asks[i];
        ask->core = kind & 1 ? (int32_t)take(input, 1) % 102 : 0;
        ask->memory = kind & 2 || !ask->core ? 1 + (int32_t)(take(input, 1) % 90) : 0;
        if ((kind & 12) == 12)
            ask->memory = (int32_t)(take_odd(input) & INT32_MAX);
        if (ask->memory == 0 && ask->core == 0)
            ask->memory = 1;
        ask->family = kind & 16 ? 2 : 1;
    }
    return question;
}

static void check(const struct placement_question *question, const struct placement_node *node,
                  const struct placement_answer *answer)
{
    int64_t core[GPUS] = {0}, memory[GPUS] = {0}, containers[GPUS] = {0};
    HOLDS(answer->finding >= PLACEMENT_FITS && answer->finding <= PLACEMENT_NOT_HERE);
    HOLDS(answer->number >= -1 && answer->number < PLACEMENT_MOST_ASKS);
    if (answer->finding != PLACEMENT_FITS)
        return;
    HOLDS(answer->score >= 0 && answer->score <= PLACEMENT_BEST);
    for (int32_t i = 0; i < question->ask_count; i++) {
        int32_t at = answer->places[i];
        HOLDS(at >= 0 && at < node->gpu_count && !node->gpus[at].has_problem);
        HOLDS(node->wished == NULL || node->wished[at]);
        core[at] += question->asks[i].core;
        memory[at] += question->asks[i].memory;
        HOLDS(core[at] <= node->gpus[at].core && memory[at] <= node->gpus[at].memory);
        HOLDS(++containers[at] <= node->gpus[at].containers);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, data + size};
    struct placement_gpu gpus[NODES][GPUS];
    uint8_t wished[GPUS];
    struct placement_node nodes[NODES];
    struct placement_answer answers[NODES] = {0};
    struct placement_question question = question_of(&input);
    for (int32_t i = 0; i < NODES; i++) {
        uint64_t how = take(&input, 1);
        nodes[i] = (struct placement_node){gpus[i], how & 128 ? wished : NULL, how % (GPUS + 1)};
        for (int32_t at = 0; at < nodes[i].gpu_count; at++) {
            gpus[i][at] = gpu_of(&input, at);
            wished[at] = how >> (at % 6) & 1;
        }
        if (how == 255) /* more than it looks at */
            nodes[i].gpu_count = PLACEMENT_MOST_GPUS + 1;
        placement_judge(&question, &nodes[i], 1, &answers[i]);
        check(&question, &nodes[i], &answers[i]);
    }
    return 0;
}
