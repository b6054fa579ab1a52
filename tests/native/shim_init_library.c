/* A library that initialises CUDA while it is loaded, as some plug-ins do: its constructor calls
 * cuInit with the loader's lock held. It waits a little first, so that another thread is there. */
#include <dlfcn.h>
#include <unistd.h>

#include "vgpu/cuda_api.h"

#define OTHERS_START_US 100000

__attribute__((constructor)) static void initialise(void)
{
    int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(RTLD_DEFAULT, "cuInit");
    usleep(OTHERS_START_US);
    if (init == NULL || init(0) != CUDA_SUCCESS)
        _exit(2);
}
