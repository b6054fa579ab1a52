/*
 * How figures of a calibration vary: by so many percent either way, all of them equally likely. What
 * comes out depends on the calibration's seed, the kind and a number alone, which counts such figures of a
 * thread, a queue or a device. So whoever computes a device's timeline finds the same, and a program that
 * does the same in a time of its own (tests) runs the same each time.
 */
#ifndef VGPU_SIM_SPREAD_H
#define VGPU_SIM_SPREAD_H

#include "machine_api.h"

#define SIM_SPREAD_ONE (1 << 20)

/* Every bit of the result depends on each of the value (the end of splitmix64). */
static inline uint64_t sim_spread_mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

/* Returns a factor of SIM_SPREAD_ONE, by up to `percent` more or less. */
static inline uint64_t sim_spread_factor(uint64_t chance, uint32_t percent)
{
    uint64_t width = (uint64_t)SIM_SPREAD_ONE * percent / 100;
    return SIM_SPREAD_ONE - width + sim_spread_mix(chance) % (2 * width + 1);
}

/* Returns what a figure is this time. `value`: below 2^45. */
static inline uint64_t sim_spread(const struct sim_calibration *calibration, uint32_t kind,
                                  uint64_t value, uint64_t number)
{
    if (!calibration->spread_seed)
        return value;
    uint64_t run = (uint64_t)calibration->spread_seed << 8 | kind;
    uint64_t factor =
        sim_spread_factor(run, calibration->run_spread_percent[kind]) *
        sim_spread_factor(run ^ sim_spread_mix(number), calibration->spread_percent[kind]) /
        SIM_SPREAD_ONE;
    return (uint64_t)((unsigned __int128)value * factor / SIM_SPREAD_ONE);
}

#endif
