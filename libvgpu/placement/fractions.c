/* See fractions.h. Scores add up in the order in which score.py does, so that both round alike. */
#include "fractions.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define CORE_UNITS 100
#define LEFT_STEPS ((__int128)1 << 40)
#define FAILED_SLOTS 1024 /* a power of two */

_Static_assert(FAILED_SLOTS > 2 * PLACEMENT_STEPS, "a free slot is soon found");

/* The GPUs of one node while containers are put on them. */
struct rooms {
    int32_t core[PLACEMENT_MOST_GPUS];
    int32_t memory[PLACEMENT_MOST_GPUS];
    int32_t containers[PLACEMENT_MOST_GPUS];
    int32_t taken[PLACEMENT_MOST_GPUS]; /* containers of this pod */
};

struct candidate {
    int64_t left_over; /* the less the better */
    int32_t index;
    int32_t place;
};

struct search {
    const struct placement_question *question;
    const struct placement_node *node;
    struct rooms rooms;
    int16_t places[PLACEMENT_MOST_ASKS];
    int16_t deepest;
    int16_t deepest_places[PLACEMENT_MOST_ASKS];
    int32_t steps;
    uint64_t failed[FAILED_SLOTS]; /* 0: none; see state_key */
};

static int32_t memory_of(const struct placement_ask *ask, const struct placement_gpu *gpu)
{
    if (ask->memory > 0)
        return ask->memory;
    int32_t units = (int32_t)((int64_t)gpu->memory_units * ask->core / CORE_UNITS);
    return units > 1 ? units : 1; /* implicit_units.default_memory */
}

static bool holds(const struct search *search, const struct placement_ask *ask, int32_t place)
{
    const struct placement_gpu *gpu = &search->node->gpus[place];
    bool is_lone = (ask->core == 0) != (ask->memory == 0);
    const uint8_t *wished = search->node->wished;
    return gpu->family == ask->family && !gpu->has_problem &&
           search->rooms.core[place] >= ask->core &&
           search->rooms.memory[place] >= memory_of(ask, gpu) &&
           search->rooms.containers[place] > 0 && (gpu->lone_halves || !is_lone) &&
           (wished == NULL || wished[place]);
}

/* placement.left, with its sign turned where the most left over is the best. */
static int64_t left_over(const struct search *search, const struct placement_ask *ask,
                         int32_t place)
{
    const struct placement_gpu *gpu = &search->node->gpus[place];
    int64_t core_left = search->rooms.core[place] - ask->core;
    int64_t memory_left = search->rooms.memory[place] - memory_of(ask, gpu);
    __int128 parts = (__int128)core_left * gpu->memory_units + (__int128)memory_left * CORE_UNITS;
    int64_t left = (int64_t)(parts * LEFT_STEPS / ((__int128)CORE_UNITS * gpu->memory_units));
    uint8_t policy = search->question->gpu_policy;
    bool is_spread =
        policy == PLACEMENT_AS_CONFIGURED ? gpu->is_spread : policy == PLACEMENT_SPREAD;
    return is_spread ? -left : left;
}

static bool is_before(const struct candidate *one, const struct candidate *other)
{
    if (one->left_over != other->left_over)
        return one->left_over < other->left_over;
    return one->index != other->index ? one->index < other->index : one->place < other->place;
}

/* Returns the best place of a container, -1 where it has none. */
static int32_t best_place(const struct search *search, const struct placement_ask *ask)
{
    struct candidate best = {.place = -1};
    for (int32_t place = 0; place < search->node->gpu_count; place++) {
        if (!holds(search, ask, place))
            continue;
        struct candidate found = {left_over(search, ask, place), search->node->gpus[place].index,
                                  place};
        if (best.place < 0 || is_before(&found, &best))
            best = found;
    }
    return best.place;
}

static void put(struct search *search, int32_t number, int32_t place)
{
    const struct placement_ask *ask = &search->question->asks[number];
    search->rooms.core[place] -= ask->core;
    search->rooms.memory[place] -= memory_of(ask, &search->node->gpus[place]);
    search->rooms.containers[place]--;
    search->rooms.taken[place]++;
    search->places[number] = (int16_t)place;
}

static void take_back(struct search *search, int32_t number, int32_t place)
{
    const struct placement_ask *ask = &search->question->asks[number];
    search->rooms.core[place] += ask->core;
    search->rooms.memory[place] += memory_of(ask, &search->node->gpus[place]);
    search->rooms.containers[place]++;
    search->rooms.taken[place]--;
}

static bool is_same_state(const struct search *search, int32_t one, int32_t other)
{
    const struct rooms *rooms = &search->rooms;
    const struct placement_gpu *a = &search->node->gpus[one], *b = &search->node->gpus[other];
    return rooms->core[one] == rooms->core[other] && rooms->memory[one] == rooms->memory[other] &&
           rooms->containers[one] == rooms->containers[other] &&
           a->memory_units == b->memory_units && a->memory_unit_bytes == b->memory_unit_bytes &&
           a->family == b->family && a->is_empty == b->is_empty && a->is_spread == b->is_spread &&
           (rooms->taken[one] > 0) == (rooms->taken[other] > 0);
}

static uint64_t mixed(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xd6e8feb86659fd93);
    return hash ^ hash >> 29;
}

/* Names all that matters for the containers from `number` on, whichever GPU is in which state. Two
 * states of one name would cost a place that there is, once in some 2^45 searches. */
static uint64_t state_key(const struct search *search, int32_t number)
{
    const struct rooms *rooms = &search->rooms;
    uint64_t sum = 0;
    for (int32_t place = 0; place < search->node->gpu_count; place++) {
        const struct placement_gpu *gpu = &search->node->gpus[place];
        uint64_t hash =
            mixed(1, (uint64_t)(uint32_t)rooms->core[place] << 32 | (uint32_t)rooms->memory[place]);
        hash = mixed(hash, (uint64_t)(uint32_t)rooms->containers[place] << 32 |
                               (uint32_t)gpu->memory_units);
        hash = mixed(hash, (uint64_t)gpu->memory_unit_bytes);
        hash = mixed(hash, (uint64_t)gpu->family << 8 | (uint64_t)gpu->is_empty << 2 |
                               (uint64_t)gpu->is_spread << 1 | (rooms->taken[place] > 0));
        sum += hash;
    }
    uint64_t key = mixed(sum, (uint64_t)number + 1);
    return key ? key : 1;
}

/* Returns the slot of a key, which is empty where it did not fail before. */
static uint64_t *slot_of(struct search *search, uint64_t key)
{
    uint64_t at = key % FAILED_SLOTS;
    while (search->failed[at] != 0 && search->failed[at] != key)
        at = (at + 1) % FAILED_SLOTS;
    return &search->failed[at];
}

/* Fills in the places of a container, the best first; returns how many there are. */
static int32_t candidates(const struct search *search, const struct placement_ask *ask,
                          struct candidate *found)
{
    int32_t count = 0;
    for (int32_t place = 0; place < search->node->gpu_count; place++) {
        if (!holds(search, ask, place))
            continue;
        struct candidate each = {left_over(search, ask, place), search->node->gpus[place].index,
                                 place};
        int32_t at = count++;
        for (; at > 0 && is_before(&each, &found[at - 1]); at--)
            found[at] = found[at - 1];
        found[at] = each;
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < count; i++) {
        bool is_new = true;
        for (int32_t j = 0; j < kept && is_new; j++)
            is_new = !is_same_state(search, found[i].place, found[j].place);
        if (is_new)
            found[kept++] = found[i];
    }
    return kept;
}

/* Puts the container of that number and those after it; `search->steps` is above PLACEMENT_STEPS
 * where that took too long. */
static bool put_from(struct search *search, int32_t number)
{
    if (number == search->question->ask_count)
        return true;
    uint64_t *slot = slot_of(search, state_key(search, number));
    if (*slot != 0)
        return false;
    struct candidate found[PLACEMENT_MOST_GPUS];
    int32_t count = candidates(search, &search->question->asks[number], found);
    for (int32_t i = 0; i < count; i++) {
        if (++search->steps > PLACEMENT_STEPS)
            return false;
        put(search, number, found[i].place);
        if (put_from(search, number + 1))
            return true;
        if (search->steps > PLACEMENT_STEPS)
            return false;
        take_back(search, number, found[i].place);
    }
    if (count == 0 && number > search->deepest) {
        search->deepest = (int16_t)number;
        memcpy(search->deepest_places, search->places, sizeof(search->places));
    }
    uint64_t key = state_key(search, number);
    *slot_of(search, key) = key;
    return false;
}

static void begin(struct search *search)
{
    for (int32_t place = 0; place < search->node->gpu_count; place++) {
        const struct placement_gpu *gpu = &search->node->gpus[place];
        search->rooms.core[place] = gpu->core;
        search->rooms.memory[place] = gpu->memory;
        search->rooms.containers[place] = gpu->containers;
        search->rooms.taken[place] = 0;
    }
}

/* plans.part_left */
static double part_left(int32_t core, int32_t memory, int32_t memory_units)
{
    return ((double)core / CORE_UNITS + (double)memory / memory_units) / 2;
}

static int8_t spread_score(const struct search *search)
{
    const struct placement_gpu *gpus = search->node->gpus;
    double before = 0, took = 0;
    int32_t total = 0;
    for (int32_t place = 0; place < search->node->gpu_count; place++) {
        if (gpus[place].has_problem)
            continue;
        total++;
        before += part_left(gpus[place].core, gpus[place].memory, gpus[place].memory_units);
    }
    uint8_t counted[PLACEMENT_MOST_GPUS] = {0};
    for (int32_t number = 0; number < search->question->ask_count; number++) {
        int32_t place = search->places[number];
        if (counted[place])
            continue;
        counted[place] = 1;
        took +=
            part_left(gpus[place].core - search->rooms.core[place],
                      gpus[place].memory - search->rooms.memory[place], gpus[place].memory_units);
    }
    double score = nearbyint(PLACEMENT_BEST * (before - took) / total);
    return (int8_t)(score > 0 ? score : 0);
}

static int8_t binpack_score(const struct search *search)
{
    const struct placement_gpu *gpus = search->node->gpus;
    int32_t total = 0, empty_left = 0, used = 0;
    bool opens = false;
    double remains = 0;
    for (int32_t place = 0; place < search->node->gpu_count; place++) {
        bool is_taken = search->rooms.taken[place] > 0;
        if (is_taken) {
            used++;
            remains += part_left(search->rooms.core[place], search->rooms.memory[place],
                                 gpus[place].memory_units);
            opens = opens || gpus[place].is_empty;
        }
        if (gpus[place].has_problem && !is_taken)
            continue;
        total++;
        empty_left += gpus[place].is_empty && !is_taken;
    }
    if (opens)
        return (int8_t)(PLACEMENT_BEST_OPENING - PLACEMENT_BEST_OPENING * empty_left / total);
    return (int8_t)(PLACEMENT_BEST -
                    (int)((PLACEMENT_BEST - PLACEMENT_BEST_OPENING) * sqrt(remains / used)));
}

static bool is_for_whole_gpus(const struct placement_node *node, const struct placement_ask *ask)
{
    if (ask->core > 0)
        return ask->core > CORE_UNITS;
    int32_t most = 0;
    for (int32_t place = 0; place < node->gpu_count; place++)
        if (node->gpus[place].family == ask->family && node->gpus[place].memory_units > most)
            most = node->gpus[place].memory_units;
    return 0 < most && most < ask->memory;
}

static bool is_out_of_bounds(const struct placement_question *question,
                             const struct placement_node *node)
{
    if (question->ask_count > PLACEMENT_MOST_ASKS || node->gpu_count > PLACEMENT_MOST_GPUS)
        return true;
    for (int32_t number = 0; number < question->ask_count; number++)
        if (is_for_whole_gpus(node, &question->asks[number]))
            return true;
    return false;
}

/* Puts each container where it is best, as agents do it; returns whether all have a place. */
static bool put_as_agents_do(struct search *search)
{
    for (int32_t number = 0; number < search->question->ask_count; number++) {
        int32_t place = best_place(search, &search->question->asks[number]);
        if (place < 0)
            return false;
        put(search, number, place);
    }
    return true;
}

static void found_no_place(const struct search *search, struct placement_answer *answer)
{
    answer->finding = search->steps > PLACEMENT_STEPS ? PLACEMENT_GAVE_UP : PLACEMENT_NOWHERE;
    answer->number = search->deepest;
    memcpy(answer->places, search->deepest_places, sizeof(answer->places));
}

static void judge(struct search *search, struct placement_answer *answer)
{
    const struct placement_question *question = search->question;
    if (is_out_of_bounds(question, search->node)) {
        answer->finding = PLACEMENT_NOT_HERE;
        return;
    }
    begin(search);
    if (!put_as_agents_do(search)) {
        begin(search);
        for (int32_t number = 0; number < question->ask_count; number++) {
            if (best_place(search, &question->asks[number]) < 0) {
                answer->finding = PLACEMENT_ALONE;
                answer->number = (int16_t)number;
                return;
            }
        }
        search->steps = 0;
        search->deepest = -1;
        memset(search->failed, 0, sizeof(search->failed));
        if (!put_from(search, 0)) {
            found_no_place(search, answer);
            return;
        }
    }
    answer->finding = PLACEMENT_FITS;
    answer->score = question->spread_node ? spread_score(search) : binpack_score(search);
    memcpy(answer->places, search->places, sizeof(answer->places));
}

void placement_judge(const struct placement_question *question, const struct placement_node *nodes,
                     int32_t count, struct placement_answer *answers)
{
    struct search search = {.question = question};
    for (int32_t i = 0; i < count; i++) {
        search.node = &nodes[i];
        judge(&search, &answers[i]);
    }
}
