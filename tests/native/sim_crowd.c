/* COUNT processes that hold a context each until our stdin ends. Says "ready" when all of them do. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1, results[2], hold[2];
    char byte = 0;
    if (pipe(results) != 0 || pipe(hold) != 0)
        return 1;
    for (int i = 0; i < count; i++) {
        if (fork() != 0)
            continue;
        CUcontext context;
        close(hold[1]);
        if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS)
            _exit(1);
        if (write(results[1], &byte, 1) != 1)
            _exit(1);
        _exit(read(hold[0], &byte, 1) != 0);
    }
    close(results[1]);
    for (int i = 0; i < count; i++)
        if (read(results[0], &byte, 1) != 1)
            return 1;
    puts("ready");
    fflush(stdout);
    if (read(STDIN_FILENO, &byte, 1) != 0)
        return 1;
    close(hold[1]);
    while (wait(NULL) > 0)
        ;
    return 0;
}
