/* Host memory that stands for device memory: lazily backed anonymous mappings, whose addresses are
 * the device pointers, so that bytes really move. */
#include <sys/mman.h>

#include "driver.h"

/* A few mappings of freed allocations are kept for the next of the same size, since the kernel
 * takes longer over one than everything else here; like on a device their old content is still
 * there. Large ones are kept only if nothing was ever written to them, so that they hold no memory
 * of the host. The oldest makes room. */
#define KEPT_COUNT 16
#define KEPT_BYTES (4u << 20)

static struct kept {
    void *address;
    uint64_t bytes;
} kept[KEPT_COUNT];
static unsigned int oldest_kept;

void *memory_map(uint64_t bytes)
{
    pthread_mutex_lock(&memory_mutex);
    for (int i = 0; i < KEPT_COUNT; i++)
        if (kept[i].address && kept[i].bytes == bytes) {
            void *again = kept[i].address;
            kept[i].address = NULL;
            pthread_mutex_unlock(&memory_mutex);
            return again;
        }
    pthread_mutex_unlock(&memory_mutex);
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

void memory_unmap(void *address, uint64_t bytes, bool untouched)
{
    struct kept leaving = {address, bytes};
    if (untouched || bytes <= KEPT_BYTES) {
        pthread_mutex_lock(&memory_mutex);
        unsigned int place = 0;
        while (place < KEPT_COUNT && kept[place].address)
            place++;
        if (place == KEPT_COUNT)
            place = oldest_kept++ % KEPT_COUNT;
        leaving = kept[place];
        kept[place] = (struct kept){address, bytes};
        pthread_mutex_unlock(&memory_mutex);
    }
    if (leaving.address)
        munmap(leaving.address, leaving.bytes);
}
