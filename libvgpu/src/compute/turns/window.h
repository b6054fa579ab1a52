/* What the arbiter has granted this container on a device, and what the container tells it.
 *
 * The grant lies in `limits`, read-only, and is read under its number; waiting for another one is a
 * futex on that number, which the arbiter wakes. What is wanted is a moment in `usage`; the arbiter
 * is made to look there by a byte in the device's FIFO `ring`, written when somebody begins to want
 * and at most once a millisecond while somebody waits.
 *
 * An arbiter is gone when its beat is old while windows are handed out, or when nobody reads the
 * ring. Until another one publishes, the container then keeps to its own cap, by estimates alone:
 * time measured while neighbours run at the same time would be charged to the wrong one.
 *
 * Atomics on single words; no lock, and nothing here waits but window_wait. */
#ifndef VGPU_WINDOW_H
#define VGPU_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/contract.h"

/* A launch sets out so long before its window: then it is there when the GPU is through with what runs,
 * and the GPU changes to it at once. The end of what runs is foreseen to some 50 us. */
#define WINDOW_EARLY_NS 100000
#define WINDOW_SPIN_NS 160000   /* before the window's start: a sleep would end too late */
#define WINDOW_RING_NS 1000000  /* between two rings of who waits */
#define WINDOW_PAUSE_NS 5000000 /* who has wanted nothing for so long rings when it begins */
#define WINDOW_ASK_NS 100000000 /* who runs alone asks this often whether the arbiter lives */
#define WINDOW_BEAT_NS 50000000 /* an older beat is a dead arbiter's */

enum window_state {
    WINDOW_NONE,   /* there is no arbiter */
    WINDOW_FREE,   /* nobody else wants the device */
    WINDOW_SHARED, /* others use the device, too, and there is enough of it */
    WINDOW_OPEN,   /* contended, and this container's turn */
    WINDOW_CLOSED, /* contended, and not its turn */
    WINDOW_LOST,   /* the arbiter is gone */
};

struct window {
    enum window_state state;
    uint64_t number; /* of the grant, for window_wait */
    uint64_t id;     /* which of this container's windows it is */
    int64_t start_ns;
    int64_t end_ns;
};

/* True where turns are taken, or were when the arbiter was lost. */
static inline bool window_has_turns(const struct window *window)
{
    return window->state != WINDOW_NONE && window->state != WINDOW_FREE &&
           window->state != WINDOW_SHARED;
}

/* The grant as it stands at a moment. */
struct window window_at(uint32_t device, int64_t now_ns);

/* True while an arbiter attends to the container there, or has died doing so. */
bool window_is_arbitrated(uint32_t device);

/* Returns the word that changes with every grant. */
const uint64_t *window_number_word(uint32_t device);

/* Says that a launch is wanted now. */
void window_want(uint32_t device, const struct window *window, int64_t now_ns, bool is_waiting);

/* Gives the rest of an open window back; nothing more is wanted now unless `wants_another`. */
void window_yield(uint32_t device, const struct window *window, bool wants_another);

/* Waits for the window to open or the grant to change, at most until the next ring is due. */
void window_wait(uint32_t device, const struct window *window, int64_t now_ns);

/* True when a launch that takes so long may still begin in this open window: it ends in it for the
 * most part, or it is the window's first. */
bool window_fits(uint32_t device, const struct window *window, int64_t gpu_ns, int64_t now_ns);

/* To be called with each charge in an open window. */
void window_use(uint32_t device, const struct window *window);

#endif
