/* What an image of device code holds, whatever its form: named functions and variables. Nothing is
 * compiled, and code itself takes no device memory here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define ELF_MAGIC "\177ELF"
#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define DEFAULT_REGISTERS 32

/* Also with something in front, as `ncclDevKernel_spin_ns`. */
static bool is_named(const char *name, const char *end)
{
    size_t length = strlen(name), least = strlen(end);
    if (length < least || strcmp(name + length - least, end) != 0)
        return false;
    return length == least || name[length - least - 1] == '_';
}

struct CUfunc_st *image_add_function(struct image *image, const char *name, size_t length)
{
    struct CUfunc_st *function = handle_new(MAGIC_FUNCTION, sizeof *function);
    if (!function || !(function->name = strndup(name, length))) {
        if (function)
            handle_bury(function);
        return NULL;
    }
    function->image = image;
    function->spins = is_named(function->name, "spin_ns");
    function->meets = is_named(function->name, "meet_peer");
    function->parameter_count = PARAMETERS_UNKNOWN;
    function->register_count = DEFAULT_REGISTERS;
    function->max_threads = DRIVER_MAX_BLOCK_THREADS;
    function->next = image->functions;
    image->functions = function;
    image->function_count++;
    return function;
}

struct CUfunc_st *image_find_function(const struct image *image, const char *name)
{
    struct CUfunc_st *function = image->functions;
    while (function && strcmp(function->name, name) != 0)
        function = function->next;
    return function;
}

struct module_global *image_find_global(const struct image *image, const char *name)
{
    struct module_global *global = image->globals;
    while (global && strcmp(global->name, name) != 0)
        global = global->next;
    return global;
}

struct module_global *image_add_global(struct image *image, const char *name, size_t length,
                                       uint64_t bytes, enum global_kind kind)
{
    struct module_global *global = calloc(1, sizeof *global);
    if (!global || !(global->name = strndup(name, length))) {
        free(global);
        return NULL;
    }
    global->bytes = bytes;
    global->kind = kind;
    global->index = image->global_count++;
    global->next = image->globals;
    image->globals = global;
    if (kind == GLOBAL_CONSTANT)
        image->constant_bytes += (uint32_t)bytes;
    return global;
}

bool image_is_complete(const struct image *image)
{
    for (const struct module_global *global = image->globals; global; global = global->next)
        if (global->kind == GLOBAL_EXTERNAL)
            return false;
    return true;
}

static void free_function(struct CUfunc_st *function)
{
    legacy_launch_free(function->legacy);
    free(function->parameters);
    free(function->name);
    handle_bury(function);
}

void image_free(struct image *image)
{
    while (image->globals) {
        struct module_global *global = image->globals;
        image->globals = global->next;
        free(global->name);
        free(global);
    }
    while (image->functions) {
        struct CUfunc_st *function = image->functions;
        image->functions = function->next;
        free_function(function);
    }
    free(image);
}

/* A declaration gives way to the definition, in whichever order they come. */
static CUresult merge_global(struct image *image, struct module_global *global)
{
    struct module_global *same = image_find_global(image, global->name);
    REFUSE_IF(same && same->kind != GLOBAL_EXTERNAL && global->kind != GLOBAL_EXTERNAL,
              CUDA_ERROR_INVALID_IMAGE);
    if (same) {
        if (same->kind == GLOBAL_EXTERNAL) {
            same->kind = global->kind;
            same->bytes = global->bytes;
        }
        return CUDA_SUCCESS;
    }
    return image_add_global(image, global->name, strlen(global->name), global->bytes, global->kind)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult image_merge(struct image *image, struct image *other)
{
    for (struct CUfunc_st *function = other->functions; function; function = function->next)
        REFUSE_IF(image_find_function(image, function->name), CUDA_ERROR_INVALID_IMAGE);
    for (struct module_global *global = other->globals; global; global = global->next) {
        CHECK(merge_global(image, global));
    }
    while (other->functions) {
        struct CUfunc_st *function = other->functions;
        other->functions = function->next;
        function->image = image;
        function->next = image->functions;
        image->functions = function;
        image->function_count++;
    }
    image->needs |= other->needs;
    if (image->lazy_mib < other->lazy_mib)
        image->lazy_mib = other->lazy_mib;
    if (image->ptx_architecture < other->ptx_architecture)
        image->ptx_architecture = other->ptx_architecture;
    return CUDA_SUCCESS;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The architecture that code is chosen for: that of the current context's device, else of the first
 * device, whose images name the same functions. */
uint32_t image_architecture(void)
{
    CUcontext current = NULL;
    const struct driver_device *device = &driver.devices[0];
    if (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current)
        device = current->device;
    return driver.device_count ? device->identity->profile.compute_major * 10 +
                                     device->identity->profile.compute_minor
                               : 0;
}

static CUresult read_elf(struct image *image, const void *bytes, uint64_t length,
                         uint32_t architecture)
{
    REFUSE_IF(cubin_parse(image, bytes, length) != 0, CUDA_ERROR_INVALID_IMAGE);
    uint32_t built_for = image->binary_architecture;
    /* Code runs on its own major version from its minor version upwards. */
    bool runs = !built_for || !architecture ||
                (built_for / 10 == architecture / 10 && built_for % 10 <= architecture % 10);
    return runs ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult read_ptx(struct image *image, const char *text, uint64_t length,
                         uint32_t architecture)
{
    char *copy = length ? strndup(text, length) : NULL;
    REFUSE_IF(length && !copy, CUDA_ERROR_OUT_OF_MEMORY);
    int error = ptx_parse(image, copy ? copy : text);
    free(copy);
    REFUSE_IF(error != 0, CUDA_ERROR_INVALID_PTX);
    image->binary_architecture = architecture;
    /* the compiler refuses code for a newer virtual machine than the device's */
    return architecture && image->ptx_architecture > architecture ? CUDA_ERROR_INVALID_PTX
                                                                  : CUDA_SUCCESS;
}

CUresult image_read(const void *bytes, uint64_t length, uint32_t architecture,
                    struct image **result)
{
    uint32_t first_word = 0;
    void *owned = NULL;
    CUresult error = CUDA_SUCCESS;
    struct image *image = calloc(1, sizeof *image);
    REFUSE_IF(!image, CUDA_ERROR_OUT_OF_MEMORY);
    /* A text may be shorter than a word; without a length it has at least its NUL. */
    if (length ? length >= sizeof first_word : strnlen(bytes, sizeof first_word) == 4)
        memcpy(&first_word, bytes, sizeof first_word);
    if (first_word == FATBIN_MAGIC || first_word == FATBIN_WRAPPER_MAGIC) {
        error = fatbin_choose(bytes, length, architecture, &bytes, &length, &owned);
        if (error == CUDA_SUCCESS)
            memcpy(&first_word, bytes, sizeof first_word);
    }
    if (error == CUDA_SUCCESS)
        error = memcmp(&first_word, ELF_MAGIC, 4) == 0
                    ? read_elf(image, bytes, length, architecture)
                    : read_ptx(image, bytes, length, architecture);
    free(owned);
    if (error != CUDA_SUCCESS)
        image_free(image);
    else
        *result = image;
    return error;
}

CUresult image_read_file(const char *path, void **image, uint64_t *length)
{
    FILE *file = fopen(path, "rbe");
    REFUSE_IF(!file, CUDA_ERROR_FILE_NOT_FOUND);
    char *bytes = NULL;
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    end = fseek(file, 0, SEEK_SET) == 0 ? end : -1;
    if (end > 0 && (bytes = calloc(1, (size_t)end + 1)) != NULL &&
        fread(bytes, 1, (size_t)end, file) != (size_t)end) {
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    *image = bytes;
    *length = bytes ? (uint64_t)end : 0;
    return bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
