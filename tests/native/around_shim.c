/* Uses a GPU through a driver's library that it loads in a way of its own, and takes more whenever it
 * is told to. It is built twice: as a library that is linked to the driver (LIBRARY), and as the
 * program that loads this library: HOW LIBRARY BYTES [COMMAND…]. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef LIBRARY
#include "vgpu/cuda_api.h"

static CUresult take(unsigned long long bytes)
{
    CUdeviceptr address;
    return bytes ? cuMemAlloc_v2(&address, bytes) : CUDA_SUCCESS;
}

/* Returns whether it has the memory. */
int begin(const char *bytes)
{
    CUcontext context;
    return cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
           cuCtxSetCurrent(context) == CUDA_SUCCESS &&
           take(strtoull(bytes, NULL, 10)) == CUDA_SUCCESS;
}

/* Says what the driver answers to each line, a number of bytes. */
int serve(void)
{
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        printf("%d\n", (int)take(strtoull(line, NULL, 10)));
        fflush(stdout);
    }
    return 0;
}
#else
static void *load(const char *how, const char *library)
{
    if (strcmp(how, "dlmopen") == 0 || strcmp(how, "both") == 0)
        return dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
    return dlopen(library, strcmp(how, "deepbind") == 0 ? RTLD_NOW | RTLD_DEEPBIND : RTLD_NOW);
}

static void *begin(const char *how, const char *path, const char *bytes)
{
    void *library = load(how, path);
    int (*function)(const char *) = NULL;
    if (library)
        function = (int (*)(const char *))dlsym(library, "begin");
    if (!function || !function(bytes)) {
        fprintf(stderr, "no memory, or no driver: %s\n", function ? "" : dlerror());
        exit(1);
    }
    return library;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    if (strcmp(argv[1], "both") == 0)
        begin("plain", argv[2], "0");
    void *library = begin(argv[1], argv[2], argv[3]);
    int (*serve)(void) = (int (*)(void))dlsym(library, "serve");
    if (argc > 4) /* another program as the same process */
        return execv(argv[4], argv + 4);
    printf("{\"ready\": %d}\n", (int)getpid());
    fflush(stdout);
    return serve();
}
#endif
