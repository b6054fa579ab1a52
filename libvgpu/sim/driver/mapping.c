/* Host memory that stands for device memory: lazily backed anonymous mappings, whose addresses are
 * the device pointers, so that bytes really move.
 *
 * Addresses ascend through a range of the driver's own and begin again at its end. Like on a device
 * they so depend on nothing else that the program maps, and a pointer that was freed stays invalid
 * for long. Where a place is taken the kernel finds another. */
#include <stdatomic.h>
#include <sys/mman.h>

#include "driver.h"

/* A few mappings of freed allocations are kept for the next of the same size, since the kernel
 * takes longer over one than everything else here; like on a device their old content is still
 * there. Large ones are kept only if nothing was ever written to them, so that they hold no memory
 * of the host. The oldest makes room. */
#define KEPT_COUNT 16
#define KEPT_BYTES (4u << 20)
/* Behind those of blocks (block.c), and below those that the kernel gives out by itself. */
#define FIRST_ADDRESS 0x400000000000ull
#define END_ADDRESS 0x600000000000ull

static struct kept {
    void *address;
    uint64_t bytes;
} kept[KEPT_COUNT];
static unsigned int oldest_kept;
static _Atomic uint64_t next_address = FIRST_ADDRESS;

void *memory_place(uint64_t bytes)
{
    uint64_t place_bytes = (bytes + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
    uint64_t address = atomic_load(&next_address), begin;
    do
        begin = place_bytes <= END_ADDRESS - address ? address : FIRST_ADDRESS;
    while (place_bytes <= END_ADDRESS - begin &&
           !atomic_compare_exchange_weak(&next_address, &address, begin + place_bytes));
    return (void *)begin;
}

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
    void *address = mmap(memory_place(bytes), bytes, PROT_READ | PROT_WRITE,
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
