/*
 * Device code, inside: what was read of an image (functions, variables, no instructions), the
 * modules that hold it in one context each, and libraries, which have such a module in every
 * context that used them.
 *
 * An image does not change once it is read, apart from the settings of its functions, which are
 * single words. The modules of a library are guarded by a mutex of library.c; it is taken before
 * memory_mutex and never across a wait.
 */
#ifndef VGPU_SIM_MODULE_H
#define VGPU_SIM_MODULE_H

#define MAGIC_LIBRARY 0x7972617262696c75ull
#define PARAMETERS_UNKNOWN UINT32_MAX

struct parameter {
    uint32_t offset, bytes;
};

/* What a client may set of a function for one device; all zero is the default. */
struct function_settings {
    uint32_t dynamic_shared_bytes; /* the most at a launch; 0: what is left of 48 KiB */
    int carveout_percent_plus_one; /* a wish */
    int cluster[3];
    int cluster_policy;
    bool non_portable_cluster;
};

struct legacy_launch;

/* What a function needs of its context before it runs. */
#define NEEDS_PRINTF 1u
#define NEEDS_HEAP 2u

struct CUfunc_st {
    uint64_t magic;
    struct image *image;
    char *name;
    bool spins;                /* its first argument is nanoseconds of GPU work */
    bool meets;                /* its arguments are its own word and a peer's (meeting.c) */
    bool loaded;               /* as lazy loading shows it; it changes nothing else */
    bool cluster_must_be_set;  /* the code asks for clusters and leaves their size open */
    bool clusters;             /* the code or a setting asks for clusters */
    uint32_t parameter_count;  /* or PARAMETERS_UNKNOWN */
    uint32_t max_threads;      /* of a block, by launch bounds and registers */
    uint32_t required_threads; /* of a block, all axes; 0: any number */
    uint32_t required_block[3];
    uint32_t required_cluster[3]; /* 0: none */
    uint32_t shared_bytes;        /* static */
    uint32_t local_bytes;
    uint32_t needs; /* by itself; image.needs is what functions that it may call do */
    uint32_t register_count;
    struct parameter *parameters;
    struct legacy_launch *legacy; /* cuParamSet*, cuFuncSetBlockShape */
    struct CUfunc_st *next;
    struct function_settings settings[SIM_MAX_GPUS];
};

enum global_kind { GLOBAL_DEVICE, GLOBAL_CONSTANT, GLOBAL_MANAGED, GLOBAL_EXTERNAL };
struct module_global {
    char *name;
    uint64_t bytes;
    enum global_kind kind;
    uint32_t index; /* in the modules' addresses */
    struct module_global *next;
};

struct image {
    struct CUfunc_st *functions;
    struct module_global *globals;
    uint32_t function_count, global_count;
    uint32_t constant_bytes;
    uint32_t needs;
    uint32_t dram_percent; /* of memory bandwidth, that its kernels need */
    uint32_t lazy_mib; /* of code that is loaded by the first launch, or asking for a function */
    uint32_t ptx_architecture, binary_architecture; /* 80 for sm_80; 0: not known */
    struct CUmod_st *module;                        /* whose it is: a module's */
    struct CUlib_st *library;                       /* or a library's */
};

struct CUmod_st {
    uint64_t magic;
    struct CUctx_st *context;
    unsigned long long context_id; /* a primary context has a new one after a reset */
    struct image *image;
    CUdeviceptr *addresses; /* of the globals; they are the context's memory */
    uint64_t code_bytes;    /* taken by a first launch (context_memory.h) */
    struct CUmod_st *next;  /* of the same library */
};

/* image.c: reading. `length` is 0 where the caller was not told it. */
CUresult image_read(const void *bytes, uint64_t length, uint32_t architecture,
                    struct image **image);
void image_free(struct image *image);
/* Adds the content of another image, which loses it; CUDA_ERROR_INVALID_IMAGE: a name is there
 * twice. */
CUresult image_merge(struct image *image, struct image *other);
bool image_is_complete(const struct image *image); /* no variable is only declared */
struct CUfunc_st *image_add_function(struct image *image, const char *name, size_t length);
struct CUfunc_st *image_find_function(const struct image *image, const char *name);
struct module_global *image_add_global(struct image *image, const char *name, size_t length,
                                       uint64_t bytes, enum global_kind kind);
struct module_global *image_find_global(const struct image *image, const char *name);
void function_bound_threads(struct CUfunc_st *function, uint32_t max_threads);
uint32_t image_architecture(void);
CUresult image_read_file(const char *path, void **bytes, uint64_t *length);

/* ptx.c, cubin.c: fill functions and globals; 0 or -EINVAL, -ENOMEM */
int ptx_parse(struct image *image, const char *text);
int cubin_parse(struct image *image, const void *bytes, uint64_t length);
/* fatbin.c: finds the best image for `architecture` in a bundle or a wrapper round one. `*owned` is
 * to be freed: the payload where it had to be unpacked, else NULL. */
CUresult fatbin_choose(const void *bytes, uint64_t length, uint32_t architecture,
                       const void **payload, uint64_t *payload_length, void **owned);

/* module.c */
CUresult module_place(struct CUctx_st *context, struct image *image, struct CUmod_st **module);
/* Streams that may use its variables are settled (stream_calls_settle). */
void module_free(struct CUmod_st *module);
bool module_lives(const struct CUmod_st *module);
CUresult module_global_of(const struct CUmod_st *module, const char *name, CUdeviceptr *address,
                          size_t *bytes);
void jit_options_answer(unsigned int count, const CUjit_option *options, void **values);

/* By CUDA_MODULE_LOADING, or as this driver does without it. */
bool module_loads_lazily(void);

/* library.c */
CUresult library_module(struct CUlib_st *library, struct CUctx_st *context,
                        struct CUmod_st **module);

/* function.c */
static inline bool is_function(const struct CUfunc_st *function)
{
    return handle_is(MAGIC_FUNCTION, function);
}
/* The current context, for a call about a function. */
CUresult context_and_function(struct CUctx_st **context, CUfunction function);
static inline uint32_t function_needs(const struct CUfunc_st *function)
{
    return function->needs | function->image->needs;
}
/* Whether it takes nothing of its context when it is launched. */
static inline bool function_is_plain(const struct CUfunc_st *function)
{
    return !function->local_bytes && !function->image->lazy_mib && !function_needs(function);
}
static inline uint32_t dynamic_shared_limit(const struct CUfunc_st *function, int ordinal)
{
    uint32_t asked = function->settings[ordinal].dynamic_shared_bytes;
    return asked ? asked
           : function->shared_bytes >= DRIVER_STATIC_SHARED_BYTES
               ? 0
               : DRIVER_STATIC_SHARED_BYTES - function->shared_bytes;
}
int resident_blocks(const struct sim_profile *profile, const struct CUfunc_st *function,
                    uint32_t block_threads, uint64_t dynamic_shared_bytes);

/* legacy_launch.c */
void legacy_launch_free(struct legacy_launch *legacy);

#endif
