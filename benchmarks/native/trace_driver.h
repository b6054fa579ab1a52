/* The driver calls of trace_client.c. Any that fails ends the program with status 1. */
#ifndef TRACE_DRIVER_H
#define TRACE_DRIVER_H

#include "trace_script.h"

/* Makes kernels, streams, events, buffers and the graph that a script needs. Called once.
 * `rounds_per_ms`: of the GPU, as client.h tells; 0: kernels watch the clock. */
void trace_driver_prepare(struct trace_script *script, uint64_t rounds_per_ms);

/* Does what a row says, without its gap. */
void trace_driver_call(struct trace_row *row);

/* Waits until the GPU has done everything. */
void trace_driver_wait(void);

#endif
