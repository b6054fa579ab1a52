/*
 * Handles as a real driver gives them out: pointers to objects. It does not look whether the object
 * is still there: one that was destroyed is memory that was freed, and what happens to a program
 * that uses it again is chance. Here it is certain. A destroyed stream, event, context, graph,
 * executable graph, module or function keeps its memory, marked as dead, until the next object of
 * its kind takes that over, the last one destroyed first; whoever gives a dead one to a call ends
 * the program. What never was a handle is none, as far as the memory it points to says so.
 *
 * A child graph and the inside of an executable graph are graphs too, and take such memory over.
 *
 * An object begins with its magic. The dead ones are under a mutex of handle.c, under which nothing
 * else is taken.
 */
#ifndef VGPU_SIM_HANDLE_H
#define VGPU_SIM_HANDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAGIC_CONTEXT 0x7478746e6f637569ull
#define MAGIC_STREAM 0x6d61657274737569ull
#define MAGIC_EVENT 0x00746e6576657569ull
#define MAGIC_MODULE 0x656c75646f6d7569ull
#define MAGIC_FUNCTION 0x6e6f6974636e7566ull
#define MAGIC_GRAPH 0x0068706172677569ull
#define MAGIC_EXEC 0x0063657868706172ull

/* An object of a kind, all zero but for its magic; NULL: no memory. All of a kind are of one
 * size. */
void *handle_new(uint64_t magic, size_t bytes);

/* Marks an object as dead: no call may be given it any more. */
void handle_kill(void *object);

/* Lets the next object of the kind have the memory; kills it if that has not been done. */
void handle_bury(void *object);

/* Says on stderr which call was given a dead object, and aborts. Not said to be `noreturn`: the
 * compiler would move the call out of the function by whose name it is told. */
void handle_used_after_end(uint64_t magic);

/* Whether a handle is an object of the kind that lives. */
static inline bool handle_is(uint64_t magic, const void *handle)
{
    const uint64_t *object = handle;
    if (!object)
        return false;
    if (__builtin_expect(*object == ~magic, 0))
        handle_used_after_end(magic);
    return *object == magic;
}

#endif
