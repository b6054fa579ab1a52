/* Where the containers of a pod that ask for fractions of GPUs go on each of many nodes.
 *
 * The same search as deviceplugin/scheduler/search/node_search.py makes, for the pods that most pods
 * are: every container asks for a fraction of one GPU, and no plain init container passes units on.
 * Containers are put in their order, each where its node's agent would: where the least is left
 * over, or with spread the most (deviceplugin/policy/pairing/placement.py). Where that ends without
 * a place, the next best is tried; of GPUs in the same state one, and no state twice. It gives up
 * after PLACEMENT_STEPS.
 * Both answer alike, step by step, and a property test holds them together. Python takes the number
 * of steps and the scores from this file.
 *
 * Nothing here is shared: any number of threads may ask at one time. */
#ifndef VGPU_PLACEMENT_FRACTIONS_H
#define VGPU_PLACEMENT_FRACTIONS_H

#include <stdint.h>

#define PLACEMENT_MOST_GPUS 128
#define PLACEMENT_MOST_ASKS 16
#define PLACEMENT_STEPS 500
/* The score of the best node, and of the best one where an empty GPU is opened. */
#define PLACEMENT_BEST 10
#define PLACEMENT_BEST_OPENING 3

/* What is free of one GPU. */
struct placement_gpu {
    int64_t memory_unit_bytes;
    int32_t core; /* units, of 100 */
    int32_t memory;
    int32_t memory_units; /* in all */
    int32_t containers;   /* how many more it serves */
    int32_t index;
    uint8_t family;
    uint8_t is_empty;
    uint8_t lone_halves; /* a container may ask for core or memory alone */
    uint8_t is_spread;   /* its own policy */
    uint8_t has_problem; /* nothing of it is given now */
    uint8_t unused[7];
};

struct placement_node {
    const struct placement_gpu *gpus;
    const uint8_t *wished; /* by GPU: the pod may have it; NULL: all of them */
    int32_t gpu_count;
};

/* What one container asks for; one of the amounts may be 0. */
struct placement_ask {
    int32_t core;
    int32_t memory;
    uint8_t family;
};

enum placement_gpu_policy {
    PLACEMENT_AS_CONFIGURED,
    PLACEMENT_BINPACK,
    PLACEMENT_SPREAD,
};

struct placement_question {
    struct placement_ask asks[PLACEMENT_MOST_ASKS];
    int32_t ask_count;
    uint8_t gpu_policy;  /* enum placement_gpu_policy */
    uint8_t spread_node; /* the node with most left is the best; else the fullest */
};

enum placement_finding {
    PLACEMENT_FITS,    /* score and places are set */
    PLACEMENT_ALONE,   /* container `number` has no place even alone */
    PLACEMENT_NOWHERE, /* those before `number` were put at `places`, and it has no place then */
    PLACEMENT_GAVE_UP, /* likewise, but not all was tried; `number` is -1 where all had a place */
    PLACEMENT_NOT_HERE /* a question for the whole search: several whole GPUs, or too many */
};

struct placement_answer {
    int8_t finding; /* enum placement_finding */
    int8_t score;   /* 0 to 10 */
    int16_t number;
    int16_t places[PLACEMENT_MOST_ASKS];
};

/* Answers a question for each of `count` nodes. */
void placement_judge(const struct placement_question *question, const struct placement_node *nodes,
                     int32_t count, struct placement_answer *answers);

#endif
