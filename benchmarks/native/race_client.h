/* What the files of the racing client share, and the board that all its processes map. The board's
 * layout is read by benchmarks/race.py. */
#ifndef VGPU_RACE_CLIENT_H
#define VGPU_RACE_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "vgpu/cuda_api.h"
#include "vgpu/cuda_array.h"
#include "vgpu/cuda_calls.h"
#include "vgpu/cuda_graph.h"
#include "vgpu/cuda_vmm.h"

#define RACE_SEATS 128
#define RACE_PIECES 12

struct race_seat {
    _Atomic uint64_t steps;
    _Atomic uint64_t granted;
    _Atomic uint64_t refused;
    _Atomic uint64_t slowest_ns; /* of one step */
    _Atomic uint32_t stands;     /* still in that pause, keeping nothing idle */
    _Atomic uint32_t handle_number;
    CUipcMemHandle handle; /* of memory of this process */
    uint8_t reserved[24];
};
_Static_assert(sizeof(struct race_seat) == 128, "the board is read by Python");

struct race_board {
    _Atomic uint32_t pause; /* its number; 0: none */
    _Atomic uint32_t stop;
    uint8_t reserved[120];
    struct race_seat seats[RACE_SEATS];
};

enum race_kind {
    RACE_NOTHING,
    RACE_PLAIN,
    RACE_PITCH,
    RACE_MANAGED,
    RACE_ASYNC,
    RACE_FROM_POOL,
    RACE_MAPPED, /* physical memory, released while it is mapped */
    RACE_ARRAY,
    RACE_ARRAY_3D,
    RACE_MIPMAP,
    RACE_GRAPH,    /* memory that a graph leaves allocated */
    RACE_EXPORTED, /* its handle stands on the board */
    RACE_IMPORTED,
    RACE_HEAP,    /* a larger malloc heap */
    RACE_CONTEXT, /* a second one with memory of its own */
    RACE_KINDS
};

struct race_piece {
    enum race_kind kind;
    CUdeviceptr address;
    size_t bytes;
    void *object;
};

struct race {
    unsigned int seed;
    unsigned int index;
    CUcontext context;
    CUstream stream;
    CUmemoryPool pool;
    struct race_piece pieces[RACE_PIECES];
};

static inline unsigned int race_below(struct race *race, unsigned int limit)
{
    return (unsigned int)rand_r(&race->seed) % limit;
}

/* Puts a handle onto the board; copies that of another seat, if it has one. */
void race_publish(const CUipcMemHandle *handle);
bool race_look_at(unsigned int other, CUipcMemHandle *handle);

/* Counts an answer; true when it was granted. Ends the process at any but a refusal. */
bool race_allowed(int result, const char *call);
#define GRANTED(call) race_allowed((int)(call), #call)
#define MUST(call) \
    do { \
        int result_ = (int)(call); \
        if (result_ != CUDA_SUCCESS) { \
            fprintf(stderr, "race_client: %s answered %d\n", #call, result_); \
            exit(1); \
        } \
    } while (0)

/* race_kinds.c */
bool race_begin(struct race *race);
void race_take(struct race *race, struct race_piece *piece);
void race_give(struct race *race, struct race_piece *piece);
void race_give_all(struct race *race);
void race_trim(struct race *race);

#endif
