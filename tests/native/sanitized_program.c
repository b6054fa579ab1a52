/* Starts the driver, with a sanitizer in it or not. */
#include <dlfcn.h>

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*start)(unsigned) = 0;
    if (driver != 0)
        *(void **)&start = dlsym(driver, "cuInit");
    return start == 0 ? 2 : start(0);
}
