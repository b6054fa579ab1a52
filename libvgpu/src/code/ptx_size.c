#include "code/ptx_size.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define OPAQUE_BYTES 64 /* of .texref and the like: never less than what the driver keeps */
#define MOST_DIGITS 31

struct reader {
    const char *at, *end;
    const char *word; /* the last word or other character that was read */
    uint64_t length;  /* of it; 0 at the end */
};

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

/* Steps over blanks and comments. */
static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end) {
        uint64_t left = (uint64_t)(reader->end - reader->at);
        if (isspace((unsigned char)*reader->at)) {
            reader->at++;
        } else if (left >= 2 && memcmp(reader->at, "//", 2) == 0) {
            const char *line = memchr(reader->at, '\n', left);
            reader->at = line != NULL ? line : reader->end;
        } else if (left >= 2 && memcmp(reader->at, "/*", 2) == 0) {
            const char *close = memmem(reader->at + 2, left - 2, "*/", 2);
            reader->at = close != NULL ? close + 2 : reader->end;
        } else {
            return;
        }
    }
}

/* Reads the next word: a directive (".global", never more than one at a time), a name or number
 * (with dots in it, as "ld.global.u32"), a quoted text, or one other character. */
static bool next(struct reader *reader)
{
    skip_blanks(reader);
    const char *at = reader->word = reader->at;
    if (at == reader->end) {
        reader->length = 0;
        return false;
    }
    char first = *at++;
    if (first == '"') {
        while (at < reader->end && *at != '"' && *at != '\n')
            at++;
        if (at < reader->end)
            at++;
    } else if (first == '.' || is_name(first)) {
        while (at < reader->end && (is_name(*at) || (*at == '.' && first != '.')))
            at++;
    }
    reader->length = (uint64_t)(at - reader->word);
    reader->at = at;
    return true;
}

static bool is(const struct reader *reader, const char *word)
{
    return reader->length == strlen(word) && memcmp(reader->word, word, reader->length) == 0;
}

static bool is_char(const struct reader *reader, char c)
{
    return reader->length == 1 && *reader->word == c;
}

/* The word as a whole number; false when it is something else. */
static bool number(const struct reader *reader, uint64_t *value)
{
    char digits[MOST_DIGITS + 1] = {0};
    uint64_t length = reader->length;
    if (length > 0 && (reader->word[length - 1] == 'U' || reader->word[length - 1] == 'u'))
        length--;
    if (length == 0 || length > MOST_DIGITS || !isdigit((unsigned char)*reader->word))
        return false;
    memcpy(digits, reader->word, length);
    bool is_binary = digits[0] == '0' && (digits[1] == 'b' || digits[1] == 'B');
    char *end;
    *value = strtoull(digits + (is_binary ? 2 : 0), &end, is_binary ? 2 : 0);
    return end == digits + length;
}

static void multiply(uint64_t *value, uint64_t factor)
{
    if (__builtin_mul_overflow(*value, factor, value) || *value > IMAGE_MOST_BYTES)
        *value = IMAGE_MOST_BYTES;
}

/* Bytes of one element of a type, 0 when the word is no type that is known here. */
static uint64_t type_bytes(const struct reader *reader)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } others[] = {{".f16x2", 4},
                  {".bf16", 2},
                  {".bf16x2", 4},
                  {".tf32", 4},
                  {".e4m3", 1},
                  {".e5m2", 1},
                  {".pred", 1},
                  {".texref", OPAQUE_BYTES},
                  {".e4m3x2", 2},
                  {".e5m2x2", 2},
                  {".surfref", OPAQUE_BYTES},
                  {".samplerref", OPAQUE_BYTES}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is(reader, others[i].name))
            return others[i].bytes;
    struct reader bits = {.word = reader->word + 2, .length = reader->length - 2};
    uint64_t value = 0;
    if (reader->length < 3 || strchr("busf", reader->word[1]) == NULL || !number(&bits, &value))
        return 0;
    return value == 8 || value == 16 || value == 32 || value == 64 || value == 128 ? value / 8 : 0;
}

struct declaration {
    uint64_t element_bytes, alignment;
    uint64_t lanes;  /* of a vector */
    uint64_t count;  /* of one name */
    bool is_unsized; /* "[]": as many as its values */
    bool is_named;
};

/* Steps over the values of one name, up to ',' or ';'. At most one element begins at each comma, so
 * that is how many there are, or fewer. */
static uint64_t skip_values(struct reader *reader)
{
    uint64_t commas = 0;
    for (int depth = 0; next(reader);) {
        if (is_char(reader, '{') || is_char(reader, '('))
            depth++;
        else if (is_char(reader, '}') || is_char(reader, ')'))
            depth--;
        else if (is_char(reader, ';') || (is_char(reader, ',') && depth <= 0))
            break;
        else if (is_char(reader, ','))
            commas++;
    }
    return commas + 1;
}

static bool read_dimension(struct reader *reader, struct declaration *declaration)
{
    uint64_t elements;
    if (!next(reader))
        return false;
    if (is_char(reader, ']')) {
        declaration->is_unsized = true;
        return true;
    }
    if (!number(reader, &elements) || !next(reader) || !is_char(reader, ']'))
        return false; /* something to be worked out: not by us */
    multiply(&declaration->count, elements);
    return true;
}

static bool skip_brackets(struct reader *reader)
{
    int depth = 0;
    while (next(reader)) {
        depth += is_char(reader, '(');
        depth -= is_char(reader, ')');
        if (depth <= 0)
            return true;
    }
    return false;
}

/* Reads one directive of a declaration. False when it is not known. */
static bool read_directive(struct reader *reader, struct declaration *declaration)
{
    if (is(reader, ".align"))
        return next(reader) && number(reader, &declaration->alignment);
    if (is(reader, ".attribute"))
        return skip_brackets(reader);
    if (is(reader, ".v2") || is(reader, ".v4") || is(reader, ".v8")) {
        declaration->lanes = (uint64_t)(reader->word[2] - '0');
        return true;
    }
    uint64_t bytes = type_bytes(reader);
    declaration->element_bytes = bytes;
    return bytes != 0;
}

static void add(struct image_size *size, const struct declaration *declaration, uint64_t values)
{
    uint64_t bytes = declaration->element_bytes;
    multiply(&bytes, declaration->lanes);
    multiply(&bytes, declaration->count);
    if (declaration->is_unsized)
        multiply(&bytes, values);
    image_size_add_variable(size, bytes, declaration->alignment);
}

/* Reads from behind .global or .const up to the semicolon; false when it is not understood. */
static bool read_declaration(struct reader *reader, bool is_extern, struct image_size *size)
{
    struct declaration declaration = {.lanes = 1, .count = 1};
    while (next(reader)) {
        uint64_t values = 1;
        bool has_values = is_char(reader, '=');
        if (has_values)
            values = skip_values(reader);
        if (is_char(reader, ';') || is_char(reader, ',')) {
            if (!declaration.is_named || declaration.element_bytes == 0)
                return false;
            if (!is_extern)
                add(size, &declaration, values);
            if (is_char(reader, ';'))
                return true;
            declaration.count = 1;
            declaration.is_unsized = declaration.is_named = false;
        } else if (has_values) {
            return false; /* the text ended */
        } else if (*reader->word == '.') {
            if (!read_directive(reader, &declaration))
                return false;
        } else if (is_char(reader, '[')) {
            if (!read_dimension(reader, &declaration))
                return false;
        } else if (is_name(*reader->word) && !declaration.is_named) {
            declaration.is_named = true;
        } else {
            return false;
        }
    }
    return false;
}

void ptx_size(const struct image_view *view, struct image_size *size)
{
    uint64_t length = image_view_text_length(view);
    const char *text = (const char *)view->bytes;
    struct reader reader = {.at = text, .end = text + length};
    bool is_extern = false;
    int depth = 0; /* of round brackets: in lists of parameters .global tells of pointers */
    while (next(&reader)) {
        if (is_char(&reader, '('))
            depth++;
        else if (is_char(&reader, ')'))
            depth--;
        else if (is(&reader, ".extern"))
            is_extern = true;
        else if (is_char(&reader, ';') || is_char(&reader, '{') || is_char(&reader, '}'))
            is_extern = false;
        else if (depth <= 0 && (is(&reader, ".global") || is(&reader, ".const"))) {
            if (!read_declaration(&reader, is_extern, size))
                size->is_unknown = true;
            is_extern = false;
        }
    }
    size->code_bytes += length;
    size->image_bytes = length;
}
