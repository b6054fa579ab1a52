/* Objects behind handles: their memory, and the end of a program that uses a dead one. */
#include "handle.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FRAMES 64

/* Before each object. */
struct grave {
    _Alignas(16) struct grave *next;
};

struct kind {
    uint64_t magic;
    const char *name;
    const char *on_silicon; /* what a real driver did, on an H100 with driver 580 */
    struct grave *graves;
};

#define ANSWERED(code) "an H100 answered " code ", out of memory already freed"

static pthread_mutex_t graves_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct kind kinds[] = {
    {MAGIC_STREAM, "a stream that was destroyed", "a real driver crashes here (SIGSEGV on an H100)",
     NULL},
    {MAGIC_CONTEXT, "a context that was destroyed",
     "a real driver aborts soon after (SIGABRT on an H100)", NULL},
    {MAGIC_EVENT, "an event that was destroyed", ANSWERED("709"), NULL},
    {MAGIC_MODULE, "a module that was unloaded", ANSWERED("400"), NULL},
    {MAGIC_FUNCTION, "a function of a module that was unloaded", ANSWERED("400"), NULL},
    {MAGIC_GRAPH, "a graph that was destroyed", ANSWERED("1"), NULL},
    {MAGIC_EXEC, "an executable graph that was destroyed", ANSWERED("1"), NULL},
};

static struct kind *kind_of(uint64_t magic)
{
    struct kind *kind = kinds;
    while (kind->magic != magic) /* callers name one of these */
        kind++;
    return kind;
}

void *handle_new(uint64_t magic, size_t bytes)
{
    struct kind *kind = kind_of(magic);
    pthread_mutex_lock(&graves_mutex);
    struct grave *grave = kind->graves;
    if (grave)
        kind->graves = grave->next;
    pthread_mutex_unlock(&graves_mutex);
    if (!grave && !(grave = malloc(sizeof *grave + bytes)))
        return NULL;
    uint64_t *object = memset(grave + 1, 0, bytes);
    *object = magic;
    return object;
}

void handle_kill(void *object)
{
    uint64_t *magic = object;
    *magic = ~*magic;
}

void handle_bury(void *object)
{
    uint64_t *magic = object;
    struct kind *kind = kinds;
    while (*magic != ~kind->magic && *magic != kind->magic)
        kind++;
    *magic = ~kind->magic;
    struct grave *grave = (struct grave *)object - 1;
    pthread_mutex_lock(&graves_mutex);
    grave->next = kind->graves;
    kind->graves = grave;
    pthread_mutex_unlock(&graves_mutex);
}

/* The entry point that the program called: of the frames in this library the outermost one that has
 * an exported name. No function has to say its own; none gives its frame away by a tail call, which
 * _build.py has the compiler leave out. */
static const char *call_under_way(void)
{
    void *frames[MAX_FRAMES];
    Dl_info own, frame;
    int count = backtrace(frames, MAX_FRAMES);
    if (!dladdr((void *)handle_used_after_end, &own))
        return "a call";
    while (count-- > 0)
        if (dladdr((char *)frames[count] - 1, &frame) && frame.dli_fbase == own.dli_fbase &&
            frame.dli_sname)
            return frame.dli_sname;
    return "a call";
}

void handle_used_after_end(uint64_t magic)
{
    const struct kind *kind = kind_of(magic);
    fprintf(stderr, "simulated libcuda: %s was given %s; %s\n", call_under_way(), kind->name,
            kind->on_silicon);
    abort();
}
