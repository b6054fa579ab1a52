/* What hooks of modules and of libraries have in common. */
#ifndef VGPU_HOOK_CODE_H
#define VGPU_HOOK_CODE_H

#include "compute/cap/collective.h"
#include "compute/cap/throttle.h"
#include "driver/capture.h"
#include "hooks/hook.h"
#include "memory/code/code_load.h"
#include "memory/contexts/reconcile.h"
#include "memory/local/local_memory.h"

/* A hook that loads code, as `handle`, its first parameter; the arguments behind it follow. `undo` unloads
 * what does not count; `keep` keeps the charge of what was loaded. */
#define LOAD(symbol, handle, parameters, undo, keep, ...) \
    VGPU_EXPORT CUresult symbol parameters \
    { \
        NEEDS(symbol); \
        ALONE_WITHOUT(handle, symbol(handle, __VA_ARGS__)); \
        struct code_load load = {0}; \
        enum code_load_verdict verdict; \
        __typeof__(*handle) made = NULL; /* a refusal leaves the program's as it was */ \
        CUresult result; \
        do { \
            code_load_begin(&load); \
            result = real.symbol(&made, __VA_ARGS__); \
            verdict = code_load_end(&load, result); \
            if (verdict != CODE_LOADED) { \
                struct capture_pause pause = capture_pause(); \
                undo(made); \
                capture_resume(pause); \
            } \
        } while (verdict == CODE_TRY_AGAIN); \
        if (verdict == CODE_REFUSED) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        if (result == CUDA_SUCCESS) { \
            *handle = made; \
            keep(&load.charge, (uintptr_t)made); \
        } \
        return result; \
    }

/* Behind the driver's call that unloads code: other functions may get the same handles. Returns the call's
 * answer. `owner`: the module or library. */
static inline CUresult code_unloaded(const void *owner, CUresult result)
{
    if (result == CUDA_SUCCESS)
        local_memory_unloaded(owner);
    throttle_forget_functions();
    reconcile_current_soon(); /* what it loaded later is gone, too */
    return result;
}

#endif
