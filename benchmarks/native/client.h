/* What the client programs of figures share: a call that must succeed, the clock, and a kernel that
 * takes the GPU as long as its argument says. */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

#define SECOND_NS 1000000000ull

/* Ends the program with status 1, naming the call, where the driver does not answer success. */
#define MUST(call) \
    do { \
        int result_ = (call); \
        if (result_ != CUDA_SUCCESS) { \
            fprintf(stderr, "%s answered %d\n", #call, result_); \
            exit(1); \
        } \
    } while (0)

#define CLIENT_PTX_BEGIN ".version 7.0\n.target sm_50\n.address_size 64\n"

/* A kernel that takes the GPU as long as it is told, from its parameters on; its name stands in
 * front. A simulated GPU knows it by that name, which ends in spin_ns, and takes `duration_ns`. On
 * a real one the first warp of each of the first `busy_blocks` blocks does so many rounds, while the
 * other warps wait for it: a fixed work, which goes no further while another process has its turn,
 * and takes as long for all blocks that fit at once as for one. Where `rounds` is 0, it watches a
 * clock instead, which does go on. Other blocks end at once. (A round leaves no state that is not 0
 * at 0; no compiler knows that, so none leaves the rounds out.) */
#define CLIENT_PTX_SPIN_BODY \
    "(.param .u64 duration_ns, .param .u64 rounds, .param .u32 busy_blocks)\n" \
    "{\n" \
    "    .reg .pred %p;\n" \
    "    .reg .u32 %block, %busy, %thread, %state, %shifted;\n" \
    "    .reg .u64 %begin, %now, %wanted, %left;\n" \
    "    mov.u32 %block, %ctaid.x;\n" \
    "    ld.param.u32 %busy, [busy_blocks];\n" \
    "    setp.ge.u32 %p, %block, %busy;\n" \
    "    @%p ret;\n" \
    "    mov.u32 %thread, %tid.x;\n" \
    "    setp.ge.u32 %p, %thread, 32;\n" \
    "    @%p bra done;\n" \
    "    ld.param.u64 %left, [rounds];\n" \
    "    setp.eq.u64 %p, %left, 0;\n" \
    "    @%p bra watch;\n" \
    "    cvt.u32.u64 %state, %left;\n" \
    "    or.b32 %state, %state, 1;\n" \
    "round:\n" \
    "    shl.b32 %shifted, %state, 13;\n" \
    "    xor.b32 %state, %state, %shifted;\n" \
    "    shr.u32 %shifted, %state, 17;\n" \
    "    xor.b32 %state, %state, %shifted;\n" \
    "    shl.b32 %shifted, %state, 5;\n" \
    "    xor.b32 %state, %state, %shifted;\n" \
    "    sub.u64 %left, %left, 1;\n" \
    "    setp.ne.u64 %p, %left, 0;\n" \
    "    @%p bra round;\n" \
    "    setp.ne.u32 %p, %state, 0;\n" \
    "    @%p bra done;\n" \
    "    trap;\n" \
    "watch:\n" \
    "    ld.param.u64 %wanted, [duration_ns];\n" \
    "    mov.u64 %begin, %globaltimer;\n" \
    "again:\n" \
    "    mov.u64 %now, %globaltimer;\n" \
    "    sub.u64 %now, %now, %begin;\n" \
    "    setp.lt.u64 %p, %now, %wanted;\n" \
    "    @%p bra again;\n" \
    "done:\n" \
    "    bar.sync 0;\n" \
    "    ret;\n" \
    "}\n"
#define CLIENT_PTX_SPIN ".visible .entry spin_ns" CLIENT_PTX_SPIN_BODY

/* What that kernel is launched with. */
struct client_spin {
    uint64_t duration_ns, rounds;
    uint32_t busy_blocks;
};
#define CLIENT_SPIN_PARAMS(spin) {&(spin).duration_ns, &(spin).rounds, &(spin).busy_blocks}

/* `rounds_per_ms`: what a block of this GPU does, as spin_rate_client.c tells; 0: it is not known,
 * and kernels watch the clock. `waves`: so many blocks come after each other, each with its part. */
static inline struct client_spin client_spin(uint64_t duration_ns, uint64_t rounds_per_ms,
                                             uint32_t busy_blocks, uint32_t waves)
{
    struct client_spin spin = {.duration_ns = duration_ns, .busy_blocks = busy_blocks};
    double rounds = (double)duration_ns * (double)rounds_per_ms / 1e6 / waves;
    if (rounds_per_ms != 0)
        spin.rounds = rounds < 1 ? 1 : (uint64_t)(rounds + 0.5);
    return spin;
}

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Reads one line of at most 15 characters, its end left out; false at the end of stdin. By read(): what
 * waits inside of stdio has the machine's time also where a program has a time of its own. */
struct client_line {
    char text[16];
};

static inline bool client_read_line(struct client_line *line)
{
    for (size_t at = 0; read(STDIN_FILENO, &line->text[at], 1) == 1; at++) {
        bool is_end = line->text[at] == '\n' || at == sizeof line->text - 1;
        if (is_end) {
            line->text[at] = '\0';
            return true;
        }
    }
    return false;
}

/* Says that it is ready, and waits to be told to go; false where nobody does. */
static inline bool client_may_go(void)
{
    struct client_line line;
    printf("ready\n");
    fflush(stdout);
    return client_read_line(&line) && strcmp(line.text, "go") == 0;
}

/* Makes the first GPU's primary context current and loads code into it. */
static inline CUmodule client_load(const char *ptx)
{
    CUcontext context;
    CUmodule module;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    return module;
}

#endif
