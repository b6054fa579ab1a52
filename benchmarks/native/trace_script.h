/*
 * What trace_client.c plays: the lines that trace_plan.py writes, read once at the start. A line is
 * a word and numbers:
 *
 *     trace 1                      the form
 *     kinds N, streams N, events N how many kernels, streams and events there are
 *     bytes N                      the largest copy or memset
 *     sync_steps N                 wait for the GPU after so many steps; 0: never
 *     graph N, then N rows         the nodes of the graph, where one is launched
 *     step N, then N rows          the calls of a step; as often as there are steps
 *
 * and a row is CALL STREAM KIND-OR-EVENT BLOCKS THREADS BYTES GPU_NS GAP_NS, the gap being what
 * passes before the next call begins. Nobody changes it once it is read.
 */
#ifndef TRACE_SCRIPT_H
#define TRACE_SCRIPT_H

#include <stddef.h>
#include <stdint.h>

/* Driver calls, by the word in the script. */
#define TRACE_CALLS(X) \
    X(NOTHING, "nothing") \
    X(LAUNCH, "cuLaunchKernel") \
    X(LAUNCH_EX, "cuLaunchKernelEx") \
    X(LAUNCH_COOPERATIVE, "cuLaunchCooperativeKernel") \
    X(LAUNCH_GRAPH, "cuGraphLaunch") \
    X(MEMSET, "cuMemsetD8Async") \
    X(COPY_IN, "cuMemcpyHtoDAsync") \
    X(COPY_IN_PAGEABLE, "cuMemcpyHtoDAsync-pageable") \
    X(COPY_OUT, "cuMemcpyDtoHAsync") \
    X(COPY_OUT_PAGEABLE, "cuMemcpyDtoHAsync-pageable") \
    X(COPY_WITHIN, "cuMemcpyDtoDAsync") \
    X(SYNC_STREAM, "cuStreamSynchronize") \
    X(SYNC_CONTEXT, "cuCtxSynchronize") \
    X(IS_CAPTURING, "cuStreamIsCapturing") \
    X(WAIT_EVENT, "cuStreamWaitEvent") \
    X(RECORD_EVENT, "cuEventRecord") \
    X(QUERY_EVENT, "cuEventQuery") \
    X(SYNC_EVENT, "cuEventSynchronize") \
    X(GET_FUNCTION, "cuFuncGetAttribute") \
    X(SET_FUNCTION, "cuFuncSetAttribute") \
    X(GET_DEVICE, "cuDeviceGetAttribute") \
    X(OCCUPANCY, "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")

enum trace_call {
#define X(name, word) TRACE_##name,
    TRACE_CALLS(X)
#undef X
        TRACE_CALL_COUNT
};

#define TRACE_MOST_HANDLES 64 /* streams, and events */

struct trace_row {
    enum trace_call call;
    unsigned stream;
    unsigned number; /* the kind of kernel, or the event */
    unsigned blocks, threads;
    size_t bytes;
    uint64_t gpu_ns, gap_ns;
};

struct trace_rows {
    unsigned count;
    struct trace_row *rows;
};

struct trace_script {
    unsigned kinds, streams, events, sync_steps, steps;
    size_t bytes;
    struct trace_rows graph; /* none: no graph is launched */
    struct trace_rows *step; /* of `steps` */
};

int trace_call_is_of_event(enum trace_call call);

/* Reads a script. One that is wrong ends the program with status 2, having said the line. */
struct trace_script trace_script_read(const char *path);

#endif
