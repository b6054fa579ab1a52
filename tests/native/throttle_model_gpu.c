#include "throttle_model_gpu.h"

#include <stdio.h>
#include <stdlib.h>

#define STREAMS 64
#define OPERATIONS 4096 /* of a stream that are not done */
#define WORDS 8

struct CUstream_st {
    uint32_t device;
    bool is_alive;
    int64_t end_ns; /* of what is known to be done then */
    uint64_t head, tail;
    struct gpu_operation operations[OPERATIONS];
};

int64_t model_busy_ns[MODEL_DEVICES];

static struct CUstream_st streams[STREAMS];
static int used;                       /* streams at the front that are or were in use */
static int64_t free_ns[MODEL_DEVICES]; /* when a GPU is through with what is known to run */
static int64_t word_values[WORDS], word_ns[WORDS][OPERATIONS];
static int64_t collectives[MODEL_DEVICES], collective_ns[MODEL_DEVICES][OPERATIONS];

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static CUstream alive(CUstream stream)
{
    if (stream == NULL || !stream->is_alive) {
        fprintf(stderr, "a stream that has ended was used\n");
        abort();
    }
    return stream;
}

static void set_word(int word, int64_t value, int64_t at_ns)
{
    for (int64_t i = word_values[word] + 1; i <= value; i++)
        word_ns[word][i % OPERATIONS] = at_ns;
    word_values[word] = later(word_values[word], value);
}

/* When what waits for a word goes on; GPU_NEVER: nobody knows. */
static int64_t written_ns(const struct gpu_operation *operation)
{
    return word_values[operation->word] < operation->value
               ? GPU_NEVER
               : word_ns[operation->word][operation->value % OPERATIONS];
}

/* When the peer's part has begun, and notes when this one has. */
static int64_t peer_began_ns(struct gpu_operation *part, uint32_t device, int64_t begin_ns)
{
    if (part->value == 0) {
        part->value = ++collectives[device];
        collective_ns[device][part->value % OPERATIONS] = begin_ns;
    }
    return collectives[1 - device] < part->value
               ? GPU_NEVER
               : collective_ns[1 - device][part->value % OPERATIONS];
}

/* Finds out when the next operation of a stream ends; false where that cannot be told yet. */
static bool resolve(struct CUstream_st *stream)
{
    struct gpu_operation *next = &stream->operations[stream->head % OPERATIONS];
    uint32_t device = stream->device;
    int64_t begin_ns = later(next->submitted_ns, stream->end_ns), other_ns = begin_ns;
    if (next->what == GPU_KERNEL || next->what == GPU_COLLECTIVE)
        begin_ns = later(begin_ns, free_ns[device]);
    if (next->what == GPU_SPIN || next->what == GPU_WAIT)
        other_ns = written_ns(next);
    else if (next->what == GPU_COLLECTIVE)
        other_ns = peer_began_ns(next, device, begin_ns);
    if (other_ns == GPU_NEVER)
        return false;
    if (next->what == GPU_COLLECTIVE)
        begin_ns = collective_ns[device][next->value % OPERATIONS];
    int64_t end_ns = later(begin_ns, other_ns) + next->gpu_ns;
    if (next->what == GPU_KERNEL || next->what == GPU_COLLECTIVE)
        free_ns[device] = end_ns;
    if (next->what == GPU_KERNEL || next->what == GPU_COLLECTIVE || next->what == GPU_SPIN)
        model_busy_ns[device] += end_ns - begin_ns;
    if (next->what == GPU_WRITE)
        set_word(next->word, next->value, end_ns);
    if (next->what == GPU_EVENT)
        next->event->at_ns = end_ns;
    stream->end_ns = end_ns;
    stream->head++;
    return true;
}

static uint64_t unresolved; /* operations of all streams */

/* What one stream does may let others go on. */
static void resolve_all(void)
{
    for (uint64_t before = 0; unresolved != before && unresolved > 0;) {
        before = unresolved;
        for (int i = 0; i < used; i++)
            while (streams[i].head < streams[i].tail && resolve(&streams[i]))
                unresolved--;
    }
}

void gpu_submit(CUstream stream, struct gpu_operation operation)
{
    alive(stream);
    if (stream->tail - stream->head == OPERATIONS)
        abort();
    if (operation.what == GPU_EVENT)
        operation.event->at_ns = GPU_NEVER;
    stream->operations[stream->tail++ % OPERATIONS] = operation;
    unresolved++;
    if (stream->tail - stream->head == 1 && resolve(stream))
        unresolved--;
    resolve_all();
}

void gpu_host_writes(int word, int64_t value, int64_t at_ns)
{
    set_word(word, value, at_ns);
    resolve_all();
}

CUstream gpu_stream(uint32_t device)
{
    for (int i = 0; i < STREAMS; i++)
        if (!streams[i].is_alive && streams[i].head == streams[i].tail) {
            streams[i].is_alive = true;
            streams[i].device = device;
            streams[i].end_ns = 0; /* its handle is another one's, whose work goes on */
            used = i < used ? used : i + 1;
            return &streams[i];
        }
    abort();
}

void gpu_end_stream(CUstream stream)
{
    alive(stream)->is_alive = false;
}

uint32_t gpu_device_of(CUstream stream)
{
    return alive(stream)->device;
}

int64_t gpu_stream_end_ns(CUstream stream)
{
    return alive(stream)->head < stream->tail ? GPU_NEVER : stream->end_ns;
}
