/*
 * Many processes of one container: `shim_life_many COUNT AT_ONCE BYTES`. Each makes a context,
 * allocates BYTES and ends without giving anything back: one in three by SIGKILL, by _exit and by
 * exec of a program that ends. AT_ONCE processes hold their bytes at the same time before any of
 * them ends. Prints how many were granted, were refused, and ended in a way they did not choose.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

static CUresult take(unsigned long long bytes)
{
    CUcontext context;
    CUdeviceptr address;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(context);
    return result == CUDA_SUCCESS ? cuMemAlloc_v2(&address, bytes) : result;
}

static void live(int number, unsigned long long bytes, int told, int go)
{
    char result = (char)take(bytes);
    if (write(told, &result, 1) != 1 || read(go, &result, 1) != 0)
        abort();
    if (number % 3 == 0)
        raise(SIGKILL);
    if (number % 3 == 1)
        execl("/bin/true", "true", NULL);
    _exit(0);
}

int main(int argc, char **argv)
{
    int count = argc == 4 ? atoi(argv[1]) : 0, at_once = argc == 4 ? atoi(argv[2]) : 1;
    unsigned long long bytes = argc == 4 ? strtoull(argv[3], NULL, 0) : 0;
    int granted = 0, refused = 0, wrong = 0;
    for (int begun = 0; begun < count;) {
        int told[2], go[2];
        if (pipe(told) != 0 || pipe(go) != 0)
            return 1;
        int group = count - begun < at_once ? count - begun : at_once;
        for (int i = 0; i < group; i++, begun++) {
            pid_t child = fork();
            if (child < 0)
                return 1;
            if (child == 0) {
                close(go[1]);
                live(begun, bytes, told[1], go[0]);
            }
        }
        close(told[1]);
        close(go[0]);
        char result;
        while (group-- > 0 && read(told[0], &result, 1) == 1)
            *(result == CUDA_SUCCESS ? &granted : &refused) += 1;
        close(go[1]);
        close(told[0]);
        int status;
        while (wait(&status) > 0)
            if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) &&
                !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
                wrong++;
    }
    printf("%d %d %d\n", granted, refused, wrong);
    return 0;
}
