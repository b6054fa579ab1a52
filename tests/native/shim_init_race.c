/* Two threads initialise CUDA at once, one of them inside the constructor of a library that it
 * opens: neither may wait for a lock of ours with the loader's in hand.
 *
 *   shim_init_race LIBRARY cold   cuInit is the first call of all
 *   shim_init_race LIBRARY warm   the driver was asked for something before
 *
 * Linked with libcuda. Ends with 1 when the driver answers anything that it should not. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

#define CONSTRUCTOR_STARTS_US 30000
#define CUDA_VERSION 11080 /* an old driver refuses a newer one */

static void *open_library(void *path)
{
    return dlopen(path, RTLD_NOW);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *opened, *found = NULL;
    if (argc == 3 && strcmp(argv[2], "warm") == 0 &&
        cuGetProcAddress("cuInit", &found, CUDA_VERSION, 0) != CUDA_SUCCESS)
        return 1;
    pthread_create(&thread, NULL, open_library, argv[1]);
    usleep(CONSTRUCTOR_STARTS_US);
    CUresult result = cuInit(0);
    pthread_join(thread, &opened);
    if (result != CUDA_SUCCESS || opened == NULL)
        return 1;
    size_t bytes;
    if (cuDeviceTotalMem_v2(&bytes, 0) != CUDA_SUCCESS)
        return 1;
    printf("%zu\n", bytes);
    return 0;
}
