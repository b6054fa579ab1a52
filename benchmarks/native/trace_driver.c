/*
 * The driver as trace_client.c uses it: entry points from cuGetProcAddress, as cudart's are, a
 * kernel for each kind, and one call at a time. On a real GPU the first block of a kernel works and
 * the others end at once; a simulated one goes by the kernel's name. For one thread.
 */
#include "trace_driver.h"

#include <dlfcn.h>

#include "client.h"

#define API_VERSION 12000 /* the first one where cuGetProcAddress_v2 exists */
/* What is put into ptx_entry for the number and the body. */
#define KERNEL_TEXT_BYTES (sizeof ptx_entry + 10 + sizeof ptx_body)

static const char ptx_begin[] = CLIENT_PTX_BEGIN;
static const char ptx_entry[] = ".visible .entry k%u_spin_ns%s";
static const char ptx_body[] = CLIENT_PTX_SPIN_BODY;

/* What is asked of the driver: our name of it, public name, symbol in our declarations. */
#define DRIVER_CALLS(X) \
    X(init, "cuInit", cuInit) \
    X(retain, "cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain) \
    X(set_current, "cuCtxSetCurrent", cuCtxSetCurrent) \
    X(load, "cuModuleLoadData", cuModuleLoadData) \
    X(get_function, "cuModuleGetFunction", cuModuleGetFunction) \
    X(create_stream, "cuStreamCreate", cuStreamCreate) \
    X(create_event, "cuEventCreate", cuEventCreate) \
    X(allocate, "cuMemAlloc", cuMemAlloc_v2) \
    X(allocate_host, "cuMemHostAlloc", cuMemHostAlloc) \
    X(begin_capture, "cuStreamBeginCapture", cuStreamBeginCapture_v2) \
    X(end_capture, "cuStreamEndCapture", cuStreamEndCapture) \
    X(instantiate, "cuGraphInstantiateWithFlags", cuGraphInstantiateWithFlags) \
    X(destroy_graph, "cuGraphDestroy", cuGraphDestroy) \
    X(launch, "cuLaunchKernel", cuLaunchKernel) \
    X(launch_ex, "cuLaunchKernelEx", cuLaunchKernelEx) \
    X(launch_cooperative, "cuLaunchCooperativeKernel", cuLaunchCooperativeKernel) \
    X(launch_graph, "cuGraphLaunch", cuGraphLaunch) \
    X(fill, "cuMemsetD8Async", cuMemsetD8Async) \
    X(copy_in, "cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2) \
    X(copy_out, "cuMemcpyDtoHAsync", cuMemcpyDtoHAsync_v2) \
    X(copy_within, "cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2) \
    X(sync_stream, "cuStreamSynchronize", cuStreamSynchronize) \
    X(sync_context, "cuCtxSynchronize", cuCtxSynchronize) \
    X(is_capturing, "cuStreamIsCapturing", cuStreamIsCapturing) \
    X(wait_event, "cuStreamWaitEvent", cuStreamWaitEvent) \
    X(record_event, "cuEventRecord", cuEventRecord) \
    X(query_event, "cuEventQuery", cuEventQuery) \
    X(sync_event, "cuEventSynchronize", cuEventSynchronize) \
    X(get_attribute, "cuFuncGetAttribute", cuFuncGetAttribute) \
    X(set_attribute, "cuFuncSetAttribute", cuFuncSetAttribute) \
    X(get_device_attribute, "cuDeviceGetAttribute", cuDeviceGetAttribute) \
    X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", \
      cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)

static struct {
#define X(name, public_name, symbol) __typeof__(&symbol) name;
    DRIVER_CALLS(X)
#undef X
} driver;

static CUfunction *kernels;
static CUstream streams[TRACE_MOST_HANDLES]; /* the first stays NULL: the legacy default stream */
static CUevent events[TRACE_MOST_HANDLES];
static CUgraphExec graph;
static CUdeviceptr source, target;
static void *pinned, *pageable;
static uint64_t rounds_per_ms;

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "no memory for kernels and copies\n");
        exit(1);
    }
    return memory;
}

static void resolve(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    __typeof__(&cuGetProcAddress_v2) get = NULL;
    CUdriverProcAddressQueryResult status;
    if (library != NULL)
        *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
    if (get == NULL) {
        fprintf(stderr, "no libcuda.so.1 with cuGetProcAddress_v2: %s\n", dlerror());
        exit(1);
    }
#define X(name, public_name, symbol) \
    MUST(get(public_name, (void **)&driver.name, API_VERSION, 0, &status));
    DRIVER_CALLS(X)
#undef X
}

static void do_call(struct trace_row *row, CUstream stream)
{
    int is_of_event = trace_call_is_of_event(row->call);
    CUfunction kernel = is_of_event ? NULL : kernels[row->number];
    CUevent event = is_of_event ? events[row->number] : NULL;
    struct client_spin work = client_spin(row->gpu_ns, rounds_per_ms, 1, 1);
    void *params[] = CLIENT_SPIN_PARAMS(work);
    int value;
    switch (row->call) {
    case TRACE_LAUNCH:
        MUST(driver.launch(kernel, row->blocks, 1, 1, row->threads, 1, 1, 0, stream, params, NULL));
        break;
    case TRACE_LAUNCH_EX: {
        CUlaunchConfig config = {row->blocks, 1, 1, row->threads, 1, 1, 0, stream, NULL, 0};
        MUST(driver.launch_ex(&config, kernel, params, NULL));
        break;
    }
    case TRACE_LAUNCH_COOPERATIVE:
        MUST(driver.launch_cooperative(kernel, row->blocks, 1, 1, row->threads, 1, 1, 0, stream,
                                       params));
        break;
    case TRACE_LAUNCH_GRAPH:
        MUST(driver.launch_graph(graph, stream));
        break;
    case TRACE_MEMSET:
        MUST(driver.fill(target, 0, row->bytes, stream));
        break;
    case TRACE_COPY_IN:
        MUST(driver.copy_in(target, pinned, row->bytes, stream));
        break;
    case TRACE_COPY_IN_PAGEABLE:
        MUST(driver.copy_in(target, pageable, row->bytes, stream));
        break;
    case TRACE_COPY_OUT:
        MUST(driver.copy_out(pinned, source, row->bytes, stream));
        break;
    case TRACE_COPY_OUT_PAGEABLE:
        MUST(driver.copy_out(pageable, source, row->bytes, stream));
        break;
    case TRACE_COPY_WITHIN:
        MUST(driver.copy_within(target, source, row->bytes, stream));
        break;
    case TRACE_SYNC_STREAM:
        MUST(driver.sync_stream(stream));
        break;
    case TRACE_SYNC_CONTEXT:
        MUST(driver.sync_context());
        break;
    case TRACE_IS_CAPTURING: {
        CUstreamCaptureStatus status;
        MUST(driver.is_capturing(stream, &status));
        break;
    }
    case TRACE_WAIT_EVENT:
        MUST(driver.wait_event(stream, event, 0));
        break;
    case TRACE_RECORD_EVENT:
        MUST(driver.record_event(event, stream));
        break;
    case TRACE_QUERY_EVENT:
        driver.query_event(event); /* not being done is no error */
        break;
    case TRACE_SYNC_EVENT:
        MUST(driver.sync_event(event));
        break;
    case TRACE_GET_FUNCTION:
        MUST(driver.get_attribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel));
        break;
    case TRACE_SET_FUNCTION:
        MUST(driver.set_attribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0));
        break;
    case TRACE_GET_DEVICE:
        MUST(driver.get_device_attribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        break;
    case TRACE_OCCUPANCY:
        MUST(driver.occupancy(&value, kernel, 128, 0, 0));
        break;
    case TRACE_NOTHING:
    case TRACE_CALL_COUNT:
        break;
    }
}

static void load_kernels(unsigned kinds)
{
    unsigned count = kinds > 0 ? kinds : 1; /* what asks about a kernel needs one */
    size_t size = sizeof ptx_begin + (size_t)count * KERNEL_TEXT_BYTES, used;
    char *text = need(malloc(size)), name[32];
    CUmodule module;
    kernels = need(calloc(count, sizeof *kernels));
    used = (size_t)snprintf(text, size, "%s", ptx_begin);
    for (unsigned kind = 0; kind < count; kind++)
        used += (size_t)snprintf(text + used, size - used, ptx_entry, kind, ptx_body);
    MUST(driver.load(&module, text));
    for (unsigned kind = 0; kind < count; kind++) {
        snprintf(name, sizeof name, "k%u_spin_ns", kind);
        MUST(driver.get_function(&kernels[kind], module, name));
    }
    free(text);
}

void trace_driver_prepare(struct trace_script *script, uint64_t rounds_per_ms_)
{
    rounds_per_ms = rounds_per_ms_;
    CUcontext context;
    size_t bytes = script->bytes > 0 ? script->bytes : 1;
    resolve();
    MUST(driver.init(0));
    MUST(driver.retain(&context, 0));
    MUST(driver.set_current(context));
    load_kernels(script->kinds);
    for (unsigned i = 1; i < script->streams; i++)
        MUST(driver.create_stream(&streams[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < script->events; i++)
        MUST(driver.create_event(&events[i], CU_EVENT_DISABLE_TIMING));
    MUST(driver.allocate(&source, bytes));
    MUST(driver.allocate(&target, bytes));
    MUST(driver.allocate_host(&pinned, bytes, 0));
    pageable = need(calloc(1, bytes));
    if (script->graph.count > 0) {
        CUgraph recorded;
        CUstream capturing; /* the default stream cannot be captured */
        MUST(driver.create_stream(&capturing, CU_STREAM_NON_BLOCKING));
        MUST(driver.begin_capture(capturing, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        for (unsigned i = 0; i < script->graph.count; i++)
            do_call(&script->graph.rows[i], capturing);
        MUST(driver.end_capture(capturing, &recorded));
        MUST(driver.instantiate(&graph, recorded, 0));
        MUST(driver.destroy_graph(recorded));
    }
}

void trace_driver_call(struct trace_row *row)
{
    do_call(row, streams[row->stream]);
}

void trace_driver_wait(void)
{
    MUST(driver.sync_context());
}
