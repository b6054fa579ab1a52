/* Which functions and graphs count as parts of collectives, with a driver made up here. A line of input each:
 * "name NAME", "ask HANDLE" (a function), "know HANDLE" (anything), "kernel HANDLE NAME" and "function HANDLE NAME"
 * (what the driver says of a handle), "named HANDLE NAME" (it was handed out by that name; "-": by none), "keep HANDLE
 * 0 or 1" (a graph), "without" (a driver that tells no names). The answer of the first three is a line: 0 or 1, and for
 * a function how often the driver has been asked so far. */
#include "compute/cap/collective.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/capture.h"
#include "driver/log.h"
#include "driver/real.h"

#define MOST_HANDLES 4096

struct named {
    uintptr_t handle;
    bool is_kernel;
    char name[160];
};

struct real real;
static struct named known[MOST_HANDLES];
static int known_count, asked, paused;

struct capture_pause capture_pause(void)
{
    paused++;
    return (struct capture_pause){CU_STREAM_CAPTURE_MODE_RELAXED, true};
}

void capture_resume(struct capture_pause pause)
{
    paused -= pause.is_changed;
}

void log_line(enum log_level level, const char *format, ...)
{
    (void)level, (void)format;
    abort(); /* nothing here runs out of memory */
}

static CUresult find(const char **name, const void *handle, bool is_kernel)
{
    asked += !is_kernel;
    if (paused != 1)
        abort();
    for (int i = known_count - 1; i >= 0; i--)
        if (known[i].handle == (uintptr_t)handle && known[i].is_kernel == is_kernel) {
            *name = known[i].name;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult function_name(const char **name, CUfunction function)
{
    return find(name, function, false);
}

static CUresult kernel_name(const char **name, CUkernel kernel)
{
    return find(name, kernel, true);
}

int main(void)
{
    char verb[16], name[160];
    unsigned long long handle;
    real.cuFuncGetName = function_name;
    real.cuKernelGetName = kernel_name;
    while (scanf("%15s", verb) == 1) {
        bool is_kernel = strcmp(verb, "kernel") == 0;
        if (strcmp(verb, "name") == 0 && scanf("%159s", name) == 1) {
            printf("%d\n", collective_is_name(name));
        } else if (strcmp(verb, "ask") == 0 && scanf("%llx", &handle) == 1) {
            bool answer = collective_is_function((CUfunction)(uintptr_t)handle);
            printf("%d %d\n", answer, asked);
        } else if ((is_kernel || strcmp(verb, "function") == 0) &&
                   scanf("%llx %159s", &handle, name) == 2 && known_count < MOST_HANDLES) {
            known[known_count].handle = (uintptr_t)handle;
            known[known_count].is_kernel = is_kernel;
            memcpy(known[known_count++].name, name, sizeof name);
        } else if (strcmp(verb, "know") == 0 && scanf("%llx", &handle) == 1) {
            printf("%d\n", collective_is_known((const void *)(uintptr_t)handle));
        } else if (strcmp(verb, "named") == 0 && scanf("%llx %159s", &handle, name) == 2) {
            collective_named((const void *)(uintptr_t)handle, strcmp(name, "-") ? name : NULL);
        } else if (strcmp(verb, "keep") == 0 && scanf("%llx %159s", &handle, name) == 2) {
            collective_keep((const void *)(uintptr_t)handle, name[0] == '1');
        } else if (strcmp(verb, "without") == 0) {
            real.cuFuncGetName = NULL;
            real.cuKernelGetName = NULL;
        } else {
            return 1;
        }
    }
    return collective_is_name(NULL) || paused != 0;
}
