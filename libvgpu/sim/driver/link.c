/*
 * Linking: the functions and variables of all inputs in one image. What comes out, which clients
 * only hand on to cuModuleLoadData, is not the cubin that a driver makes but PTX that declares the
 * same functions and variables; there is no code to put into either.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define MAGIC_LINK 0x000000006b6e696cull
#define MOST_ALIGNMENT 256

struct CUlinkState_st {
    uint64_t magic;
    struct image *image;
    char *text; /* of the result; belongs to the state, as documented */
    size_t text_bytes;
};

static bool is_state(const struct CUlinkState_st *state)
{
    return state && state->magic == MAGIC_LINK;
}

/* The least alignment that brings a parameter from `end` of the one before to its `offset`. */
static uint32_t alignment_for(uint32_t end, uint32_t offset)
{
    uint32_t alignment = 1;
    while (alignment < MOST_ALIGNMENT && (end + alignment - 1) / alignment * alignment != offset)
        alignment *= 2;
    return alignment;
}

static void write_function(FILE *out, const struct CUfunc_st *function)
{
    uint32_t end = 0;
    uint32_t count =
        function->parameter_count == PARAMETERS_UNKNOWN ? 0 : function->parameter_count;
    fprintf(out, ".visible .entry %s(", function->name);
    for (uint32_t i = 0; i < count; i++) {
        struct parameter parameter = function->parameters[i];
        fprintf(out, "%s.param .align %u .b8 p%u[%u]", i ? ", " : "",
                alignment_for(end, parameter.offset), i, parameter.bytes);
        end = parameter.offset + parameter.bytes;
    }
    fputs(")\n", out);
    if (function->required_threads)
        fprintf(out, ".reqntid %u, %u, %u\n", function->required_block[0],
                function->required_block[1], function->required_block[2]);
    else
        fprintf(out, ".maxntid %u, 1, 1\n", function->max_threads);
    if (function->required_cluster[0])
        fprintf(out, ".reqnctapercluster %u, %u, %u\n", function->required_cluster[0],
                function->required_cluster[1], function->required_cluster[2]);
    else if (function->cluster_must_be_set)
        fputs(".explicitcluster\n", out);
    fputs("{\n", out);
    if (function->shared_bytes)
        fprintf(out, ".shared .b8 s[%u];\n", function->shared_bytes);
    if (function->local_bytes)
        fprintf(out, ".local .b8 l[%u];\n", function->local_bytes);
    fputs("ret;\n}\n", out);
}

static CUresult write_image(struct CUlinkState_st *state)
{
    FILE *out = open_memstream(&state->text, &state->text_bytes);
    REFUSE_IF(!out, CUDA_ERROR_OUT_OF_MEMORY);
    const struct image *image = state->image;
    fprintf(out, ".version 7.0\n.target sm_%u\n.address_size 64\n", image->ptx_architecture);
    for (const struct module_global *global = image->globals; global; global = global->next)
        fprintf(out, ".visible %s .b8 %s[%llu];\n",
                global->kind == GLOBAL_CONSTANT  ? ".const"
                : global->kind == GLOBAL_MANAGED ? ".global .attribute(.managed)"
                                                 : ".global",
                global->name, (unsigned long long)global->bytes);
    for (const struct CUfunc_st *each = image->functions; each; each = each->next)
        write_function(out, each);
    fputc(0, out); /* counted, since clients copy the bytes they are told of */
    return fclose(out) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add(struct CUlinkState_st *state, CUjitInputType type, const void *bytes,
                    uint64_t length)
{
    struct image *image;
    REFUSE_IF(type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY ||
                  type == CU_JIT_INPUT_NVVM,
              CUDA_ERROR_NOT_SUPPORTED); /* host objects with device code inside, and NVVM */
    INVALID_IF((unsigned int)type > CU_JIT_INPUT_NVVM || state->text);
    CHECK(image_read(bytes, length, image_architecture(), &image));
    CUresult result = image_merge(state->image, image);
    image_free(image);
    return result;
}

/* ---- entry points ---------------------------------------------------------------------------- */

CUresult cuLinkCreate_v2(unsigned int option_count, CUjit_option *options, void **option_values,
                         CUlinkState *state)
{
    CURRENT_CONTEXT(context);
    INVALID_IF(!state || (option_count && (!options || !option_values)));
    struct CUlinkState_st *created = calloc(1, sizeof *created);
    struct image *image = calloc(1, sizeof *image);
    if (!created || !image) {
        free(created);
        free(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    jit_options_answer(option_count, options, option_values);
    *created = (struct CUlinkState_st){.magic = MAGIC_LINK, .image = image};
    *state = created;
    return CUDA_SUCCESS;
}

CUresult cuLinkCreate(unsigned int option_count, CUjit_option *options, void **option_values,
                      CUlinkState *state)
{
    return cuLinkCreate_v2(option_count, options, option_values, state);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
                          const char *name, unsigned int option_count, CUjit_option *options,
                          void **option_values)
{
    DRIVER_CHECK();
    (void)name; /* for the log */
    REFUSE_IF(!is_state(state), CUDA_ERROR_INVALID_HANDLE);
    INVALID_IF(!data || bytes == 0 || (option_count && (!options || !option_values)));
    return add(state, type, data, bytes);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
                       const char *name, unsigned int option_count, CUjit_option *options,
                       void **option_values)
{
    return cuLinkAddData_v2(state, type, data, bytes, name, option_count, options, option_values);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int option_count, CUjit_option *options, void **option_values)
{
    void *bytes;
    uint64_t length;
    DRIVER_CHECK();
    REFUSE_IF(!is_state(state), CUDA_ERROR_INVALID_HANDLE);
    INVALID_IF(!path || (option_count && (!options || !option_values)));
    CUresult result = image_read_file(path, &bytes, &length);
    if (result == CUDA_SUCCESS) {
        result = add(state, type, bytes, length);
        free(bytes);
    }
    return result;
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path,
                       unsigned int option_count, CUjit_option *options, void **option_values)
{
    return cuLinkAddFile_v2(state, type, path, option_count, options, option_values);
}

CUresult cuLinkComplete(CUlinkState state, void **image, size_t *bytes)
{
    DRIVER_CHECK();
    REFUSE_IF(!is_state(state), CUDA_ERROR_INVALID_HANDLE);
    INVALID_IF(!image);
    /* Which error a missing definition gives is not documented. */
    REFUSE_IF(!image_is_complete(state->image), CUDA_ERROR_INVALID_IMAGE);
    CHECK(state->text ? CUDA_SUCCESS : write_image(state));
    *image = state->text;
    if (bytes)
        *bytes = state->text_bytes;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
    DRIVER_CHECK();
    REFUSE_IF(!is_state(state), CUDA_ERROR_INVALID_HANDLE);
    state->magic = 0;
    image_free(state->image);
    free(state->text);
    free(state);
    return CUDA_SUCCESS;
}
