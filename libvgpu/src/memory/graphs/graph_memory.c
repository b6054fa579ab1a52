#include "memory/graphs/graph_memory.h"

#include <string.h>
#include <sys/mman.h>

#include "driver/capture.h"
#include "driver/log.h"
#include "driver/real.h"
#include "memory/graphs/graph_peak.h"
#include "memory/ledger/charge.h"
#include "memory/pools/pool.h"
#include "slice/locks.h"
#include "slice/region.h"

#define FIRST_CAPACITY 128

struct entry {
    CUgraphExec exec; /* NULL: unused */
    CUdevice ordinal;
    uint64_t bytes;
    uint64_t stream, epoch; /* as in graph_need */
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *table;
static size_t capacity;
static size_t entry_count; /* atomic; written under the lock */

/* ---- what a graph needs ---- */

/* Returns where. */
static int add(struct graph_need *need, CUdevice ordinal, uint64_t bytes)
{
    int at = 0;
    while (at < need->count && need->each[at].ordinal < ordinal)
        at++;
    if (at == need->count || need->each[at].ordinal != ordinal) {
        if (need->count == GRAPH_MOST_DEVICES)
            return 0;
        memmove(&need->each[at + 1], &need->each[at],
                (size_t)(need->count - at) * sizeof need->each[0]);
        memset(&need->each[at], 0, sizeof need->each[at]);
        need->each[at].ordinal = ordinal;
        need->count++;
    }
    if (__builtin_add_overflow(need->each[at].bytes, charge_rounded(bytes), &need->each[at].bytes))
        need->each[at].bytes = UINT64_MAX - 511;
    return at;
}

CUresult graph_need_of(CUgraph graph, struct graph_need *need)
{
    need->count = 0;
    need->stream = 0;
    need->local_bytes_a_thread = 0;
    need->has_collective = false;
    if (region_open() == REGION_NONE || real.cuGraphGetNodes == NULL ||
        real.cuGraphNodeGetType == NULL)
        return CUDA_SUCCESS;
    struct capture_pause pause = capture_pause();
    struct graph_peak peak;
    CUresult result = graph_peak_of(graph, &peak);
    capture_resume(pause);
    need->local_bytes_a_thread = peak.local_bytes_a_thread;
    need->has_collective = peak.has_collective;
    for (int i = 0; i < peak.count && result == CUDA_SUCCESS; i++) {
        add(need, peak.each[i].ordinal, peak.each[i].shared_bytes);
        add(need, peak.each[i].ordinal, peak.each[i].lasting_bytes);
    }
    return result;
}

/* ---- the table ---- */

void graph_memory_after_fork(void)
{
    lock_reset(&table_lock);
    if (table != NULL)
        memset(table, 0, capacity * sizeof *table);
    entry_count = 0;
}

static struct entry *spare_entry(void)
{
    for (size_t i = 0; i < capacity; i++)
        if (table[i].exec == NULL)
            return &table[i];
    size_t larger = capacity > 0 ? 2 * capacity : FIRST_CAPACITY;
    struct entry *made = mmap(NULL, larger * sizeof *made, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    if (table != NULL) {
        memcpy(made, table, capacity * sizeof *table);
        munmap(table, capacity * sizeof *table);
    }
    struct entry *spare = &made[capacity];
    table = made;
    capacity = larger;
    return spare;
}

void graph_memory_keep(CUgraphExec exec, const struct graph_need *need)
{
    graph_memory_forget(exec); /* another that ended with its context had the same handle */
    if (need->count == 0)
        return;
    lock_take(&table_lock, LOCK_GRAPHS);
    for (int i = 0; i < need->count; i++) {
        struct entry *entry = spare_entry();
        if (entry == NULL) {
            log_line(LOG_ERROR, "out of host memory: memory of a graph will not be charged ahead");
            break;
        }
        *entry = (struct entry){exec, need->each[i].ordinal, need->each[i].bytes, 0, 0};
        __atomic_add_fetch(&entry_count, 1, __ATOMIC_RELEASE);
    }
    lock_give_back(&table_lock);
}

void graph_memory_forget(CUgraphExec exec)
{
    if (__atomic_load_n(&entry_count, __ATOMIC_ACQUIRE) == 0 || exec == NULL)
        return;
    lock_take(&table_lock, LOCK_GRAPHS);
    for (size_t i = 0; i < capacity; i++)
        if (table[i].exec == exec) {
            table[i].exec = NULL;
            __atomic_sub_fetch(&entry_count, 1, __ATOMIC_RELEASE);
        }
    lock_give_back(&table_lock);
}

bool graph_memory_find(CUgraphExec exec, struct graph_need *need)
{
    need->count = 0;
    need->stream = 0;
    if (__builtin_expect(__atomic_load_n(&entry_count, __ATOMIC_ACQUIRE) == 0, 1))
        return false;
    lock_take(&table_lock, LOCK_GRAPHS);
    for (size_t i = 0; i < capacity; i++)
        if (table[i].exec == exec && exec != NULL) {
            int at = add(need, table[i].ordinal, table[i].bytes);
            need->each[at].stream = table[i].stream;
            need->each[at].epoch = table[i].epoch;
        }
    lock_give_back(&table_lock);
    return need->count > 0;
}

/* ---- around a call ---- */

CUresult graph_memory_begin(struct graph_need *need)
{
    for (int i = 0; i < need->count; i++) {
        struct pool *pool = need->each[i].pool = pool_lock_of_graphs(need->each[i].ordinal);
        if (pool == NULL)
            continue;
        bool has_all = need->stream != 0 && need->each[i].stream == need->stream &&
                       need->each[i].epoch == pool_epoch(pool);
        need->each[i].begun_bytes = has_all ? 0 : need->each[i].bytes;
        /* a launch that took more than was reserved could not be undone */
        CUresult result = pool_begin(pool, need->each[i].begun_bytes, true);
        if (result == CUDA_SUCCESS)
            continue;
        struct graph_need begun = *need;
        begun.count = i;
        graph_memory_end(&begun);
        return result;
    }
    return CUDA_SUCCESS;
}

void graph_memory_end(struct graph_need *need)
{
    for (int i = need->count - 1; i >= 0; i--) {
        uint64_t kept_bytes = 0, taken_bytes = 0;
        if (need->each[i].pool == NULL)
            continue;
        pool_end_graphs(need->each[i].pool, need->each[i].begun_bytes, &kept_bytes, &taken_bytes,
                        &need->each[i].epoch);
        need->each[i].stream = need->stream;
        /* what the GPU's graph memory came to is more than any graph in it needs */
        if (kept_bytes > 0 && kept_bytes < need->each[i].bytes)
            need->each[i].bytes = kept_bytes;
        if (taken_bytes > need->each[i].bytes) /* laid out less well than could be */
            need->each[i].bytes = taken_bytes;
    }
}

static void learn(CUgraphExec exec, const struct graph_need *need)
{
    lock_take(&table_lock, LOCK_GRAPHS);
    for (size_t i = 0; i < capacity; i++)
        for (int at = 0; at < need->count; at++)
            if (table[i].exec == exec && table[i].ordinal == need->each[at].ordinal) {
                table[i].bytes = need->each[at].bytes;
                table[i].stream = need->each[at].stream;
                table[i].epoch = need->each[at].epoch;
            }
    lock_give_back(&table_lock);
}

/* The number of the stream, which no later one gets. */
static uint64_t number_of(CUstream stream, CUresult (*call)(CUgraphExec, CUstream))
{
    unsigned long long number = 0;
    bool per_thread = call == real.cuGraphLaunch_ptsz || call == real.cuGraphUpload_ptsz;
    __typeof__(real.cuStreamGetId) get = per_thread ? real.cuStreamGetId_ptsz : real.cuStreamGetId;
    return get != NULL && get(stream, &number) == CUDA_SUCCESS ? number : 0;
}

CUresult graph_memory_call(CUgraphExec exec, CUstream stream,
                           CUresult (*call)(CUgraphExec, CUstream))
{
    struct graph_need need;
    if (__builtin_expect(!graph_memory_find(exec, &need), 1))
        return call(exec, stream);
    need.stream = number_of(stream, call);
    CUresult result = graph_memory_begin(&need);
    if (result != CUDA_SUCCESS)
        return result;
    result = call(exec, stream);
    graph_memory_end(&need);
    if (result == CUDA_SUCCESS)
        learn(exec, &need);
    return result;
}
