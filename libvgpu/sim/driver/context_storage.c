/* What a library keeps with a context: a value for each key of its own, until the context ends. The runtime
 * library keeps its state of a context so, and gives it up in the function that it hands over with it.
 *
 * A list for each context, newest value first; one mutex for all, under which nothing else is taken. */
#include <stdlib.h>

#include "export_table.h"

struct context_value {
    void *key, *value;
    context_value_end end;
    struct context_value *next;
};

static pthread_mutex_t storage_mutex = PTHREAD_MUTEX_INITIALIZER;

/* NULL stands for the current context. */
static CUresult storage_of(CUcontext given, struct CUctx_st **context)
{
    if (!given)
        return context_current(context);
    *context = given;
    return CUDA_SUCCESS;
}

/* Under the mutex: where the key's value hangs, or the end of the list. */
static struct context_value **find(struct CUctx_st *context, const void *key)
{
    struct context_value **at = &context->storage;
    while (*at && (*at)->key != key)
        at = &(*at)->next;
    return at;
}

CUresult context_storage_put(CUcontext given, void *key, void *value, context_value_end end)
{
    struct CUctx_st *context;
    CHECK(storage_of(given, &context));
    struct context_value *fresh = malloc(sizeof *fresh);
    REFUSE_IF(!fresh, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&storage_mutex);
    struct context_value **at = find(context, key), *former = *at;
    *fresh = (struct context_value){key, value, end, former ? former->next : NULL};
    *at = fresh;
    pthread_mutex_unlock(&storage_mutex);
    free(former);
    return CUDA_SUCCESS;
}

CUresult context_storage_delete(CUcontext given, void *key)
{
    struct CUctx_st *context;
    CHECK(storage_of(given, &context));
    pthread_mutex_lock(&storage_mutex);
    struct context_value **at = find(context, key), *former = *at;
    if (former)
        *at = former->next;
    pthread_mutex_unlock(&storage_mutex);
    free(former);
    return former ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult context_storage_get(void **value, CUcontext given, void *key)
{
    struct CUctx_st *context;
    INVALID_IF(!value);
    CHECK(storage_of(given, &context));
    pthread_mutex_lock(&storage_mutex);
    struct context_value *found = *find(context, key);
    if (found)
        *value = found->value;
    pthread_mutex_unlock(&storage_mutex);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void context_storage_end(struct CUctx_st *context)
{
    pthread_mutex_lock(&storage_mutex);
    struct context_value *values = context->storage;
    context->storage = NULL;
    pthread_mutex_unlock(&storage_mutex);
    while (values) {
        struct context_value *value = values;
        values = value->next;
        if (value->end)
            value->end(context, value->key, value->value);
        free(value);
    }
}
