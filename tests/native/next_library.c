/* A library that, like a profiler, wraps getenv and finds the next one: RTLD_NEXT must be relative
 * to it, not to the shim. */
#include <dlfcn.h>
#include <stddef.h>

char *getenv(const char *name)
{
    char *(*next)(const char *) = dlsym(RTLD_NEXT, "getenv");
    return next == NULL || next == getenv ? NULL : next(name);
}
