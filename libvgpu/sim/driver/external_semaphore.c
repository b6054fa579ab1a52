/*
 * Semaphores of other interfaces. A descriptor of an eventfd stands for one, whoever made it: a signal adds to
 * it, and a wait takes all that is there, as with the binary semaphores behind opaque descriptors. Both run on a
 * thread of the driver when their stream gets there; a wait looks again and again, as one for a word of memory
 * does, and ends with its context. Two processes that wait for one semaphore may both be looking when it is
 * signalled; who comes too late waits in the kernel for the next signal.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "twins.h"

#define MAGIC_SEMAPHORE 0x6f6870616d657365ull
#define MIN_SLEEP_NS 10000
#define MAX_SLEEP_NS 640000
#define EVENT_FILE "anon_inode:[eventfd]"

struct
    CUextSemaphore_st { /* freed with the last of its holders: the program, and calls in streams */
    uint64_t magic;
    int descriptor;
    uint32_t holders; /* atomic */
};

/* Some semaphores that a stream waits for, or signals. */
struct batch {
    bool waits;
    unsigned int count;
    CUexternalSemaphore semaphores[];
};

static bool is_semaphore(CUexternalSemaphore semaphore)
{
    return semaphore && semaphore->magic == MAGIC_SEMAPHORE;
}

static void let_go(CUexternalSemaphore semaphore)
{
    if (__atomic_sub_fetch(&semaphore->holders, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    close(semaphore->descriptor);
    free(semaphore);
}

static bool is_event_file(int descriptor)
{
    char path[64], name[sizeof EVENT_FILE] = {0};
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    return readlink(path, name, sizeof name) == sizeof EVENT_FILE - 1 &&
           memcmp(name, EVENT_FILE, sizeof EVENT_FILE - 1) == 0;
}

static bool is_taken(CUexternalSemaphore semaphore)
{
    struct pollfd look = {.fd = semaphore->descriptor, .events = POLLIN};
    uint64_t signals;
    return poll(&look, 1, 0) == 1 &&
           read(semaphore->descriptor, &signals, sizeof signals) == sizeof signals;
}

static void wait_for(CUexternalSemaphore semaphore)
{
    struct timespec pause = {.tv_nsec = MIN_SLEEP_NS};
    while (!is_taken(semaphore) && !stream_call_is_cut_short()) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < MAX_SLEEP_NS)
            pause.tv_nsec *= 2;
    }
}

static void signal_one(CUexternalSemaphore semaphore)
{
    static const uint64_t one = 1;
    if (write(semaphore->descriptor, &one, sizeof one) < 0)
        return; /* it has been signalled 2^64 times, and nobody waits */
}

static void end_batch(struct batch *batch)
{
    for (unsigned int i = 0; i < batch->count; i++)
        let_go(batch->semaphores[i]);
    free(batch);
}

static void run_batch(void *argument)
{
    struct batch *batch = argument;
    for (unsigned int i = 0; i < batch->count; i++)
        (batch->waits ? wait_for : signal_one)(batch->semaphores[i]);
    end_batch(batch);
}

static CUresult submit(CUstream handle, const CUexternalSemaphore *semaphores, unsigned int count,
                       bool waits)
{
    RESOLVE_STREAM(stream, handle);
    INVALID_IF(count && !semaphores);
    for (unsigned int i = 0; i < count; i++)
        REFUSE_IF(!is_semaphore(semaphores[i]), CUDA_ERROR_INVALID_HANDLE);
    if (stream_capture(stream))
        return capture_refuse(stream); /* there are no such nodes here */
    struct batch *batch = malloc(sizeof *batch + count * sizeof batch->semaphores[0]);
    REFUSE_IF(!batch, CUDA_ERROR_OUT_OF_MEMORY);
    batch->waits = waits;
    batch->count = count;
    for (unsigned int i = 0; i < count; i++) {
        batch->semaphores[i] = semaphores[i];
        __atomic_add_fetch(&semaphores[i]->holders, 1, __ATOMIC_RELAXED);
    }
    CUresult result = stream_call(stream, run_batch, batch);
    if (result != CUDA_SUCCESS)
        end_batch(batch);
    return result;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuImportExternalSemaphore(CUexternalSemaphore *semaphore,
                                   const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *description)
{
    CURRENT_CONTEXT(context);
    (void)context;
    INVALID_IF(!semaphore || !description || description->flags);
    if (description->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD)
        return description->type < CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_ERROR_NOT_SUPPORTED; /* those of other systems, NvSciSync, timelines */
    REFUSE_IF(!is_event_file(description->handle.fd), CUDA_ERROR_INVALID_HANDLE);
    struct CUextSemaphore_st *made = calloc(1, sizeof *made);
    REFUSE_IF(!made, CUDA_ERROR_OUT_OF_MEMORY);
    made->descriptor = fcntl(description->handle.fd, F_DUPFD_CLOEXEC, 0);
    if (made->descriptor < 0) {
        free(made);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    close(description->handle.fd); /* which is the driver's now */
    made->magic = MAGIC_SEMAPHORE;
    made->holders = 1;
    *semaphore = made;
    return CUDA_SUCCESS;
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore semaphore)
{
    DRIVER_CHECK();
    REFUSE_IF(!is_semaphore(semaphore), CUDA_ERROR_INVALID_HANDLE);
    semaphore->magic = 0;
    let_go(semaphore);
    return CUDA_SUCCESS;
}

/* What they are told besides (values of fences, keys of mutexes) is for semaphores of other kinds. */
CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                         const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *signals,
                                         unsigned int count, CUstream stream)
{
    INVALID_IF(count && !signals);
    return submit(stream, semaphores, count, false);
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *semaphores,
                                       const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *waits,
                                       unsigned int count, CUstream stream)
{
    INVALID_IF(count && !waits);
    return submit(stream, semaphores, count, true);
}

TWIN(cuSignalExternalSemaphoresAsync_ptsz,
     (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *signals,
      unsigned int count, CUstream stream),
     cuSignalExternalSemaphoresAsync(semaphores, signals, count, OWN(stream)))
TWIN(cuWaitExternalSemaphoresAsync_ptsz,
     (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *waits,
      unsigned int count, CUstream stream),
     cuWaitExternalSemaphoresAsync(semaphores, waits, count, OWN(stream)))
