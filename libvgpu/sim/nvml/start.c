/* Initialisation, versions, names of errors and processes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvml.h"
#include "visible.h"

#define CUDA_VERSIONS_A_MAJOR 1000
#define NVML_VERSION_BYTES 80

struct nvml nvml = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* A child may go on using NVML: it gets a mapping of its own, with the same handles. */
static void renew_in_child(void)
{
    pthread_mutex_init(&nvml.mutex, NULL);
    if (!nvml.machine)
        return;
    sim_machine_forget(nvml.machine);
    nvml.machine = NULL;
    if (!nvml.references) /* the parent was just about to start */
        return;
    const char *directory = getenv("VGPU_SIM_MACHINE");
    if (!directory || sim_machine_watch(directory, &nvml.machine) != 0)
        nvml.references = nvml.device_count = 0;
}

static void end(void)
{
    __atomic_store_n(&nvml.is_over, true, __ATOMIC_RELAXED);
}

void nvml_abort(void)
{
    fputs("simulated libnvidia-ml: called after its end\n", stderr);
    abort();
}

static void watch(void)
{
    pthread_atfork(NULL, NULL, renew_in_child);
    if (getenv("VGPU_SIM_NVML_POISONED"))
        atexit(end);
}

static nvmlReturn_t open_machine(void)
{
    const char *directory = getenv("VGPU_SIM_MACHINE");
    REFUSE_IF(!directory || !*directory, NVML_ERROR_DRIVER_NOT_LOADED);
    int error = sim_machine_watch(directory, &nvml.machine);
    if (error) {
        nvml.machine = NULL;
        fprintf(stderr, "simulated libnvidia-ml: no machine in %s (VGPU_SIM_MACHINE): %s\n",
                directory,
                error == -EPROTO ? "its state file is damaged or of another version"
                                 : strerror(-error));
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    nvml.device_count = 0;
    for (uint32_t i = 0; i < sim_machine_device_count(nvml.machine); i++) {
        nvml.rooms[i].machine_index = i;
        nvml.gpu_instances[i].room = nvml.compute_instances[i].room = i;
        if (i < sim_machine_gpu_count(nvml.machine) && visible_on_machine(nvml.machine, i)) {
            nvml.devices[nvml.device_count] =
                (struct nvmlDevice_st){.machine_index = i, .index = nvml.device_count};
            nvml.device_count++;
        }
    }
    if (nvml.device_count > 0)
        NVML_TAKES(&nvml.devices[0], nvmlInit);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    static pthread_once_t watching = PTHREAD_ONCE_INIT;
    (void)flags;                    /* they only say how to do without GPUs */
    pthread_once(&watching, watch); /* a child may come while the mutex is held */
    pthread_mutex_lock(&nvml.mutex);
    nvmlReturn_t result = nvml_is_started() ? NVML_SUCCESS : open_machine();
    if (result == NVML_SUCCESS)
        __atomic_add_fetch(&nvml.references, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&nvml.mutex);
    return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&nvml.mutex);
    nvmlReturn_t result = nvml_is_started() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (nvml.references && __atomic_sub_fetch(&nvml.references, 1, __ATOMIC_RELEASE) == 0) {
        sim_machine_close(nvml.machine);
        nvml.machine = NULL;
        nvml.device_count = 0;
    }
    pthread_mutex_unlock(&nvml.mutex);
    return result;
}

const char *nvmlErrorString(nvmlReturn_t error)
{
    switch (error) {
#define WORDS(symbol, value, words) \
    case symbol: \
        return words;
        VGPU_NVML_RESULTS(WORDS)
#undef WORDS
    }
    return "Unknown Error";
}

nvmlReturn_t nvml_copy_text(char *target, unsigned int length, const char *text)
{
    REFUSE_IF(strlen(text) >= length, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(target, text);
    return NVML_SUCCESS;
}

static nvmlReturn_t system_text(char *target, unsigned int length, const char *text)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    return target ? nvml_copy_text(target, length, text) : NVML_ERROR_INVALID_ARGUMENT;
}

const char *nvml_driver_version(void)
{
    return sim_machine_release(nvml.machine)->version;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    return system_text(version, length, nvml_is_started() ? nvml_driver_version() : "");
}

/* NVML's own version is that of the driver behind CUDA's major one: "13.580.65.06". */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char text[NVML_VERSION_BYTES] = "";
    if (nvml_is_started())
        snprintf(text, sizeof text, "%u.%s",
                 sim_machine_driver_version(nvml.machine) / CUDA_VERSIONS_A_MAJOR,
                 nvml_driver_version());
    return system_text(version, length, text);
}

/* May be asked before nvmlInit. */
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    const char *directory = getenv("VGPU_SIM_MACHINE");
    uint32_t found;
    INVALID_IF(!version);
    if (nvml_is_started())
        found = sim_machine_driver_version(nvml.machine);
    else if (!directory || sim_machine_peek_version(directory, &found) != 0)
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    *version = (int)found;
    return NVML_SUCCESS;
}

SAME_AS(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2);

static nvmlReturn_t none(unsigned int *count)
{
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    INVALID_IF(!count);
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *count)
{
    return none(count); /* S-class enclosures */
}

SAME_AS(nvmlGetExcludedDeviceCount, none);

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[64], text[1024];
    REFUSE_IF(!nvml_is_started(), NVML_ERROR_UNINITIALIZED);
    INVALID_IF(!name || length == 0);
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    REFUSE_IF(!file, NVML_ERROR_NOT_FOUND);
    size_t read = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[read] = '\0'; /* up to the end of the first word */
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}
