/*
 * Reads of a PTX text what a driver without a compiler needs: the kernels with the sizes of their
 * parameters, and the module's global variables with theirs. Function bodies are skipped.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

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

/* Reads one word (or one other character) at *at; returns its length, 0 at the end. */
static size_t next_word(const char **at)
{
    while (isspace((unsigned char)**at))
        ++*at;
    size_t length = 0;
    while (isalnum((unsigned char)(*at)[length]) ||
           ((*at)[length] && strchr("._$%", (*at)[length])))
        length++;
    return length ? length : **at ? 1 : 0;
}

static bool word_is(const char *at, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(at, word, length) == 0;
}

/* Bytes of one element of a PTX type (".u64"), 0 when the word is no type. */
static uint32_t type_bytes(const char *at, size_t length)
{
    if (length < 3 || at[0] != '.' || !strchr("busf", at[1]))
        return 0;
    uint32_t bits = (uint32_t)strtoul(at + 2, NULL, 10);
    return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 ? bits / 8 : 0;
}

/* Reads a declaration from behind .param or .global up to one of `ends`: element size, alignment,
 * name and array lengths. */
struct declaration {
    uint64_t bytes;
    uint32_t alignment;
    const char *name;
    size_t name_length;
};

static const char *read_declaration(const char *at, const char *ends,
                                    struct declaration *declaration)
{
    uint64_t element_bytes = 0, count = 1;
    *declaration = (struct declaration){0};
    for (size_t length; (length = next_word(&at)) != 0; at += length) {
        if (length == 1 && strchr(ends, *at))
            break;
        if (word_is(at, length, ".align")) {
            at += length;
            length = next_word(&at);
            declaration->alignment = (uint32_t)strtoul(at, NULL, 10);
        } else if (word_is(at, length, ".v2") || word_is(at, length, ".v4")) {
            count *= at[2] == '2' ? 2 : 4;
        } else if (type_bytes(at, length)) {
            element_bytes = type_bytes(at, length);
        } else if (*at == '[') {
            const char *number = at + 1;
            size_t digits = next_word(&number);
            count *= digits ? strtoull(number, NULL, 0) : 0;
            at = number;
            length = digits;
        } else if (!declaration->name && (isalpha((unsigned char)*at) || strchr("_$%", *at))) {
            declaration->name = at;
            declaration->name_length = length;
        }
    }
    declaration->bytes = element_bytes * count;
    if (!declaration->alignment)
        declaration->alignment = element_bytes ? (uint32_t)element_bytes : 1;
    return at;
}

static const char *skip_braces(const char *at)
{
    int depth = 0;
    for (; *at; at++) {
        depth += *at == '{';
        depth -= *at == '}';
        if (*at == '}' && depth == 0)
            return at + 1;
    }
    return at;
}

/* Reads a kernel from behind .entry; returns where its body begins, or NULL. */
static const char *read_entry(struct CUmod_st *module, const char *at)
{
    size_t length = next_word(&at);
    struct CUfunc_st *function = length ? module_add_function(module, at, length) : NULL;
    if (!function)
        return NULL;
    function->parameter_count = 0;
    at += length;
    length = next_word(&at);
    if (length != 1 || *at != '(')
        return at; /* no parameters */
    uint32_t offset = 0;
    at++;
    while ((length = next_word(&at)) != 0 && *at != ')') {
        struct declaration declaration;
        if (!word_is(at, length, ".param"))
            return NULL;
        at = read_declaration(at + length, ",)", &declaration);
        if (*at == ',')
            at++;
        struct parameter *grown =
            realloc(function->parameters, (function->parameter_count + 1) * sizeof *grown);
        if (!grown)
            return NULL;
        offset =
            (offset + declaration.alignment - 1) / declaration.alignment * declaration.alignment;
        grown[function->parameter_count++] =
            (struct parameter){offset, (uint32_t)declaration.bytes};
        function->parameters = grown;
        offset += (uint32_t)declaration.bytes;
    }
    return at;
}

static int add_global(struct CUmod_st *module, const struct declaration *declaration)
{
    if (!declaration->name || declaration->bytes == 0)
        return 0; /* extern without a size: nothing to place */
    struct module_global *global = calloc(1, sizeof *global);
    if (!global || !(global->name = strndup(declaration->name, declaration->name_length))) {
        free(global);
        return -ENOMEM;
    }
    global->bytes = declaration->bytes;
    global->next = module->globals;
    module->globals = global;
    return 0;
}

int ptx_parse(struct CUmod_st *module, const char *text)
{
    char *copy = copy_without_comments(text);
    if (!copy)
        return -ENOMEM;
    int error = strstr(copy, ".version") && strstr(copy, ".target") ? 0 : -EINVAL;
    const char *at = copy;
    for (size_t length; !error && (length = next_word(&at)) != 0;) {
        if (word_is(at, length, ".entry")) {
            at = read_entry(module, at + length);
            if (!at)
                error = -EINVAL;
        } else if (word_is(at, length, ".global") || word_is(at, length, ".const")) {
            struct declaration declaration;
            at = read_declaration(at + length, "=;", &declaration);
            error = add_global(module, &declaration);
            at += strcspn(at, ";");
        } else if (*at == '{') {
            at = skip_braces(at);
        } else {
            at += length;
        }
    }
    free(copy);
    return error;
}
