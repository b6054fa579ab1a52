/* cuInit and what can be asked without a device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call_cost.h"
#include "driver.h"

#define DEFAULT_VERSION 13000 /* what a driver without a machine says */

struct driver driver = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                        .ended = PTHREAD_COND_INITIALIZER,
                        .failure = CUDA_ERROR_NOT_INITIALIZED};

CUresult driver_check(void)
{
    REFUSE_IF(__builtin_expect(!__atomic_load_n(&driver.ready, __ATOMIC_ACQUIRE), 0),
              CUDA_ERROR_NOT_INITIALIZED);
    return sim_machine_faulty(driver.machine) ? fault_answer(NULL) : CUDA_SUCCESS;
}

int driver_version(void)
{
    static int version;
    int known = __atomic_load_n(&version, __ATOMIC_RELAXED);
    if (known)
        return known;
    const char *directory = getenv("VGPU_SIM_MACHINE");
    uint32_t found = DEFAULT_VERSION;
    if (directory && sim_machine_peek_version(directory, &found) == 0)
        __atomic_store_n(&version, (int)found, __ATOMIC_RELAXED);
    return (int)found;
}

/* As with the real driver, a child cannot go on with its parent's state nor start its own. */
static void forget_in_child(void)
{
    if (driver.machine)
        sim_machine_forget(driver.machine);
    driver.forked = driver.forked || driver.machine; /* a child's child is one too */
    driver.machine = NULL;
    driver.ready = false;
    driver.calibration = NULL; /* it lay in the machine's file */
    pthread_mutex_init(&driver.mutex, NULL);
    pthread_cond_init(&driver.ended, NULL);
    pthread_mutex_init(&memory_mutex, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_in_child);
}

static CUresult open_machine(void)
{
    const char *directory = getenv("VGPU_SIM_MACHINE");
    REFUSE_IF(!directory || !*directory, CUDA_ERROR_NO_DEVICE);
    int error = sim_machine_open(directory, &driver.machine);
    if (error) {
        driver.machine = NULL;
        fprintf(stderr, "simulated libcuda: no machine in %s (VGPU_SIM_MACHINE): %s\n", directory,
                error == -EPROTO ? "its state file is damaged or of another version"
                                 : strerror(-error));
        return error == -ENOENT ? CUDA_ERROR_NO_DEVICE : CUDA_ERROR_SYSTEM_NOT_READY;
    }
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
    INVALID_IF(flags);
    static pthread_once_t watching = PTHREAD_ONCE_INIT;
    pthread_once(&watching, watch_forks); /* a child may come while the mutex is held */
    int cancelling;                       /* a thread that is cancelled here would keep the mutex */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    pthread_mutex_lock(&driver.mutex);
    CUresult result = CUDA_SUCCESS;
    if (driver.forked)
        result = CUDA_ERROR_NOT_INITIALIZED;
    else if (!driver.ready) {
        if (!driver.machine)
            result = open_machine();
        if (result == CUDA_SUCCESS && visible_find_devices() == 0)
            result = CUDA_ERROR_NO_DEVICE;
        if (result == CUDA_SUCCESS)
            result = mps_client_configure();
        if (result == CUDA_SUCCESS) {
            driver.calibration = &driver.devices[0].identity->profile.calibration;
            call_measure();
            __atomic_store_n(&driver.ready, true, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&driver.mutex);
    pthread_setcancelstate(cancelling, NULL);
    return result;
}

CUresult cuDriverGetVersion(int *version)
{
    INVALID_IF(!version);
    *version = driver_version();
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    INVALID_IF(!name);
    switch (error) {
#define NAME(symbol, value, words) \
    case symbol: \
        *name = #symbol; \
        return CUDA_SUCCESS;
        VGPU_CURESULTS(NAME)
#undef NAME
    }
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    INVALID_IF(!text);
    switch (error) {
#define WORDS(symbol, value, words) \
    case symbol: \
        *text = words; \
        return CUDA_SUCCESS;
        VGPU_CURESULTS(WORDS)
#undef WORDS
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
