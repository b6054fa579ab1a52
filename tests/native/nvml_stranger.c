/* An NVML that lists processes of our number that are somebody else's, as those of other PID
 * namespaces may be. It answers by a script, one answer a question, the last for ever: what those of
 * our pid hold, and what all of the GPU hold, in MiB.
 *
 *     NVML_LISTED="424;8168,518"   first one process of our pid, then two
 *     NVML_USED="1000;9000"        the whole GPU; not answered where unset
 *     NVML_ASKED=FILE              grows by a byte with each question */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vgpu/nvml_api.h"

static void count_question(void)
{
    const char *path = getenv("NVML_ASKED");
    int file = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (file >= 0 && write(file, "?", 1) == 1)
        close(file);
}

/* The answer to question `index` of a script, or its last. */
static const char *answer_of(const char *script, unsigned int index)
{
    for (const char *next; index > 0 && (next = strchr(script, ';')) != NULL; index--)
        script = next + 1;
    return script;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    static char handle;
    (void)uuid;
    *device = (nvmlDevice_t)&handle;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_t *processes)
{
    static unsigned int asked;
    const char *script = getenv("NVML_LISTED");
    const char *at = answer_of(script != NULL ? script : "1024", asked++);
    (void)device;
    count_question();
    *count = 0;
    while (*at >= '0' && *at <= '9') {
        char *end;
        memset(&processes[*count], 0, sizeof processes[0]);
        processes[*count].pid = (unsigned int)getpid();
        unsigned long long mib = strtoull(at, &end, 10);
        processes[(*count)++].usedGpuMemory = mib == ULLONG_MAX ? mib : mib << 20;
        at = *end == ',' ? end + 1 : end;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    static unsigned int asked;
    const char *script = getenv("NVML_USED");
    (void)device;
    if (script == NULL)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(memory, 0, sizeof *memory);
    memory->used = strtoull(answer_of(script, asked++), NULL, 10) << 20;
    return NVML_SUCCESS;
}
