/* Threads take memory by handle, map, retain, release and unmap it at random. Linked with libcuda.
 *
 *   shim_vmm_stress ROUNDS SEED
 *
 * After every round all threads stand still, the program says so in a line and waits for one; at
 * the end everything has been given back. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "vgpu/cuda_vmm.h"

#include "spin_kernel.h"

#define THREADS 8
#define HANDLES 6
#define SLOTS 12
#define STEPS 40
#define GRANULE_BYTES ((size_t)2 << 20)

struct worker {
    pthread_t thread;
    uint64_t random;
    CUdeviceptr place;
    CUmemGenericAllocationHandle handles[HANDLES];
    bool is_mapped[SLOTS];
};

static int rounds;
static long refusals;
static pthread_barrier_t barrier;

static size_t roll(struct worker *worker, size_t sides)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random % sides;
}

static CUmemGenericAllocationHandle create(struct worker *worker)
{
    CUmemAllocationProp wanted = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUmemGenericAllocationHandle handle = 0;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    int result = cuMemCreate(&handle, GRANULE_BYTES * (1 + roll(worker, 3)), &wanted, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        __atomic_fetch_add(&refusals, 1, __ATOMIC_RELAXED);
    else
        MUST(result);
    return handle;
}

static void unmap(struct worker *worker, size_t slot)
{
    size_t count = 0;
    for (; slot + count < SLOTS && worker->is_mapped[slot + count] && count < 3; count++)
        worker->is_mapped[slot + count] = false;
    if (count > 0)
        MUST(cuMemUnmap(worker->place + slot * GRANULE_BYTES, count * GRANULE_BYTES));
}

static void step(struct worker *worker)
{
    size_t slot = roll(worker, SLOTS);
    CUdeviceptr address = worker->place + slot * GRANULE_BYTES;
    CUmemGenericAllocationHandle *handle = &worker->handles[roll(worker, HANDLES)];
    switch (roll(worker, 5)) {
    case 0:
        if (*handle == 0)
            *handle = create(worker);
        break;
    case 1:
        if (*handle != 0 && !worker->is_mapped[slot]) {
            MUST(cuMemMap(address, GRANULE_BYTES, 0, *handle, 0));
            worker->is_mapped[slot] = true;
        }
        break;
    case 2:
        if (*handle != 0)
            MUST(cuMemRelease(*handle));
        *handle = 0;
        break;
    case 3:
        unmap(worker, slot);
        break;
    default:
        if (*handle == 0 && worker->is_mapped[slot])
            MUST(cuMemRetainAllocationHandle(handle, (void *)(uintptr_t)(address + 1)));
    }
}

static void give_all_back(struct worker *worker)
{
    for (size_t slot = 0; slot < SLOTS; slot++)
        unmap(worker, slot);
    for (int i = 0; i < HANDLES; i++)
        if (worker->handles[i] != 0)
            MUST(cuMemRelease(worker->handles[i]));
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    MUST(cuMemAddressReserve(&worker->place, SLOTS * GRANULE_BYTES, 0, 0, 0));
    for (int round = 0; round <= rounds; round++) {
        for (int i = 0; i < STEPS && round < rounds; i++)
            step(worker);
        if (round == rounds)
            give_all_back(worker);
        pthread_barrier_wait(&barrier); /* all have done their round */
        pthread_barrier_wait(&barrier); /* and were looked at */
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS];
    char line[16];
    if (argc != 3)
        return 2;
    rounds = atoi(argv[1]);
    MUST(cuInit(0));
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i].random = (strtoull(argv[2], NULL, 10) + i + 1) * 0x9e3779b97f4a7c15u;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 3;
    }
    for (int round = 0; round <= rounds; round++) {
        pthread_barrier_wait(&barrier);
        printf("%ld\n", __atomic_load_n(&refusals, __ATOMIC_RELAXED));
        fflush(stdout);
        if (fgets(line, sizeof line, stdin) == NULL)
            return 4;
        pthread_barrier_wait(&barrier);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    return 0;
}
