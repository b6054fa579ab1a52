/* Which questions about local memory the driver is asked, and what is pending: local_memory.c and
 * its like on a driver that counts. A kernel and its function are two handles here, as on a GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/cap/gate.h"
#include "compute/cap/throttle.h"
#include "driver/capture.h"
#include "driver/log.h"
#include "driver/real.h"
#include "memory/contexts/context_charge.h"
#include "memory/contexts/reconcile.h"
#include "memory/ledger/block.h"
#include "memory/local/local_functions.h"
#include "memory/local/local_memory.h"
#include "slice/devices.h"
#include "slice/region.h"
#include "vgpu/contract.h"

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

#define THREADS (132 * 2048)
#define HANDLE(number) ((void *)(uintptr_t)(number))
#define CONTEXT(device) ((CUcontext)HANDLE(0x1000 + (device)))
#define OTHER_CONTEXT ((CUcontext)HANDLE(0x2000))
#define LIBRARY ((CUlibrary)HANDLE(0x3000))
#define MODULE ((CUmodule)HANDLE(0x4000))
#define MANY 20000

/* What a handle needs lies in it. */
#define KERNEL(number, bytes) HANDLE(0x100000000 + (uint64_t)(number) * 0x1000000 + (bytes))
static int bytes_of(const void *handle)
{
    return (int)((uintptr_t)handle & 0xffffff);
}

struct real real;
static CUcontext current = CONTEXT(0);
static int function_questions, kernel_questions, gate_shuts;
static uint64_t charged_bytes;

/* ---- the driver ---- */

static CUresult get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
    *device = current == CONTEXT(1);
    return CUDA_SUCCESS;
}

static CUresult get_limit(size_t *bytes, CUlimit limit)
{
    *bytes = 1024;
    return CUDA_SUCCESS;
}

static CUcontext below;
static CUresult push(CUcontext context)
{
    below = current;
    current = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    *context = current;
    current = below;
    return CUDA_SUCCESS;
}

static CUresult function_attribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    function_questions++;
    *value = bytes_of(function);
    return CUDA_SUCCESS;
}

static CUresult kernel_attribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                                 CUdevice device)
{
    kernel_questions++;
    *value = bytes_of(kernel);
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132 : 2048;
    return CUDA_SUCCESS;
}

/* ---- what local memory needs around it ---- */

enum region_state region_open(void)
{
    return REGION_MAPPED;
}

bool region_claim(void)
{
    return true;
}

struct vgpu_usage_slot_device *region_counters(uint32_t device)
{
    static struct vgpu_usage_slot_device counters;
    return &counters;
}

void contexts_lock(void)
{
}

void contexts_unlock(void)
{
}

struct capture_pause capture_pause(void)
{
    return (struct capture_pause){0};
}

void capture_resume(struct capture_pause pause)
{
}

bool capture_is_active(CUstream stream)
{
    return false;
}

int devices_find(CUdevice device)
{
    return device;
}

bool devices_ordinal_of_stream(CUstream stream, CUdevice *ordinal)
{
    return get_device(ordinal) == CUDA_SUCCESS;
}

CUcontext devices_own_context_of(CUstream stream)
{
    return current;
}

uint64_t block_known_bytes(uint32_t device)
{
    return BLOCK_STEP_BYTES;
}

bool reconcile_own_bytes(uint32_t device, uint64_t *bytes)
{
    return false; /* what was computed stands */
}

void gate_announce_pending(const struct gate_pending *asked)
{
    CHECK(asked->is_any == local_functions_any_pending);
}

void gate_shut(void)
{
    gate_shuts++;
}

void throttle_forget_functions(void)
{
}

void log_line(enum log_level level, const char *format, ...)
{
    CHECK(false);
}

CUresult charge_resize(struct charge *charge, uint64_t bytes)
{
    charged_bytes += bytes - charge->bytes;
    charge->bytes = bytes;
    return CUDA_SUCCESS;
}

void charge_force(struct charge *charge, int device, uint16_t kind, uint64_t bytes)
{
    *charge = (struct charge){.device = device, .kind = kind};
    charge_resize(charge, bytes);
}

void charge_cancel(const struct charge *charge)
{
    charged_bytes -= charge->bytes;
}

/* ---- cases ---- */

static void hand_out(CUkernel kernel)
{
    local_memory_handed_out_kernels(&kernel, 1, LIBRARY);
}

/* What a launch hook does. Returns the bytes that its growth was charged. */
static uint64_t launch(void *function)
{
    struct local_growth growth;
    uint64_t before_bytes = charged_bytes;
    if (local_functions_is_pending(function)) {
        CHECK(local_memory_begin(&growth, function, NULL) == CUDA_SUCCESS);
        local_memory_end(&growth, CUDA_SUCCESS);
    }
    return charged_bytes - before_bytes;
}

static void a_kernel_is_asked_before_its_first_launch_only(void)
{
    CUkernel small = KERNEL(1, 0), large = KERNEL(2, 4096), never = KERNEL(3, 8192);
    local_memory_context_made(CONTEXT(0));
    hand_out(small);
    hand_out(large);
    hand_out(never);
    hand_out(small);
    CHECK(kernel_questions == 0 && function_questions == 0);
    CHECK(launch(small) == 0 && kernel_questions == 1);
    CHECK(launch(large) == (uint64_t)3072 * THREADS && kernel_questions == 2);
    CHECK(!local_functions_is_pending(small) && !local_functions_is_pending(large));
    CHECK(launch(small) == 0 && launch(large) == 0 && kernel_questions == 2);
    CHECK(local_functions_is_pending(never));
    local_memory_unloaded(LIBRARY);
    CHECK(!local_functions_any_pending());
}

static void a_kernel_whose_function_is_handed_out_is_pending_no_longer(void)
{
    CUkernel small = KERNEL(1, 0), large = KERNEL(2, 4096);
    CUfunction of_small = KERNEL(3, 0), of_large = KERNEL(4, 4096);
    local_memory_context_made(CONTEXT(0));
    hand_out(small);
    local_memory_handed_out_function(of_small, small);
    CHECK(kernel_questions == 0 && function_questions == 1);
    CHECK(!local_functions_any_pending());
    hand_out(large);
    local_memory_handed_out_function(of_large, large);
    CHECK(local_functions_is_pending(large) && local_functions_is_pending(of_large));
    CHECK(launch(of_large) == (uint64_t)3072 * THREADS);
    CHECK(kernel_questions == 0 && !local_functions_any_pending());
}

static void a_kernel_is_asked_on_each_device(void)
{
    CUkernel large = KERNEL(1, 4096);
    local_memory_context_made(CONTEXT(0));
    local_memory_context_made(CONTEXT(1));
    hand_out(large);
    CHECK(launch(large) == (uint64_t)3072 * THREADS && kernel_questions == 1);
    CHECK(local_functions_is_pending(large));
    current = CONTEXT(1);
    CHECK(launch(large) == (uint64_t)3072 * THREADS && kernel_questions == 2);
    CHECK(!local_functions_any_pending());
}

static void a_function_that_needs_none_is_asked_once_and_never_pending(void)
{
    CUfunction small = KERNEL(1, 0), large = KERNEL(2, 4096), common = KERNEL(3, 1024);
    CUfunction all[] = {small, large, common, NULL};
    local_memory_context_made(CONTEXT(0));
    local_memory_handed_out(all, 4, MODULE);
    CHECK(function_questions == 3 && kernel_questions == 0);
    CHECK(local_functions_find(small) == NULL && local_functions_is_pending(large));
    CHECK(!local_functions_is_pending(common));
    launch(large);
    CHECK(!local_functions_any_pending());
    local_memory_limit_set(CONTEXT(0), 2048);
    CHECK(local_functions_is_pending(large) && !local_functions_is_pending(common));
}

static void another_context_makes_a_kernel_pending_again_there(void)
{
    CUkernel large = KERNEL(1, 4096);
    local_memory_context_made(CONTEXT(0));
    hand_out(large);
    launch(large);
    CHECK(!local_functions_any_pending());
    local_memory_context_made(OTHER_CONTEXT);
    CHECK(local_functions_is_pending(large) && local_memory_is_ambiguous());
    CHECK(launch(large) == 0);
    current = OTHER_CONTEXT;
    CHECK(launch(large) == (uint64_t)3072 * THREADS);
    CHECK(!local_functions_any_pending() && !local_memory_is_ambiguous());
    CHECK(kernel_questions == 1);
    local_memory_context_ended(OTHER_CONTEXT);
    CHECK(!local_functions_any_pending() && charged_bytes == (uint64_t)3072 * THREADS);
}

static void many_are_all_known_and_their_places_used_again(void)
{
    local_memory_context_made(CONTEXT(0));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            hand_out(KERNEL(i, 0));
        for (int i = 0; i < MANY; i++)
            CHECK(local_functions_is_pending(KERNEL(i, 0)));
        for (int i = 0; i < MANY; i++)
            launch(KERNEL(i, 0));
        CHECK(kernel_questions == MANY * (round + 1) && !local_functions_any_pending());
        local_memory_unloaded(LIBRARY);
        CHECK(local_functions_find(KERNEL(7, 0)) == NULL);
    }
}

int main(int count, char **words)
{
    real.cuCtxGetCurrent = get_current;
    real.cuCtxGetDevice = get_device;
    real.cuCtxGetLimit = get_limit;
    real.cuCtxPushCurrent_v2 = push;
    real.cuCtxPopCurrent_v2 = pop;
    real.cuFuncGetAttribute = function_attribute;
    real.cuKernelGetAttribute = kernel_attribute;
    real.cuDeviceGetAttribute = device_attribute;
#define CASE(name) \
    if (count == 2 && strcmp(words[1], #name) == 0) { \
        name(); \
        return 0; \
    }
    CASE(a_kernel_is_asked_before_its_first_launch_only)
    CASE(a_kernel_whose_function_is_handed_out_is_pending_no_longer)
    CASE(a_kernel_is_asked_on_each_device)
    CASE(a_function_that_needs_none_is_asked_once_and_never_pending)
    CASE(another_context_makes_a_kernel_pending_again_there)
    CASE(many_are_all_known_and_their_places_used_again)
    return 2;
}
