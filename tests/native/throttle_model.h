/* The throttle over simulated time: the shim's own code for caps (all of compute/ between the gate and
 * the driver), on a slice in memory and a driver made up here. No real clock is read, so each run is
 * the same and a figure is exact.
 *
 * Time passes where the model says so: in the calls of the driver, and where the throttle sleeps. A
 * program is one or several coroutines, each with its own time; the one that is furthest behind goes
 * on. The GPUs run kernels one at a time in the order in which they can begin; streams are in order, and
 * may wait for a word of memory or write one; a part of a collective has its GPU until its peer's has
 * run, too. Whoever uses a stream after its end ends the program; its handle is given out again
 * before any other. */
#ifndef VGPU_THROTTLE_MODEL_H
#define VGPU_THROTTLE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/contract.h"
#include "vgpu/cuda_api.h"

#define MODEL_DEVICES 2
#define MODEL_KINDS 64
#define MODEL_START_NS 5000000000
#define MODEL_SUBMITTED_PERCENT 88 /* of a launch have passed when the GPU has it */
#define US 1000
#define MS 1000000

#define MODEL_WAKE_NS 3000 /* after the end of what it waits for the host goes on */
#define MODEL_EVENT_NS 100 /* of the GPU, in its stream */

/* What calls of the driver take the host. */
extern int64_t model_launch_ns, model_call_ns;

/* What has happened. */
extern int64_t model_records, model_launches[MODEL_DEVICES], model_busy_ns[MODEL_DEVICES];
extern int64_t model_prepaid; /* of the launches */
extern int64_t model_sleeps;  /* of the throttle */

/* Makes a slice of so many devices with no cap yet. */
void model_begin(uint32_t devices);
/* 0 percent: as without the shim. */
void model_cap(uint32_t device, uint32_t percent, uint32_t mode);
/* Stores a grant under the next number. */
void model_grant(uint32_t device, struct vgpu_grant grant);

/* Adds a coroutine, and runs all of them to their ends. */
void model_add(void (*body)(void *), void *argument);
void model_run(void);

/* Below: by a coroutine. */
int64_t model_now_ns(void);
void model_pause(int64_t ns);

CUstream model_stream(uint32_t device);
void model_end_stream(CUstream stream);

/* Puts a kernel of a kind (0 … 63) onto a stream, through the shim; says whether it was prepaid. */
bool model_launch(CUstream stream, int kind, int64_t gpu_ns);
/* One that runs until a word has that value, next to other kernels. */
void model_spin(CUstream stream, int kind, int word, int64_t value, int64_t gpu_ns);
/* One part of the next collective of both devices. */
void model_collective(CUstream stream, int kind, int64_t gpu_ns);
/* Has a stream wait for a word to have a value, or write one; the host may write, too. */
void model_wait_word(CUstream stream, int word, int64_t value);
void model_write_word(CUstream stream, int word, int64_t value);
void model_host_writes(int word, int64_t value);
/* Waits for all that was put onto the stream. */
void model_sync(CUstream stream);

#endif
