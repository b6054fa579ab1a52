/*
 * The MIG mode and the GPU instances of one GPU, in one word of its header, so that whoever looks
 * sees one layout whole. Only mig_change.c writes it, under a lock of the file.
 *
 *   byte of a slot: bits 0-3 index of the profile, plus one (0: free) | bits 4-6 its first slice of
 *   memory | bit 7 it has its compute instance
 *   last byte: bit 0 MIG mode is on | bit 1 it shall be on
 */
#ifndef VGPU_SIM_MIG_H
#define VGPU_SIM_MIG_H

#include "machine.h"

#define MIG_ON (1ull << 56)
#define MIG_ON_PENDING (1ull << 57)
#define MIG_COMPUTE 0x80u

static inline uint32_t mig_byte(uint64_t word, uint32_t slot)
{
    return (uint32_t)(word >> (8 * slot)) & 0xff;
}

static inline uint64_t mig_with_byte(uint64_t word, uint32_t slot, uint32_t byte)
{
    return (word & ~(0xffull << (8 * slot))) | (uint64_t)byte << (8 * slot);
}

static inline bool mig_is_used(uint32_t byte)
{
    return (byte & 0xf) != 0;
}

static inline uint32_t mig_profile_at(uint32_t byte)
{
    return (byte & 0xf) - 1;
}

static inline uint32_t mig_start(uint32_t byte)
{
    return byte >> 4 & 7;
}

static inline uint32_t mig_mask(uint32_t start, uint32_t size)
{
    return ((1u << size) - 1) << start;
}

/* mig.c */
uint64_t mig_word(const struct sim_machine *machine, uint32_t gpu);
/* The index of the room of a slot on the machine. */
uint32_t mig_room(const struct sim_machine *machine, uint32_t gpu, uint32_t slot);
const struct sim_device_identity *mig_identity(const struct sim_machine *machine, uint32_t gpu);
/* The slices of memory that are taken, and how many instances of a profile there are. */
uint32_t mig_occupied(const struct sim_machine *machine, uint32_t gpu, uint64_t word);
uint32_t mig_existing(uint64_t word, uint32_t profile);

/* mig_place.c: as the driver numbers an instance. */
uint32_t mig_instance_id(uint32_t start, uint32_t size);

#endif
