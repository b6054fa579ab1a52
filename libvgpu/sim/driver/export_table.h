/* The private tables that cuGetExportTable gives to NVIDIA's own libraries. */
#ifndef VGPU_SIM_EXPORT_TABLE_H
#define VGPU_SIM_EXPORT_TABLE_H

#include "driver.h"

/* --- context_storage.c: values that a library keeps with a context, by a key of its own --- */

struct context_value;

typedef void (*context_value_end)(CUcontext context, void *key, void *value);

CUresult context_storage_put(CUcontext context, void *key, void *value, context_value_end end);
CUresult context_storage_delete(CUcontext context, void *key);
CUresult context_storage_get(void **value, CUcontext context, void *key);

/* The context is about to end: tells whoever keeps a value with it. Takes no lock across the calls,
 * which may call the driver. */
void context_storage_end(struct CUctx_st *context);

/* --- integrity.c: what the runtime asks, to know whose driver this is --- */

/* What goes into the answer besides the driver's version, the process and its devices. */
struct integrity_question {
    uint32_t version; /* of the caller: that of CUDA, with a last digit that says which answer */
    uint64_t unix_seconds;
    const void *runtime_table, *integrity_table, *function;
};

void integrity_answer(const struct integrity_question *question, uint64_t answer[2]);

#endif
