/* Waiting for the work of other processes. They are looked at in a private copy of the state;
 * nobody tells when they are done, so a wait looks again at the predicted end. */
#include <time.h>

#include "machine.h"
#include "timeline.h"

#define SHORTEST_SLEEP_NS 20000ull
/* Arrivals, deaths and released gates change a prediction: look again at least this often. */
#define LONGEST_SLEEP_NS 1000000ull

struct sim_origin sim_origin_here(const struct sim_device *device, uint64_t place)
{
    return (struct sim_origin){device->machine->slot, place};
}

struct look {
    const struct sim_origin *origin;
    uint64_t end_ns; /* 0: done */
};

static int look_at(struct sim_device *device, struct sim_state *state, void *argument)
{
    struct look *look = argument;
    const struct sim_origin *origin = look->origin;
    const struct sim_client *client = &state->clients[origin->slot];
    uint32_t lane = sim_place_lane(origin->place) % SIM_LANES;
    look->end_ns = 0;
    /* whoever takes the slot of a dead process counts on where that one ended */
    if (origin->slot >= state->client_limit ||
        client->lanes[lane].head > sim_place_sequence(origin->place))
        return 0;
    struct sim_timeline timeline = {
        .state = state, .device = device->header, .workers = device->workers};
    look->end_ns = sim_timeline_predict(&timeline, origin->slot, origin->place);
    return 0;
}

static uint64_t predicted_end(struct sim_device *device, const struct sim_origin *origin)
{
    struct look look = {.origin = origin};
    if (origin->place && origin->slot < SIM_PROCESS_SLOTS)
        sim_device_read(device, look_at, &look);
    return look.end_ns;
}

bool sim_origin_query(struct sim_device *device, const struct sim_origin *origin)
{
    return predicted_end(device, origin) == 0;
}

void sim_origin_wait(struct sim_device *device, const struct sim_origin *origin)
{
    uint64_t end_ns;
    while ((end_ns = predicted_end(device, origin)) != 0) {
        uint64_t now_ns = sim_now_ns();
        uint64_t left_ns = end_ns > now_ns ? end_ns - now_ns : 0;
        left_ns = left_ns < SHORTEST_SLEEP_NS  ? SHORTEST_SLEEP_NS
                  : left_ns > LONGEST_SLEEP_NS ? LONGEST_SLEEP_NS
                                               : left_ns;
        nanosleep(&(struct timespec){.tv_nsec = (long)left_ns}, NULL);
        sim_queue_has_waited();
    }
}
