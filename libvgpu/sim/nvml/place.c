/*
 * Where the devices are in the host: by pairs behind a PCIe switch, each pair behind a host bridge
 * of its own, four GPUs a NUMA node (identity.py). The host's CPUs are dealt out to the nodes in
 * order; a host with fewer CPUs than the machine has nodes counts as near to all of them.
 */
#include <string.h>
#include <unistd.h>

#include "nvml.h"

#define BITS_PER_WORD (8 * sizeof(unsigned long))

#define GPUS_PER_SWITCH 2

static nvmlGpuTopologyLevel_t level_between(nvmlDevice_t one, nvmlDevice_t other)
{
    return one == other ? NVML_TOPOLOGY_INTERNAL
           : one->machine_index / GPUS_PER_SWITCH == other->machine_index / GPUS_PER_SWITCH
               ? NVML_TOPOLOGY_SINGLE
           : nvml_identity_of(one)->numa_node == nvml_identity_of(other)->numa_node
               ? NVML_TOPOLOGY_NODE
               : NVML_TOPOLOGY_SYSTEM;
}

static unsigned long cpu_count(void)
{
    return (unsigned long)sysconf(_SC_NPROCESSORS_CONF);
}

static bool is_near(nvmlDevice_t device, unsigned long cpu, unsigned long cpus)
{
    unsigned long nodes = 1;
    for (uint32_t i = 0; i < sim_machine_gpu_count(nvml.machine); i++) {
        int32_t node = sim_machine_device(nvml.machine, i)->header->identity.numa_node;
        nodes = (unsigned long)node + 1 > nodes ? (unsigned long)node + 1 : nodes;
    }
    return cpus < nodes || cpu * nodes / cpus == (unsigned long)nvml_identity_of(device)->numa_node;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                 nvmlGpuTopologyLevel_t *level)
{
    NVML_CHECK(one, level);
    NVML_CHECK(other, level);
    *level = level_between(one, other);
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_give_devices(const nvmlDevice_t *found, unsigned int found_count,
                               unsigned int *count, nvmlDevice_t *devices)
{
    INVALID_IF(*count && !devices);
    unsigned int given = *count && *count < found_count ? *count : found_count;
    if (*count)
        memcpy(devices, found, given * sizeof *devices);
    *count = given;
    return NVML_SUCCESS;
}

/* The documentation does not say whether a level holds those below it; `nvidia-smi topo -n 4`
 * speaks of all in the system, so it does here. */
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int *count, nvmlDevice_t *devices)
{
    nvmlDevice_t found[SIM_MAX_GPUS];
    unsigned int found_count = 0;
    NVML_CHECK(device, count);
    INVALID_IF((unsigned int)level > NVML_TOPOLOGY_SYSTEM);
    for (uint32_t i = 0; i < nvml.device_count; i++)
        if (&nvml.devices[i] != device && level_between(device, &nvml.devices[i]) <= level)
            found[found_count++] = &nvml.devices[i];
    return nvml_give_devices(found, found_count, count, devices);
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count,
                                         nvmlDevice_t *devices)
{
    nvmlDevice_t found[SIM_MAX_GPUS];
    unsigned int found_count = 0;
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    unsigned long cpus = cpu_count();
    INVALID_IF(!count || cpu >= cpus);
    for (uint32_t i = 0; i < nvml.device_count; i++)
        if (is_near(&nvml.devices[i], cpu, cpus))
            found[found_count++] = &nvml.devices[i];
    return nvml_give_devices(found, found_count, count, devices);
}

/* For platforms whose GPU memory is a NUMA node of its own; no profile is of one. The node that a
 * device is near to is in its memory affinity. */
nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    NVML_CHECK(device, node);
    return NVML_ERROR_NOT_SUPPORTED;
}

/* Sets what fits into the array, as the documentation knows no answer for one that is short. */
static void set_bit(unsigned long *set, unsigned int words, unsigned long bit)
{
    if (bit / BITS_PER_WORD < words)
        set[bit / BITS_PER_WORD] |= 1ul << bit % BITS_PER_WORD;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set)
{
    NVML_CHECK(device, set);
    INVALID_IF(words == 0);
    unsigned long cpus = cpu_count();
    memset(set, 0, words * sizeof *set);
    for (unsigned long cpu = 0; cpu < cpus; cpu++)
        if (is_near(device, cpu, cpus))
            set_bit(set, words, cpu);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words,
                                                 unsigned long *set, nvmlAffinityScope_t scope)
{
    NVML_CHECK(device, set);
    return scope > NVML_AFFINITY_SCOPE_SOCKET ? NVML_ERROR_INVALID_ARGUMENT
                                              : nvmlDeviceGetCpuAffinity(device, words, set);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words,
                                         unsigned long *set, nvmlAffinityScope_t scope)
{
    NVML_CHECK(device, set);
    INVALID_IF(words == 0 || scope > NVML_AFFINITY_SCOPE_SOCKET);
    memset(set, 0, words * sizeof *set);
    set_bit(set, words, (unsigned long)nvml_identity_of(device)->numa_node);
    return NVML_SUCCESS;
}
