/*
 * Occupancy: how many blocks an SM holds, by its threads, block slots, registers and shared memory.
 * Registers are given to warps in units of 256, a quarter of the file to each scheduler; shared
 * memory in units of 128 bytes, with what the system keeps of it for each block (1 KiB from compute
 * capability 8.0). Clusters of more than 8 blocks are not portable, 16 is the most.
 */
#include "driver.h"

#define REGISTERS_PER_SM 65536
#define REGISTER_UNIT 256
#define SCHEDULERS 4
#define SHARED_UNIT 128
#define MOST_PORTABLE_CLUSTER 8
#define MOST_CLUSTER 16
#define CLUSTER_MAJOR 9

static uint32_t round_up(uint32_t value, uint32_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Warps that the registers of an SM are enough for. */
static uint32_t warps_by_registers(const struct CUfunc_st *function)
{
    uint32_t each = round_up(function->register_count * DRIVER_WARP_THREADS, REGISTER_UNIT);
    return each ? REGISTERS_PER_SM / SCHEDULERS / each * SCHEDULERS : UINT32_MAX;
}

void function_bound_threads(struct CUfunc_st *function, uint32_t max_threads)
{
    uint32_t warps = warps_by_registers(function);
    uint32_t most = warps < DRIVER_MAX_BLOCK_THREADS / DRIVER_WARP_THREADS
                        ? warps * DRIVER_WARP_THREADS
                        : DRIVER_MAX_BLOCK_THREADS;
    function->max_threads = max_threads && max_threads < most ? max_threads : most;
}

/* Shared memory that a block takes of its SM. */
static uint64_t shared_of_block(const struct sim_profile *profile, const struct CUfunc_st *function,
                                uint64_t dynamic_shared_bytes)
{
    uint64_t own = function->shared_bytes + dynamic_shared_bytes;
    return (own + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT +
           driver_reserved_shared_bytes(profile);
}

int resident_blocks(const struct sim_profile *profile, const struct CUfunc_st *function,
                    uint32_t block_threads, uint64_t dynamic_shared_bytes)
{
    uint32_t warps = (block_threads + DRIVER_WARP_THREADS - 1) / DRIVER_WARP_THREADS;
    if (warps == 0 || block_threads > function->max_threads)
        return 0;
    uint64_t blocks = profile->threads_per_sm / (warps * DRIVER_WARP_THREADS);
    if (warps_by_registers(function) / warps < blocks)
        blocks = warps_by_registers(function) / warps;
    uint64_t shared = shared_of_block(profile, function, dynamic_shared_bytes);
    if (shared && profile->shared_bytes_per_sm / shared < blocks)
        blocks = profile->shared_bytes_per_sm / shared;
    return (int)(blocks < profile->blocks_per_sm ? blocks : profile->blocks_per_sm);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                     int block_threads, size_t shared_bytes)
{
    struct CUctx_st *context;
    CHECK(context_and_function(&context, function));
    INVALID_IF(!blocks || block_threads <= 0);
    *blocks = resident_blocks(&context->device->identity->profile, function,
                              (uint32_t)block_threads, shared_bytes);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int block_threads,
                                                              size_t shared_bytes,
                                                              unsigned int flags)
{
    return flags & ~1u ? CUDA_ERROR_INVALID_VALUE
                       : cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function,
                                                                     block_threads, shared_bytes);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid_blocks, int *block_threads, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared_bytes,
                                          int block_limit)
{
    struct CUctx_st *context;
    CHECK(context_and_function(&context, function));
    INVALID_IF(!grid_blocks || !block_threads);
    const struct sim_profile *profile = &context->device->identity->profile;
    int best_threads = 0, best_resident = 0, limit = (int)function->max_threads;
    if (block_limit > 0 && block_limit < limit)
        limit = block_limit;
    /* whole warps, but for a limit that is none */
    for (int threads = limit; threads > 0;
         threads = (threads - 1) / DRIVER_WARP_THREADS * DRIVER_WARP_THREADS) {
        size_t shared = shared_of ? shared_of(threads) : shared_bytes;
        int resident = threads * resident_blocks(profile, function, (uint32_t)threads, shared);
        if (resident > best_resident) {
            best_resident = resident;
            best_threads = threads;
        }
    }
    *block_threads = best_threads;
    *grid_blocks = best_threads ? best_resident / best_threads * (int)profile->sm_count : 0;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_blocks, int *block_threads,
                                                   CUfunction function,
                                                   CUoccupancyB2DSize shared_of,
                                                   size_t shared_bytes, int block_limit,
                                                   unsigned int flags)
{
    return flags & ~1u ? CUDA_ERROR_INVALID_VALUE
                       : cuOccupancyMaxPotentialBlockSize(grid_blocks, block_threads, function,
                                                          shared_of, shared_bytes, block_limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
                                                 int block_threads)
{
    struct CUctx_st *context;
    CHECK(context_and_function(&context, function));
    const struct sim_profile *profile = &context->device->identity->profile;
    INVALID_IF(!bytes || blocks <= 0 || block_threads <= 0 ||
               resident_blocks(profile, function, (uint32_t)block_threads, 0) < blocks);
    uint64_t each = profile->shared_bytes_per_sm / (uint32_t)blocks / SHARED_UNIT * SHARED_UNIT;
    uint64_t taken = shared_of_block(profile, function, 0);
    uint64_t most = profile->shared_bytes_per_block - function->shared_bytes;
    *bytes = each - taken < most ? each - taken : most;
    return CUDA_SUCCESS;
}

/* ---- clusters -------------------------------------------------------------------------------- */

/* How many blocks a cluster of the launch has: by the code or the function's settings, else by the
 * launch; 0: no clusters. */
static uint64_t cluster_blocks(const struct CUfunc_st *function, int ordinal,
                               const struct launch *launch, unsigned int shape[3])
{
    for (int i = 0; i < 3; i++) {
        int set = function->settings[ordinal].cluster[i];
        unsigned int by_code =
            function->required_cluster[0] ? function->required_cluster[i] : (unsigned int)set;
        shape[i] = by_code ? by_code : launch->cluster[i];
    }
    if (!shape[0] && !shape[1] && !shape[2])
        return 0;
    for (int i = 0; i < 3; i++)
        shape[i] = shape[i] ? shape[i] : 1;
    return (uint64_t)shape[0] * shape[1] * shape[2];
}

/* On devices without clusters a launch with one is refused in the same way; which error they give
 * is not documented. */
CUresult cluster_check(const struct CUfunc_st *function, const struct driver_device *device,
                       const struct launch *launch)
{
    unsigned int shape[3];
    uint64_t blocks = cluster_blocks(function, device->ordinal, launch, shape);
    uint64_t most = function->settings[device->ordinal].non_portable_cluster
                        ? MOST_CLUSTER
                        : MOST_PORTABLE_CLUSTER;
    if (!blocks)
        return function->cluster_must_be_set ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
    REFUSE_IF(device->identity->profile.compute_major < CLUSTER_MAJOR || blocks > most,
              CUDA_ERROR_INVALID_CLUSTER_SIZE);
    for (int i = 0; i < 3; i++) {
        unsigned int asked = launch->cluster[i];
        REFUSE_IF(launch->grid[i] % shape[i] != 0 ||
                      (function->required_cluster[0] && asked && asked != shape[i]),
                  CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    return CUDA_SUCCESS;
}

static CUresult read_config(CUfunction function, const CUlaunchConfig *config,
                            struct CUstream_st **stream, struct launch *launch)
{
    INVALID_IF(!config);
    CHECK(stream_resolve(config->hStream, stream));
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE);
    return launch_read_config(config, launch);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *blocks, CUfunction function,
                                            const CUlaunchConfig *config)
{
    struct CUstream_st *stream;
    struct launch launch;
    unsigned int shape[3];
    CHECK(read_config(function, config, &stream, &launch));
    const struct driver_device *device = stream->context->device;
    INVALID_IF(!blocks || device->identity->profile.compute_major < CLUSTER_MAJOR);
    launch.cluster[0] = launch.cluster[1] = launch.cluster[2] = 0; /* as documented */
    uint64_t required = cluster_blocks(function, device->ordinal, &launch, shape);
    *blocks = required                                                   ? (int)required
              : function->settings[device->ordinal].non_portable_cluster ? MOST_CLUSTER
                                                                         : MOST_PORTABLE_CLUSTER;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                      const CUlaunchConfig *config)
{
    struct CUstream_st *stream;
    struct launch launch;
    unsigned int shape[3];
    CHECK(read_config(function, config, &stream, &launch));
    const struct driver_device *device = stream->context->device;
    const struct sim_profile *profile = &device->identity->profile;
    uint64_t blocks = cluster_blocks(function, device->ordinal, &launch, shape);
    uint64_t threads = (uint64_t)launch.block[0] * launch.block[1] * launch.block[2];
    INVALID_IF(!clusters || threads == 0 || threads > DRIVER_MAX_BLOCK_THREADS);
    CUresult result =
        blocks ? cluster_check(function, device, &launch) : CUDA_ERROR_INVALID_CLUSTER_SIZE;
    if (result == CUDA_SUCCESS) /* that a cluster lies in one group of SMs is not modelled */
        *clusters = (int)((uint64_t)resident_blocks(profile, function, (uint32_t)threads,
                                                    launch.shared_bytes) *
                          profile->sm_count / blocks);
    return result;
}
