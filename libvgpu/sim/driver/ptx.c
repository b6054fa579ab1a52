/*
 * Reads of a PTX text what a driver without a compiler needs: the kernels with their parameters,
 * launch bounds and memory of their own, and the module's variables. Of bodies only declarations
 * are looked at, and whether they name shared memory that is declared outside, or vprintf or malloc;
 * what functions that a kernel calls declare is not counted, and what they name counts for all.
 *
 * A comment `vgpu_sim_first_launch_mib=N` says what the module's code loads with its first launch, and
 * `vgpu_sim_dram_percent=N` how much memory bandwidth its kernels need.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define FIRST_LAUNCH "vgpu_sim_first_launch_mib="
#define DRAM "vgpu_sim_dram_percent="
#define MOST_DRAM_PERCENT 100

/* Shared memory declared outside of any body: counts for the kernels that name it. */
struct shared_variable {
    const char *name;
    size_t name_length;
    uint64_t bytes;
    bool named;
    struct shared_variable *next;
};

struct reader {
    struct image *image;
    const char *at;
    struct shared_variable *shared;
    bool external; /* ".extern" stood before */
};

/* Blanks out comments, so that what follows need not know them. */
static char *copy_without_comments(const char *text)
{
    char *copy = strdup(text);
    for (char *at = copy; at && *at; at++) {
        if (at[0] == '/' && at[1] == '/') {
            while (*at && *at != '\n')
                *at++ = ' ';
        } else if (at[0] == '/' && at[1] == '*') {
            while (*at && !(at[0] == '*' && at[1] == '/'))
                *at++ = ' ';
            if (*at)
                at[0] = at[1] = ' ';
        }
        if (!*at)
            break;
    }
    return copy;
}

/* Finds the next word (or one other character); returns its length, 0 at the end. */
static size_t next_word(struct reader *reader)
{
    while (isspace((unsigned char)*reader->at))
        reader->at++;
    size_t length = 0;
    while (isalnum((unsigned char)reader->at[length]) ||
           (reader->at[length] && strchr("._$%", reader->at[length])))
        length++;
    return length ? length : *reader->at ? 1 : 0;
}

static bool word_is(const struct reader *reader, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(reader->at, word, length) == 0;
}

static uint32_t read_number(struct reader *reader, size_t length)
{
    reader->at += length;
    length = next_word(reader);
    uint32_t number = length ? (uint32_t)strtoul(reader->at, NULL, 0) : 0;
    reader->at += length;
    return number;
}

/* Reads up to three numbers with commas between them, those left out being 1. */
static void read_three(struct reader *reader, size_t length, uint32_t numbers[3])
{
    numbers[0] = read_number(reader, length);
    numbers[1] = numbers[2] = 1;
    for (int i = 1; i < 3 && (length = next_word(reader)) == 1 && *reader->at == ','; i++)
        numbers[i] = read_number(reader, length);
}

/* Bytes of one element of a PTX type (".u64"), 0 when the word is no type. */
static uint32_t type_bytes(const char *at, size_t length)
{
    if (length < 3 || at[0] != '.' || !strchr("busf", at[1]))
        return 0;
    uint32_t bits = (uint32_t)strtoul(at + 2, NULL, 10);
    return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 ? bits / 8 : 0;
}

struct declaration {
    uint64_t bytes;
    uint32_t alignment;
    bool managed;
    const char *name;
    size_t name_length;
};

/* Reads a declaration from behind .param, .global and the like up to one of `ends`. */
static void read_declaration(struct reader *reader, const char *ends,
                             struct declaration *declaration)
{
    uint64_t element_bytes = 0, count = 1;
    bool of_pointee = false; /* behind .ptr, .align tells about what is pointed to */
    *declaration = (struct declaration){0};
    for (size_t length; (length = next_word(reader)) != 0;) {
        if (length == 1 && strchr(ends, *reader->at))
            break;
        if (word_is(reader, length, ".align")) {
            uint32_t alignment = read_number(reader, length);
            declaration->alignment = of_pointee ? declaration->alignment : alignment;
            continue;
        }
        if (word_is(reader, length, ".v2") || word_is(reader, length, ".v4")) {
            count *= reader->at[2] == '2' ? 2 : 4;
        } else if (type_bytes(reader->at, length)) {
            element_bytes = type_bytes(reader->at, length);
        } else if (*reader->at == '[') {
            reader->at++;
            length = next_word(reader);
            count *= strtoull(reader->at, NULL, 0); /* 0 for "[]" */
            length = *reader->at == ']' ? 0 : length;
        } else if (word_is(reader, length, ".managed")) {
            declaration->managed = true;
        } else if (word_is(reader, length, ".ptr")) {
            of_pointee = true;
        } else if (!declaration->name &&
                   (isalpha((unsigned char)*reader->at) || strchr("_$%", *reader->at))) {
            declaration->name = reader->at;
            declaration->name_length = length;
        }
        reader->at += length;
    }
    declaration->bytes = element_bytes * count;
    if (!declaration->alignment)
        declaration->alignment = element_bytes ? (uint32_t)element_bytes : 1;
}

static uint64_t align(uint64_t offset, uint32_t alignment)
{
    return (offset + alignment - 1) / alignment * alignment;
}

/* What a call of the system's functions needs, 0 for all else. */
static uint32_t needs_of(const struct reader *reader, size_t length)
{
    return word_is(reader, length, "vprintf")  ? NEEDS_PRINTF
           : word_is(reader, length, "malloc") ? NEEDS_HEAP
                                               : 0;
}

/* Reads a body; that of no kernel (`function` is NULL) only for what it calls. */
static void read_body(struct reader *reader, struct CUfunc_st *function)
{
    struct declaration declaration;
    int depth = 0;
    for (struct shared_variable *each = reader->shared; each; each = each->next)
        each->named = false;
    for (size_t length; (length = next_word(reader)) != 0;) {
        char first = *reader->at;
        depth += first == '{';
        depth -= first == '}';
        if (depth == 0) {
            reader->at += length;
            return;
        }
        if (function && (word_is(reader, length, ".shared") || word_is(reader, length, ".local"))) {
            uint32_t *bytes = first == '.' && reader->at[1] == 's' ? &function->shared_bytes
                                                                   : &function->local_bytes;
            reader->at += length;
            read_declaration(reader, ";", &declaration);
            *bytes = (uint32_t)(align(*bytes, declaration.alignment) + declaration.bytes);
            continue;
        }
        *(function ? &function->needs : &reader->image->needs) |= needs_of(reader, length);
        for (struct shared_variable *each = reader->shared; function && each; each = each->next)
            if (!each->named && length == each->name_length &&
                memcmp(each->name, reader->at, length) == 0) {
                each->named = true;
                function->shared_bytes += (uint32_t)each->bytes;
            }
        reader->at += length;
    }
}

static int read_parameters(struct reader *reader, struct CUfunc_st *function)
{
    uint64_t offset = 0;
    size_t length;
    reader->at++; /* the bracket */
    while ((length = next_word(reader)) != 0 && *reader->at != ')') {
        struct declaration declaration;
        if (!word_is(reader, length, ".param"))
            return -EINVAL;
        reader->at += length;
        read_declaration(reader, ",)", &declaration);
        if (*reader->at == ',')
            reader->at++;
        struct parameter *grown =
            realloc(function->parameters, (function->parameter_count + 1) * sizeof *grown);
        REFUSE_IF(!grown, -ENOMEM);
        offset = align(offset, declaration.alignment);
        grown[function->parameter_count++] =
            (struct parameter){(uint32_t)offset, (uint32_t)declaration.bytes};
        function->parameters = grown;
        offset += declaration.bytes;
    }
    reader->at += length;
    return length ? 0 : -EINVAL;
}

/* Reads a kernel from behind .entry. */
static int read_entry(struct reader *reader)
{
    uint32_t numbers[3], max_threads = DRIVER_MAX_BLOCK_THREADS;
    size_t length = next_word(reader);
    struct CUfunc_st *function =
        length ? image_add_function(reader->image, reader->at, length) : NULL;
    REFUSE_IF(!function, -EINVAL);
    function->parameter_count = 0;
    reader->at += length;
    int error = next_word(reader) && *reader->at == '(' ? read_parameters(reader, function) : 0;
    while (!error && (length = next_word(reader)) != 0 && *reader->at != '{' &&
           *reader->at != ';') {
        if (word_is(reader, length, ".maxntid") || word_is(reader, length, ".reqntid")) {
            bool required = reader->at[1] == 'r';
            read_three(reader, length, numbers);
            max_threads = numbers[0] * numbers[1] * numbers[2];
            if (required) {
                memcpy(function->required_block, numbers, sizeof numbers);
                function->required_threads = max_threads;
            }
        } else if (word_is(reader, length, ".maxnreg")) {
            uint32_t most = read_number(reader, length);
            if (most && most < function->register_count)
                function->register_count = most;
        } else if (word_is(reader, length, ".reqnctapercluster")) {
            read_three(reader, length, function->required_cluster);
        } else {
            if (word_is(reader, length, ".explicitcluster"))
                function->cluster_must_be_set = true;
            reader->at += length;
        }
    }
    if (!error && *reader->at == '{')
        read_body(reader, function);
    function->clusters = function->required_cluster[0] || function->cluster_must_be_set;
    if (function->required_cluster[0])
        function->cluster_must_be_set = false;
    function_bound_threads(function, max_threads);
    return error;
}

static int read_variable(struct reader *reader, size_t length)
{
    bool shared = word_is(reader, length, ".shared"), constant = reader->at[1] == 'c';
    struct declaration declaration;
    reader->at += length;
    read_declaration(reader, "=;", &declaration);
    reader->at += strcspn(reader->at, ";");
    if (!declaration.name)
        return 0;
    if (shared) { /* without a size: the dynamic part */
        struct shared_variable *variable = malloc(sizeof *variable);
        REFUSE_IF(!variable, -ENOMEM);
        *variable = (struct shared_variable){.name = declaration.name,
                                             .name_length = declaration.name_length,
                                             .bytes = declaration.bytes,
                                             .next = reader->shared};
        reader->shared = variable;
        return 0;
    }
    enum global_kind kind = reader->external      ? GLOBAL_EXTERNAL
                            : constant            ? GLOBAL_CONSTANT
                            : declaration.managed ? GLOBAL_MANAGED
                                                  : GLOBAL_DEVICE;
    REFUSE_IF(!reader->external && declaration.bytes == 0, -EINVAL);
    return image_add_global(reader->image, declaration.name, declaration.name_length,
                            declaration.bytes, kind)
               ? 0
               : -ENOMEM;
}

/* Returns the number that a comment says, 0 if there is no such comment. */
static uint32_t said(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? (uint32_t)strtoul(at + strlen(name), NULL, 10) : 0;
}

int ptx_parse(struct image *image, const char *text)
{
    char *copy = copy_without_comments(text);
    REFUSE_IF(!copy, -ENOMEM);
    struct reader reader = {.image = image, .at = copy};
    const char *target = strstr(copy, ".target");
    int error = strstr(copy, ".version") && target ? 0 : -EINVAL;
    image->lazy_mib = said(text, FIRST_LAUNCH);
    uint32_t dram_percent = said(text, DRAM);
    image->dram_percent = dram_percent < MOST_DRAM_PERCENT ? dram_percent : MOST_DRAM_PERCENT;
    const char *number = target ? strstr(target, "sm_") : NULL;
    if (number)
        image->ptx_architecture = (uint32_t)strtoul(number + strlen("sm_"), NULL, 10);
    for (size_t length; !error && (length = next_word(&reader)) != 0;) {
        if (word_is(&reader, length, ".entry")) {
            reader.at += length;
            error = read_entry(&reader);
        } else if (word_is(&reader, length, ".global") || word_is(&reader, length, ".const") ||
                   word_is(&reader, length, ".shared")) {
            error = read_variable(&reader, length);
        } else if (*reader.at == '{') {
            read_body(&reader, NULL);
        } else {
            /* .extern reaches to the end of its declaration */
            reader.external =
                word_is(&reader, length, ".extern") || (reader.external && *reader.at != ';');
            reader.at += length;
        }
    }
    while (reader.shared) {
        struct shared_variable *variable = reader.shared;
        reader.shared = variable->next;
        free(variable);
    }
    free(copy);
    return error;
}
