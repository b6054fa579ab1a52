/* How long the arbiter's windows are, and the other times that it goes by, in nanoseconds. Constants
 * only; policy.h and windows.h say what they do. */
#ifndef VGPU_ARBITER_WINDOW_TIMES_H
#define VGPU_ARBITER_WINDOW_TIMES_H

/* The length of a window: what a tenant gets of a contended GPU at a time. */
#define WINDOW_QUANTUM_NS 10000000
/* The next window is decided so long before the present one ends. */
#define POLICY_LEAD_NS 2500000
/* A holder that used nothing for so long, or a window that was not begun for so long, is lost. */
#define POLICY_IDLE_NS 1500000
/* Demand counts for so long: a thread that says so every millisecond may be kept from a CPU. */
#define POLICY_FRESH_NS 25000000
/* After so long with one active tenant at most, the GPU is free again. */
#define POLICY_ALONE_NS 20000000
#define POLICY_LOOK_NS 100000000
/* While several share a GPU that is enough for them: how often their demands are read. */
#define POLICY_SHARED_LOOK_NS 10000000
/* The GPU has been wanted for all of the time, or not, for so long: turns begin, or end. */
#define POLICY_SCARCE_NS 30000000
#define POLICY_ENOUGH_NS 100000000
/* While windows are given: tenants take a beat older than 50 ms for a dead arbiter. */
#define POLICY_BEAT_NS 5000000
/* While a window is about to begin: how often the holder's prediction is read, and what is too
 * little to publish the start again. */
#define POLICY_APPROACH_NS 500000
#define POLICY_MOVE_NS 20000
/* A prediction further ahead is garbage, a hang or a lie, and counts as none. */
#define POLICY_MOST_BUSY_NS 10000000000
/* Nobody waits longer than this for a holder's work after its window, so nobody is charged more. */
#define POLICY_MOST_DEBT_NS 2000000000
/* Work that lasts so long beyond its window is counted and reported as an overrun. */
#define POLICY_OVERRUN_NS 1000000
/* What a tenant that paused for less than FRESH may catch up, in occupancy. */
#define POLICY_CREDIT_NS 50000000
/* One that lost a window and is back so soon was only kept from a CPU: what it was behind by then,
 * because others overran, is still its due. */
#define POLICY_PAUSE_NS 50000000
/* A holder whose launch does not fit yields and asks again at once; this long it is waited for
 * before the GPU goes to a tenant with a larger tag, if the GPU would idle otherwise. */
#define POLICY_GRACE_NS 100000
#define POLICY_NEVER 9223372036854775807

#endif
