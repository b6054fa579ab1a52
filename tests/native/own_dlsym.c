/* A library with a dlsym of its own, of a version of its own: who asks this library gets that one. */
#include <stddef.h>

void *own_dlsym(void *handle, const char *name)
{
    return name != NULL ? handle : NULL;
}
__asm__(".symver own_dlsym, dlsym@@OWN_1");
