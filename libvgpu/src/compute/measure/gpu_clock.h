/* Tells by the host's clock when the GPU was at an event.
 *
 * An anchor is an event that the GPU came to at once, so that the host knows when. The host's time of
 * another event is the anchor's and what the driver says passed between the two, times the rate of the
 * clocks: two crystals differ by some parts in 100 000, which is a microsecond in 20 to 100 ms. The rate
 * comes from two anchors, and is believed for as long as there is between these.
 *
 * The events of the anchors are its own: one that is taken is given back as another one. They stay with
 * their context. Serialised by its caller, in whose batch_visit its calls of the driver run. All zero is
 * ready to use. */
#ifndef VGPU_GPU_CLOCK_H
#define VGPU_GPU_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/cuda_api.h"

#define GPU_CLOCK_NS_PER_MS 1000000.0

struct gpu_clock {
    CUcontext context; /* of the events */
    CUevent latest;    /* anchor; NULL: none */
    CUevent base;      /* an older one; NULL: none */
    int64_t latest_ns, base_ns;
    double rate_off; /* of the host's clock to the GPU's, less 1 */
    double span_ns;  /* between the anchors that told it; 0: nobody has */
};

/* Makes an event that the GPU came to at `host_ns` the latest anchor. *event is then another one of the
 * context, or the same if the driver gives no further one. */
void gpu_clock_set(struct gpu_clock *clock, CUcontext context, CUevent *event, int64_t host_ns);

/* The host's time when the GPU was at an event that it has passed. False where no anchor is near. */
bool gpu_clock_at(const struct gpu_clock *clock, CUcontext context, CUevent event,
                  int64_t *host_ns);

/* The context is about to end, and the driver takes its events along. */
void gpu_clock_forget(struct gpu_clock *clock, CUcontext context);

#endif
