/* User objects: things of the program's that graphs keep alive by counting references. When none is
 * left, a thread of the driver calls the destructor; as documented nobody waits for it. */
#include <limits.h>
#include <signal.h>
#include <stdlib.h>

#include "graph.h"

struct CUuserObject_st {
    uint64_t magic;
    unsigned int references;
    CUhostFn destroy;
    void *pointer;
};

static void *destroy(void *argument)
{
    struct CUuserObject_st *object = argument;
    object->destroy(object->pointer);
    free(object);
    return NULL;
}

static void release(struct CUuserObject_st *object, unsigned int count)
{
    pthread_t thread;
    sigset_t all, before;
    if (__atomic_sub_fetch(&object->references, count, __ATOMIC_ACQ_REL))
        return;
    object->magic = 0;
    sigfillset(&all); /* the program's signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, destroy, object) == 0)
        pthread_detach(thread);
    else
        destroy(object);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static bool is_object(const struct CUuserObject_st *object)
{
    return object && object->magic == MAGIC_OBJECT;
}

static bool is_count(unsigned int count)
{
    return count > 0 && count <= INT_MAX;
}

/* ---- references held by graphs --------------------------------------------------------------- */

static struct user_reference *find(struct user_reference *references,
                                   const struct CUuserObject_st *object)
{
    while (references && references->object != object)
        references = references->next;
    return references;
}

/* Notes references that the list already has a right to. */
static bool note(struct user_reference **references, struct CUuserObject_st *object,
                 unsigned int count)
{
    struct user_reference *reference = find(*references, object);
    if (!reference) {
        reference = calloc(1, sizeof *reference);
        if (!reference)
            return false;
        reference->object = object;
        reference->next = *references;
        *references = reference;
    }
    reference->count += count;
    return true;
}

bool user_references_copy(struct user_reference **target, const struct user_reference *source)
{
    for (; source; source = source->next) {
        if (!note(target, source->object, source->count))
            return false;
        __atomic_add_fetch(&source->object->references, source->count, __ATOMIC_RELAXED);
    }
    return true;
}

bool user_references_collect(struct user_reference **target, const struct CUgraph_st *graph)
{
    bool good = user_references_copy(target, graph->objects);
    for (const struct graph_node *node = graph->first; good && node; node = node->links.next) {
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            good = user_references_collect(target, node->params.child);
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            for (unsigned int i = 0; good && i < node->params.conditional.size; i++)
                good = user_references_collect(target, node->params.conditional.phGraph_out[i]);
    }
    return good;
}

void user_references_drop(struct user_reference **references)
{
    while (*references) {
        struct user_reference *reference = *references;
        *references = reference->next;
        release(reference->object, reference->count);
        free(reference);
    }
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuUserObjectCreate(CUuserObject *object, void *pointer, CUhostFn function,
                            unsigned int references, unsigned int flags)
{
    DRIVER_CHECK();
    INVALID_IF(!object || !function || !is_count(references) ||
               flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    struct CUuserObject_st *created = malloc(sizeof *created);
    REFUSE_IF(!created, CUDA_ERROR_OUT_OF_MEMORY);
    *created = (struct CUuserObject_st){MAGIC_OBJECT, references, function, pointer};
    *object = created;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    DRIVER_CHECK();
    INVALID_IF(!is_object(object) || !is_count(count));
    __atomic_add_fetch(&object->references, count, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    DRIVER_CHECK();
    INVALID_IF(!is_object(object) || !is_count(count) ||
               count > __atomic_load_n(&object->references, __ATOMIC_RELAXED));
    release(object, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(graph) || !is_object(object) || !is_count(count) ||
               flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE);
    REFUSE_IF(!note(&graph->objects, object, count), CUDA_ERROR_OUT_OF_MEMORY);
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
        __atomic_add_fetch(&object->references, count, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    DRIVER_CHECK();
    INVALID_IF(!graph_is_graph(graph) || !is_object(object) || !is_count(count));
    struct user_reference **link = &graph->objects;
    while (*link && (*link)->object != object)
        link = &(*link)->next;
    struct user_reference *reference = *link;
    INVALID_IF(!reference || reference->count < count);
    reference->count -= count;
    if (!reference->count) {
        *link = reference->next;
        free(reference);
    }
    release(object, count);
    return CUDA_SUCCESS;
}
