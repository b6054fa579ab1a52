#include "throttle_model_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "compute/cap/budget.h"
#include "compute/cap/throttle.h"
#include "compute/cap/uncapped.h"
#include "driver/capture.h"
#include "driver/real.h"
#include "memory/local/local_memory.h"
#include "slice/devices.h"
#include "slice/limits_file.h"
#include "slice/region.h"
#include "slice/usage_file.h"
#include "slice/waiting.h"

#define COROUTINES 4
#define STACK_BYTES (1 << 17) /* ASan clears its notes of all of it at each switch */
#define CLOCK_NS 20           /* of reading the clock: who spins on it gets on */
#define BLOCKS 33

struct real real;
int64_t model_launch_ns = 2 * US, model_call_ns = 100;
int64_t model_records, model_launches[MODEL_DEVICES], model_prepaid, model_sleeps;

/* ---- coroutines ------------------------------------------------------------------------------ */

static struct coroutine {
    ucontext_t context;
    void (*body)(void *);
    void *argument;
    int64_t now_ns;
    bool is_over;
    char stack[STACK_BYTES];
} coroutines[COROUTINES];
static int coroutine_count;
static struct coroutine *running;
static ucontext_t scheduler;

static void enter(void)
{
    running->body(running->argument);
    running->is_over = true;
}

void model_add(void (*body)(void *), void *argument)
{
    struct coroutine *added = &coroutines[coroutine_count++];
    added->body = body;
    added->argument = argument;
    added->now_ns = MODEL_START_NS;
    getcontext(&added->context);
    added->context.uc_stack.ss_sp = added->stack;
    added->context.uc_stack.ss_size = STACK_BYTES;
    added->context.uc_link = &scheduler;
    makecontext(&added->context, enter, 0);
}

static struct coroutine *furthest_behind(void)
{
    struct coroutine *next = NULL;
    for (int i = 0; i < coroutine_count; i++)
        if (!coroutines[i].is_over && (next == NULL || coroutines[i].now_ns < next->now_ns))
            next = &coroutines[i];
    return next;
}

void model_run(void)
{
    while ((running = furthest_behind()) != NULL)
        swapcontext(&scheduler, &running->context);
}

int64_t model_now_ns(void)
{
    return running->now_ns;
}

/* Lets time pass; others go on meanwhile. Not with a lock of the shim's held. */
void model_pause(int64_t ns)
{
    running->now_ns += ns;
    if (furthest_behind()->now_ns < running->now_ns)
        swapcontext(&running->context, &scheduler);
}

int64_t waiting_now_ns(void)
{
    return running->now_ns += CLOCK_NS;
}

void waiting_sleep_until(int64_t until_ns)
{
    model_sleeps++;
    model_pause(until_ns > running->now_ns ? until_ns - running->now_ns : 0);
}

void waiting_on_word(const uint32_t *word, uint32_t expected, int64_t until_ns)
{
    waiting_sleep_until(*word == expected ? until_ns : running->now_ns);
}

bool ticket_lock_is_busy(const struct ticket_lock *lock)
{
    return lock->next != lock->serving;
}

void ticket_lock_enter(struct ticket_lock *lock)
{
    uint32_t mine = lock->next++;
    while (lock->serving != mine)
        model_pause(US);
}

void ticket_lock_leave(struct ticket_lock *lock)
{
    lock->serving++;
}

/* ---- the driver ------------------------------------------------------------------------------ */

static CUresult get_current(CUcontext *context)
{
    *context = (CUcontext)real.cuEventQuery; /* one for all, whatever it is */
    return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *event, unsigned int flags)
{
    *event = calloc(1, sizeof **event);
    return CUDA_SUCCESS;
}

static CUresult record_event(CUevent event, CUstream stream)
{
    model_records++;
    gpu_submit(stream,
               (struct gpu_operation){GPU_EVENT, running->now_ns, MODEL_EVENT_NS, .event = event});
    running->now_ns += model_call_ns;
    return CUDA_SUCCESS;
}

static CUresult query_event(CUevent event)
{
    running->now_ns += model_call_ns;
    return event->at_ns > running->now_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult elapsed_time(float *ms, CUevent begin, CUevent end)
{
    *ms = (float)(end->at_ns - begin->at_ns) / 1e6f;
    return CUDA_SUCCESS;
}

static CUresult query_stream(CUstream stream)
{
    running->now_ns += model_call_ns;
    return gpu_stream_end_ns(stream) > running->now_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    gpu_device_of(stream);
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUcontext devices_context_of(CUstream stream)
{
    CUcontext context;
    gpu_device_of(stream);
    get_current(&context);
    return context;
}

struct capture_pause capture_pause(void)
{
    return (struct capture_pause){0};
}

void capture_resume(struct capture_pause pause)
{
}

bool gate_pending_is_ambiguous(void)
{
    return false;
}

bool capture_begins_elsewhere(void)
{
    return false;
}

bool capture_is_any(void)
{
    return false;
}

void uncapped_forget_context(CUcontext context)
{
}

/* ---- the slice ------------------------------------------------------------------------------- */

static union {
    char bytes[1 << 20];
    struct vgpu_limits_header header;
} limits;
static union {
    char bytes[1 << 22];
    struct vgpu_usage_header header;
} usage;
static struct vgpu_limits_copy head = {.family = VGPU_FAMILY_VGPU};
static struct vgpu_device_limit devices[MODEL_DEVICES];

enum region_state region_open(void)
{
    return REGION_MAPPED;
}

const void *region_limits(void)
{
    return &limits;
}

void *region_usage(void)
{
    return &usage;
}

uint32_t region_device_count(void)
{
    return head.device_count;
}

uint32_t region_family(void)
{
    return VGPU_FAMILY_VGPU;
}

struct vgpu_usage_device *region_shared(uint32_t device)
{
    return usage_device(&usage, device);
}

uint32_t region_slot(void)
{
    return 0;
}

struct vgpu_usage_slot_device *region_counters(uint32_t device)
{
    return usage_slot_device(&usage, 0, device);
}

bool region_ring(uint32_t device)
{
    return true;
}

void model_begin(uint32_t count)
{
    real.cuCtxGetCurrent = get_current;
    real.cuEventCreate = create_event;
    real.cuEventRecord = record_event;
    real.cuEventQuery = query_event;
    real.cuEventElapsedTime = elapsed_time;
    real.cuStreamQuery = query_stream;
    real.cuStreamIsCapturing = is_capturing;
    if (sizeof limits < limits_file_bytes(count) || sizeof usage < usage_file_bytes(count))
        abort();
    limits_format(&limits, count);
    usage_format(&usage, count, "model");
    usage.header.hi_slot = 1;
    head.device_count = count;
}

void model_cap(uint32_t device, uint32_t percent, uint32_t mode)
{
    devices[device].core_percent = devices[device].weight = percent;
    devices[device].compute_mode = mode;
    limits_publish(&limits, &head, devices);
}

void model_grant(uint32_t device, struct vgpu_grant grant)
{
    struct vgpu_grant *at = (void *)(limits.bytes + limits.header.grant_offset +
                                     (size_t)device * limits.header.grant_stride);
    grant.number = at->number + 2;
    *at = grant;
}

/* ---- the program ----------------------------------------------------------------------------- */

static char functions[MODEL_KINDS][64]; /* handles */

CUstream model_stream(uint32_t device)
{
    return gpu_stream(device);
}

void model_end_stream(CUstream stream)
{
    throttle_forget_stream(stream);
    gpu_end_stream(stream);
    model_pause(model_call_ns);
}

/* What the hooks of launches do. */
static bool launch(CUstream stream, int kind, bool is_collective, struct gpu_operation operation)
{
    uint32_t device = gpu_device_of(stream);
    const void *function = functions[kind];
    struct launch own = {.device = device,
                         .is_collective = is_collective,
                         .key = estimate_key(function, BLOCKS),
                         .stream = stream};
    model_launches[device]++;
    bool is_bare = devices[device].core_percent == 0;
    bool is_prepaid = !is_bare && (budget_take(function, BLOCKS, stream) ||
                                   budget_take_elsewhere(function, BLOCKS, stream));
    if (!is_bare && !is_prepaid)
        throttle_before(&own);
    model_prepaid += is_prepaid;
    model_pause(model_launch_ns * MODEL_SUBMITTED_PERCENT / 100);
    operation.submitted_ns = running->now_ns;
    gpu_submit(stream, operation);
    model_pause(model_launch_ns * (100 - MODEL_SUBMITTED_PERCENT) / 100);
    if (own.batch != 0)
        throttle_after(&own);
    model_pause(0);
    return is_prepaid;
}

bool model_launch(CUstream stream, int kind, int64_t gpu_ns)
{
    return launch(stream, kind, false, (struct gpu_operation){GPU_KERNEL, .gpu_ns = gpu_ns});
}

void model_spin(CUstream stream, int kind, int word, int64_t value, int64_t gpu_ns)
{
    launch(stream, kind, false,
           (struct gpu_operation){GPU_SPIN, .gpu_ns = gpu_ns, .word = word, .value = value});
}

void model_collective(CUstream stream, int kind, int64_t gpu_ns)
{
    launch(stream, kind, true, (struct gpu_operation){GPU_COLLECTIVE, .gpu_ns = gpu_ns});
}

void model_wait_word(CUstream stream, int word, int64_t value)
{
    throttle_before_wait(); /* as the hook does */
    gpu_submit(stream,
               (struct gpu_operation){GPU_WAIT, running->now_ns, .word = word, .value = value});
    model_pause(model_call_ns);
}

void model_write_word(CUstream stream, int word, int64_t value)
{
    gpu_submit(stream,
               (struct gpu_operation){GPU_WRITE, running->now_ns, .word = word, .value = value});
    model_pause(model_call_ns);
}

void model_host_writes(int word, int64_t value)
{
    gpu_host_writes(word, value, running->now_ns);
    model_pause(model_call_ns);
}

void model_sync(CUstream stream)
{
    int64_t began_ns = throttle_before_wait();
    while (gpu_stream_end_ns(stream) > running->now_ns) {
        int64_t end_ns = gpu_stream_end_ns(stream);
        model_pause(end_ns == GPU_NEVER ? US : end_ns - running->now_ns);
    }
    running->now_ns += MODEL_WAKE_NS;
    throttle_after_wait(began_ns);
}
