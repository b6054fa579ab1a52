/* Whether the program records a graph: nothing is measured, waited for or charged inside a stream
 * capture (an event recorded there would become part of the graph). The count is kept by the hooks
 * of begin and end, so that nobody is asked while it is 0. */
#ifndef VGPU_CAPTURE_H
#define VGPU_CAPTURE_H

#include <stdbool.h>

#include "vgpu/cuda_api.h"

/* True while any stream of the process is being captured. */
bool capture_is_any(void);

/* True while this thread has begun more captures than it has ended. */
bool capture_is_mine(void);

/* True while another thread is in a call that begins a capture: the driver may not know of it yet. */
bool capture_begins_elsewhere(void);

/* True when work put on `stream` would be captured, or when that cannot be told. */
bool capture_is_active(CUstream stream);

/* The same for who takes memory in the stream's order, which is charged when it is not captured. An
 * answer other than CUDA_SUCCESS is the driver's, and for the caller: nothing is known then. */
CUresult capture_ask(CUstream stream, bool *is_captured);

/* For the hooks of begin and end: before the driver's call, and after its answer. An ended capture is over even
 * when it was invalid; only a stream that was not captured keeps the count. */
void capture_begins(void);
void capture_begun(CUstream stream, CUresult result);
void capture_ended(CUstream stream, CUresult result);

/* A stream has been destroyed: a capture that began on it is over. */
void capture_forget_stream(CUstream stream);

/* Around our own driver calls: the captures of all threads are neither ended nor spoilt by them. Whether there is
 * one is not asked, since it may begin right after the answer. */
struct capture_pause {
    CUstreamCaptureMode mode;
    bool is_changed;
};
struct capture_pause capture_pause(void);
void capture_resume(struct capture_pause pause);

#endif
