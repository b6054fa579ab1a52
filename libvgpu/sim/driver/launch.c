/*
 * Launches. What a kernel costs: an entry named `spin_ns` takes its first argument in nanoseconds
 * of the whole device; any other kernel is estimated from its grid: the device runs as many threads
 * at once as its SMs hold, and each such wave takes WAVE_NS. Kernels compute nothing. For one that spins on a
 * peer's word see meeting.c.
 *
 * A dependent launch (attribute PROGRAMMATIC_STREAM_SERIALIZATION) begins while the kernel before it in
 * its stream ends, if nothing is between the two; so does one in another stream that waits for the event
 * of a PROGRAMMATIC_EVENT. Other attributes that change when or where a kernel runs (priority, cluster
 * policies, access policy) are taken and not acted on.
 */
#include <string.h>

#include "context_memory.h"

#define LAUNCH_NS 2000
/* Of the host: captures of 1 to 200 launches on an H100 (benchmarks/results). */
#define CAPTURED_LAUNCH_NS 450
#define WAVE_NS 5000
#define MAX_BLOCK_DEPTH 64
#define MAX_GRID_WIDTH 0x7fffffffu
#define MAX_GRID_OTHER 65535
#define DEPENDENT_MAJOR 9 /* compute capability of the first devices with dependent launches */

CUresult launch_read_argument(const struct CUfunc_st *function, const struct launch *launch,
                              uint32_t index, uint64_t *value)
{
    bool known = function->parameter_count != PARAMETERS_UNKNOWN && function->parameter_count;
    INVALID_IF(known && index >= function->parameter_count);
    uint32_t bytes = known ? function->parameters[index].bytes : sizeof(uint64_t);
    uint32_t offset = known ? function->parameters[index].offset : index * bytes;
    const char *argument = NULL;
    if (launch->params) {
        argument = launch->params[index];
    } else if (launch->extra) {
        for (void **at = launch->extra; *at != CU_LAUNCH_PARAM_END; at += 2)
            if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
                argument = (const char *)at[1] + offset;
    }
    INVALID_IF(!argument || bytes > sizeof *value);
    *value = 0;
    memcpy(value, argument, bytes);
    return CUDA_SUCCESS;
}

/* What the code demands of its launches. More threads than its registers or launch bounds allow are
 * too many resources, as documented; another block than the required one is an error that is not
 * documented. */
static CUresult check_bounds(const struct CUfunc_st *function, const struct launch *launch,
                             uint64_t threads)
{
    REFUSE_IF(threads > function->max_threads, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    INVALID_IF(function->required_threads &&
               memcmp(launch->block, function->required_block, sizeof launch->block) != 0);
    return CUDA_SUCCESS;
}

CUresult launch_describe(struct CUfunc_st *function, struct driver_device *device,
                         const struct launch *launch, struct launch_need *need)
{
    *need = (struct launch_need){0};
    REFUSE_IF(!is_function(function), CUDA_ERROR_INVALID_HANDLE);
    const struct sim_profile *profile = &device->identity->profile;
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    INVALID_IF(blocks == 0 || threads == 0 || threads > DRIVER_MAX_BLOCK_THREADS ||
               launch->block[2] > MAX_BLOCK_DEPTH || launch->grid[0] > MAX_GRID_WIDTH ||
               launch->grid[1] > MAX_GRID_OTHER || launch->grid[2] > MAX_GRID_OTHER ||
               launch->shared_bytes > dynamic_shared_limit(function, device->ordinal) ||
               (launch->params && launch->extra));
    INVALID_IF(function->parameter_count && function->parameter_count != PARAMETERS_UNKNOWN &&
               !launch->params && !launch->extra);
    CHECK(check_bounds(function, launch, threads));
    if (function->clusters || launch->cluster[0])
        CHECK(cluster_check(function, device, launch));
    uint64_t resident = 0;
    if (launch->cooperative || profile->calibration.concurrent)
        resident =
            (uint64_t)resident_blocks(profile, function, (uint32_t)threads, launch->shared_bytes) *
            profile->sm_count;
    REFUSE_IF(launch->cooperative && blocks > resident, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    if (profile->calibration.concurrent && blocks < resident)
        need->parts = (uint32_t)((blocks * SIM_PARTS + resident - 1) / resident);
    need->dram_percent = function->image->dram_percent;
    if (!function->loaded) /* written once: launches of several threads share the line */
        function->loaded = true;
    if (function->spins)
        return launch_read_argument(function, launch, 0, &need->cost_ns);
    uint64_t at_once = (uint64_t)profile->sm_count * profile->threads_per_sm;
    need->cost_ns = LAUNCH_NS + (blocks * threads + at_once - 1) / at_once * WAVE_NS;
    return CUDA_SUCCESS;
}

uint64_t launch_overlap_ns(const struct driver_device *device, uint64_t cost_ns)
{
    const struct sim_profile *profile = &device->identity->profile;
    uint64_t most_ns = profile->calibration.dependent_overlap_ns;
    if (profile->compute_major < DEPENDENT_MAJOR)
        return 0;
    return cost_ns / 2 < most_ns ? cost_ns / 2 : most_ns;
}

/* Puts a kernel into a stream, in two parts around its event if it has one. */
static void submit_kernel(struct CUstream_st *stream, const struct launch *launch,
                          struct sim_submission *kernel)
{
    uint64_t overlap_ns = launch_overlap_ns(stream->context->device, kernel->cost_ns);
    if (launch->dependent) {
        kernel->behind = __atomic_load_n(&stream->last, __ATOMIC_ACQUIRE);
        kernel->overlap_ns = overlap_ns;
    }
    if (launch->trigger) {
        struct sim_submission first = *kernel;
        first.cost_ns = launch->triggers_first ? 0 : kernel->cost_ns - overlap_ns;
        stream_submit(stream, &first);
        event_put(launch->trigger, stream, 0);
        kernel->cost_ns -= first.cost_ns;
        kernel->kernels = 0;
        kernel->overlap_ns = 0;
    }
    stream_submit(stream, kernel);
}

static CUresult launch_kernel(CUfunction function, const struct launch *launch, CUstream handle)
{
    struct launch_need need;
    RESOLVE_STREAM(stream, handle);
    CHECK(launch_describe(function, stream->context->device, launch, &need));
    if (function->image->library)
        CHECK(library_module(function->image->library, stream->context, NULL));
    if (__builtin_expect(stream_capture(stream) != NULL, 0)) {
        call_takes_instead(CAPTURED_LAUNCH_NS);
        struct graph_node node = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                  .cost_ns = need.cost_ns,
                                  .kernels = 1,
                                  .function = function,
                                  .launch = launch,
                                  .dependent = launch->dependent};
        CHECK(capture_add(stream, &node));
        return launch->trigger ? capture_record_event(launch->trigger, stream) : CUDA_SUCCESS;
    }
    if (__builtin_expect(!function_is_plain(function), 0)) {
        CHECK(context_prepare_function(stream->context, function));
    }
    if (__builtin_expect(function->meets, 0))
        return meeting_launch(stream, function, launch, need.parts);
    struct sim_submission submission = {.cost_ns = need.cost_ns,
                                        .kind = SIM_OPERATION_KERNEL,
                                        .kernels = 1,
                                        .parts = need.parts,
                                        .dram_percent = need.dram_percent};
    submit_kernel(stream, launch, &submission);
    return CUDA_SUCCESS;
}

/* The event is for launches that wait for it, so it has no time and stays in the process, as documented. */
static CUresult read_trigger(const CUlaunchAttribute *attribute, struct launch *launch)
{
    launch->trigger = attribute->value.programmaticEvent.event;
    launch->triggers_first = attribute->value.programmaticEvent.triggerAtBlockStart != 0;
    INVALID_IF(!is_event(launch->trigger) || attribute->value.programmaticEvent.flags ||
               !(launch->trigger->flags & CU_EVENT_DISABLE_TIMING) ||
               launch->trigger->flags & CU_EVENT_INTERPROCESS);
    return CUDA_SUCCESS;
}

CUresult launch_read_config(const CUlaunchConfig *config, struct launch *launch)
{
    *launch = (struct launch){.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                              .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                              .shared_bytes = config->sharedMemBytes};
    INVALID_IF(config->numAttrs && !config->attrs);
    for (unsigned int i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        switch ((int)attribute->id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            launch->cooperative = attribute->value.cooperative != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: /* three numbers, none of them 0 */
            memcpy(launch->cluster, attribute->value.pad, sizeof launch->cluster);
            INVALID_IF(!launch->cluster[0] || !launch->cluster[1] || !launch->cluster[2]);
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            launch->dependent = attribute->value.programmaticStreamSerializationAllowed != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            CHECK(read_trigger(attribute, launch));
            break;
        case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: /* these hand out an event or a node */
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            INVALID_IF((unsigned int)attribute->id >
                       CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
        }
    }
    return CUDA_SUCCESS;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra)
{
    CALL_TAKES(cuLaunchKernel);
    struct launch launch = {.grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .shared_bytes = shared_bytes,
                            .params = params,
                            .extra = extra};
    return launch_kernel(function, &launch, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra)
{
    CALL_TAKES(cuLaunchKernelEx);
    struct launch launch;
    DRIVER_CHECK();
    CHECK(config ? launch_read_config(config, &launch) : CUDA_ERROR_INVALID_VALUE);
    launch.params = params;
    launch.extra = extra;
    return launch_kernel(function, &launch, config->hStream);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **params)
{
    CALL_TAKES(cuLaunchKernel);
    struct launch launch = {.grid = {grid_x, grid_y, grid_z},
                            .block = {block_x, block_y, block_z},
                            .shared_bytes = shared_bytes,
                            .params = params,
                            .cooperative = true};
    return launch_kernel(function, &launch, stream);
}
