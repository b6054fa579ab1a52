/* Many processes that take a context at once: COUNT. Each keeps its own until all have tried.
 * Prints how many got one, and the CUresults of the others. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1, results[2], hold[2], got = 0;
    if (pipe(results) != 0 || pipe(hold) != 0)
        return 1;
    for (int i = 0; i < count; i++) {
        if (fork() != 0)
            continue;
        CUcontext context;
        char byte;
        close(hold[1]);
        CUresult result = cuInit(0);
        if (result == CUDA_SUCCESS)
            result = cuDevicePrimaryCtxRetain(&context, 0);
        if (write(results[1], &result, sizeof result) != sizeof result)
            _exit(1);
        _exit(read(hold[0], &byte, 1) != 0); /* until the parent lets go */
    }
    for (int i = 0; i < count; i++) {
        CUresult result;
        if (read(results[0], &result, sizeof result) != sizeof result)
            return 1;
        if (result == CUDA_SUCCESS)
            got++;
        else
            printf("%d ", result);
    }
    close(hold[1]);
    while (wait(NULL) > 0)
        ;
    printf("%d\n", got);
    return 0;
}
