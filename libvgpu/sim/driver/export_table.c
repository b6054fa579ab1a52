/* The private tables of functions that NVIDIA's libraries ask the driver for, as far as the runtime library
 * (cudart 11.8 to 13.5) and cuBLAS and cuFFT of CUDA 13 need them. NVIDIA does not describe them. Public notes of several projects
 * do (ZLUDA's dark_api, FakeGPU, cuvk), and the libraries show which entries they call. Each table begins with its
 * size in bytes. The table of the context storage has no size.
 *
 * Tables that other libraries ask for are not known here. The runtime also asks for f8cff951-2146-8b4e-b9e2-
 * fb469e7c0dd9, and goes on without it. */
#include <string.h>

#include "export_table.h"

#define CALLBACK_WORDS 1024 /* which calls of the runtime a tool wants to see, a word each */
#define DOMAIN_WORDS 14     /* the same for groups of calls */
#define TOOLS_SLOTS 95
#define GROUPS_SLOTS 32
#define MODULES_SLOTS 64

/* What is called a function here takes what its caller gives: C passes it in registers. */
typedef CUresult (*function)(void);

static CUresult not_here(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult nothing_to_do(void)
{
    return CUDA_SUCCESS;
}

/* --- the runtime's own table: code and primary contexts, past the exported functions --- */

static CUresult load_wrapper(CUmodule *module, const void *wrapper)
{
    return cuModuleLoadFatBinary(module, wrapper);
}

static CUresult load_bundle(const void *bundle, CUmodule *module)
{
    return cuModuleLoadFatBinary(module, bundle);
}

/* The handle of a device's primary context, whether that is there or not: the runtime makes it current, and retains
 * it by the exported function. */
static CUresult primary_context(CUcontext *context, CUdevice ordinal)
{
    DRIVER_CHECK();
    struct driver_device *device = device_of(ordinal);
    INVALID_IF(!context);
    REFUSE_IF(!device, CUDA_ERROR_INVALID_DEVICE);
    *context = &device->primary;
    return CUDA_SUCCESS;
}

/* --- entries for tools such as profilers, of which the simulator has none --- */

static void wanted_calls(void **words, size_t *count)
{
    static uint32_t none[CALLBACK_WORDS];
    *words = none;
    *count = CALLBACK_WORDS;
}

static void wanted_domains(void **words, size_t *count)
{
    static uint32_t none[DOMAIN_WORDS];
    *words = none;
    *count = DOMAIN_WORDS;
}

static CUresult current_context(CUcontext *context)
{
    return cuCtxGetCurrent(context);
}

static CUresult context_number(CUcontext context, unsigned long long *number)
{
    return cuCtxGetId(context, number);
}

static CUresult stream_number(CUcontext context, CUstream stream, unsigned long long *number)
{
    (void)context;
    return cuStreamGetId(stream, number);
}

/* What a default stream stands for. */
static CUresult stream_itself(CUcontext context, CUstream stream, CUstream *itself)
{
    (void)context;
    INVALID_IF(!itself);
    return stream_resolve(stream, itself);
}

/* Tells of each function of a module; returns how many there are. cuFFT finds its kernels so. */
static uint64_t functions_of_module(CUcontext context, CUmodule module,
                                    void (*tell)(void *caller, CUfunction function, CUmodule owner),
                                    void *caller)
{
    uint64_t count = 0;
    (void)context;
    for (CUfunction function = module->image->functions; function; function = function->next) {
        tell(caller, function, module);
        count++;
    }
    return count;
}

static CUresult context_checked(CUcontext context, uint32_t *finding, const void **more)
{
    (void)context;
    *finding = 0;
    if (more)
        *more = NULL;
    return CUDA_SUCCESS;
}

static CUresult integrity_checked(uint32_t version, uint64_t unix_seconds, uint64_t answer[2]);

/* --- the tables --- */

#define FUNCTION(name) ((function)(void (*)(void))(name))
#define SIZE(table) ((function)sizeof(table))

static const function runtime_table[13] = {SIZE(runtime_table),
                                           FUNCTION(load_wrapper),
                                           FUNCTION(primary_context),
                                           not_here,
                                           not_here,
                                           not_here,
                                           FUNCTION(load_wrapper),
                                           nothing_to_do,
                                           FUNCTION(load_bundle),
                                           not_here,
                                           not_here,
                                           not_here,
                                           nothing_to_do};

static const function hooks_table[7] = {
    SIZE(hooks_table), nothing_to_do, FUNCTION(wanted_calls),  nothing_to_do,
    nothing_to_do,     nothing_to_do, FUNCTION(wanted_domains)};

static const function tools_context_table[4] = {SIZE(tools_context_table), not_here,
                                                FUNCTION(current_context), not_here};

static const function storage_table[4] = {FUNCTION(context_storage_put),
                                          FUNCTION(context_storage_delete),
                                          FUNCTION(context_storage_get), NULL};

static const function integrity_table[3] = {SIZE(integrity_table), FUNCTION(integrity_checked),
                                            nothing_to_do};

static const function checks_table[15] = {
    SIZE(checks_table), nothing_to_do, FUNCTION(context_checked),
    nothing_to_do,      nothing_to_do, nothing_to_do,
    nothing_to_do,      nothing_to_do, nothing_to_do,
    nothing_to_do,      nothing_to_do, nothing_to_do,
    nothing_to_do,      nothing_to_do, nothing_to_do};

/* Must be there from CUDA 13.4 on. The runtime calls nothing of it. cuBLAS has memory for each stream, which it knows
 * by the numbers of its context and itself. */
static const function tools_table[TOOLS_SLOTS] = {SIZE(tools_table),
                                                  [1 ... 3] = not_here,
                                                  [4] = FUNCTION(context_number),
                                                  [5 ... 38] = not_here,
                                                  [39] = FUNCTION(stream_number),
                                                  [40 ... 50] = not_here,
                                                  [51] = FUNCTION(stream_itself),
                                                  [52 ... TOOLS_SLOTS - 1] = not_here};

/* cuBLAS asks it how the SMs are grouped, and goes on without. */
static const function groups_table[GROUPS_SLOTS] = {SIZE(groups_table),
                                                    [1 ... GROUPS_SLOTS - 1] = not_here};

static const function modules_table[MODULES_SLOTS] = {SIZE(modules_table), [1 ... 6] = not_here,
                                                      [7] = FUNCTION(functions_of_module),
                                                      [8 ... MODULES_SLOTS - 1] = not_here};

static CUresult integrity_checked(uint32_t version, uint64_t unix_seconds, uint64_t answer[2])
{
    INVALID_IF(!answer);
    struct integrity_question question = {version, unix_seconds, runtime_table, integrity_table,
                                          (const void *)integrity_table[1]};
    integrity_answer(&question, answer);
    return CUDA_SUCCESS;
}

struct table {
    uint32_t id[4]; /* as the bytes of the UUID lie in memory */
    const function *functions;
};

static const struct table tables[] = {
    {{0x6bd5fb6c, 0x5bf4e74a, 0x8987d939, 0x12fd9df9}, runtime_table},
    {{0xa094798c, 0x2e742e74, 0x93f20800, 0x200c0a66}, hooks_table},
    {{0x42d85a81, 0x23f6cb47, 0x8298f6e7, 0x8a3aecdc}, tools_context_table},
    {{0xc693336e, 0x1121df11, 0xa8c368f3, 0x55d89593}, storage_table},
    {{0xd4082055, 0xbde6704b, 0x8d34ba12, 0x3c66e1f2}, integrity_table},
    {{0x263e8860, 0x7cd26143, 0x92f6bbd5, 0x006dfa7e}, checks_table},
    {{0x21318c60, 0x97143248, 0x8ca641ff, 0x7324c8f2}, tools_table},
    {{0x6e163fbe, 0xb958444d, 0x835ce182, 0xaff1991e}, modules_table},
    {{0x1734dc26, 0x800d4745, 0x8726c0f1, 0xe7dd8bca}, groups_table},
};

/* Before cuInit, too: the runtime asks first of all. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    INVALID_IF(!table || !id);
    uint32_t words[4];
    memcpy(words, id, sizeof words);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        bool same = true;
        for (int word = 0; word < 4; word++)
            same = same && __builtin_bswap32(words[word]) == tables[i].id[word];
        if (same) {
            *table = tables[i].functions;
            return CUDA_SUCCESS;
        }
    }
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
