/*
 * What a driver call costs the host. An entry point that calls.def names begins with CALL_TAKES: it
 * then lasts at least as long as the machine's calibration says, what the simulation itself needs
 * being part of it, and its work goes to the device when a part of that time has passed. Short waits
 * spin, as the processor is busy in a real driver, too. A call inside of another one adds nothing
 * to it. One whose thread has been elsewhere for some time takes longer: what the driver needs is no
 * longer in the processor's caches.
 */
#ifndef VGPU_SIM_CALL_COST_H
#define VGPU_SIM_CALL_COST_H

#include "calls.h"
#include "driver.h"

struct call_timer {
    uint64_t begun_ns; /* 0: this call costs nothing */
    uint32_t cost_ns;
};

void call_begin(struct call_timer *timer, enum sim_call call);
void call_end(struct call_timer *timer);
/* Finds out what a call's beginning and end take by themselves, which is part of its cost,
 * before any call that costs something. */
void call_measure(void);
/* The call under way may have waited for the device: its cost comes after that. */
void call_has_waited(void);
/* The call under way takes so long instead; or so much longer. */
void call_takes_instead(uint32_t cost_ns);
void call_takes_longer(uint64_t extra_ns);

#define CALL_TAKES(name) \
    struct call_timer call_timer_ __attribute__((cleanup(call_end))) = {0}; \
    if (driver.calibration && driver.calibration->call_ns[SIM_CALL_##name]) \
    call_begin(&call_timer_, SIM_CALL_##name)

#endif
