/*
 * The timeline by itself: a device made by hand, operations put into its queues, and what has been
 * done by a moment. No clock and no other process, so every figure is exact.
 *
 * Reads a scenario from stdin, a word and its numbers a line:
 *   calibrate slice switch preempt idle_switch latency event_latency event
 *   varied after_ns for_ns percent     (a ramp of the clock after idling)
 *   dram percent                       (that the operations from here on need)
 *   client slot percentage             (0: not of MPS)
 *   operation slot lane kind at_ns cost_ns parts count overlap_ns     (kernel, event)
 *   until ns
 * and prints a line "slot busy_ns" a client, then "slot lane number done_ns" for each operation
 * that is done.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "timeline.h"

static struct sim_device_header *device;
static struct sim_state state;
static struct sim_workers workers;
static uint32_t dram_percent;

static void calibrate(void)
{
    struct sim_calibration *to = &device->identity.profile.calibration;
    if (scanf("%u %u %u %u %u %u %u", &to->slice_ns, &to->switch_ns, &to->preempt_ns,
              &to->idle_switch_ns, &to->latency_ns, &to->event_latency_ns, &to->event_ns) != 7)
        exit(2);
}

static void vary(void)
{
    struct sim_calibration *to = &device->identity.profile.calibration;
    to->spread_seed = 1; /* all else varies by 0 percent */
    if (scanf("%u %u %u", &to->clock_ramp_after_ns, &to->clock_ramp_ns, &to->clock_ramp_percent) !=
        3)
        exit(2);
}

static void add_client(void)
{
    uint32_t slot, percentage;
    if (scanf("%u %u", &slot, &percentage) != 2)
        exit(2);
    struct sim_client *client = &state.clients[slot];
    client->flags = SIM_CLIENT_ATTACHED | SIM_CLIENT_USED | (percentage ? SIM_CLIENT_MPS : 0);
    client->percentage = percentage;
    client->lanes_open = (1u << SIM_LANES) - 1;
    if (state.client_limit <= slot)
        state.client_limit = slot + 1;
}

static void add_operations(void)
{
    char kind[16];
    uint32_t slot, lane, parts, count, overlap_ns;
    unsigned long at_ns, cost_ns;
    if (scanf("%u %u %15s %lu %lu %u %u %u", &slot, &lane, kind, &at_ns, &cost_ns, &parts, &count,
              &overlap_ns) != 8)
        exit(2);
    struct sim_queue *queue = sim_layout_queue(device, slot, lane);
    const struct sim_calibration *calibration = &device->identity.profile.calibration;
    bool is_event = strcmp(kind, "event") == 0;
    for (uint32_t i = 0; i < count && queue->tail < SIM_QUEUE_DEPTH; i++)
        queue->operations[queue->tail++] = (struct sim_operation){
            .submitted_ns = at_ns,
            .cost_ns = cost_ns,
            .kind = is_event ? SIM_OPERATION_EVENT : SIM_OPERATION_KERNEL,
            .latency_ns = is_event ? calibration->event_latency_ns : calibration->latency_ns,
            .kernels = 1,
            .parts = (uint16_t)parts,
            .dram_percent = (uint16_t)dram_percent,
            .overlap_ns = overlap_ns};
}

static void report(void)
{
    for (uint32_t slot = 0; slot < state.client_limit; slot++) {
        printf("%u %lu\n", slot, (unsigned long)state.clients[slot].busy_ns);
        for (uint32_t lane = 0; lane < SIM_LANES; lane++)
            for (uint64_t i = 0; i < state.clients[slot].lanes[lane].head; i++)
                printf("%u %u %lu %lu\n", slot, lane, (unsigned long)i,
                       (unsigned long)sim_layout_queue(device, slot, lane)->operations[i].stamp);
    }
}

int main(void)
{
    device = mmap(NULL, SIM_DEVICE_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (device == MAP_FAILED)
        return 2;
    state.current = SIM_NOBODY;
    char word[16];
    while (scanf("%15s", word) == 1) {
        unsigned long until_ns;
        if (strcmp(word, "calibrate") == 0) {
            calibrate();
        } else if (strcmp(word, "varied") == 0) {
            vary();
        } else if (strcmp(word, "dram") == 0 && scanf("%u", &dram_percent) == 1) {
            continue;
        } else if (strcmp(word, "client") == 0) {
            add_client();
        } else if (strcmp(word, "operation") == 0) {
            add_operations();
        } else if (strcmp(word, "until") == 0 && scanf("%lu", &until_ns) == 1) {
            struct sim_timeline timeline = {
                .state = &state, .device = device, .workers = &workers, .stamping = true};
            sim_timeline_advance(&timeline, until_ns);
            report();
            return 0;
        }
    }
    return 2;
}
