/*
 * Reads of a cubin (an ELF file) its kernels and variables:
 * - kernels: sections ".text.NAME", but for those whose symbol says that they are no entry point;
 *   their static shared memory: the size of ".nv.shared.NAME"; their parameters and launch bounds:
 *   attributes in ".nv.info.NAME"; registers and stack: attributes in ".nv.info", by symbol;
 * - variables: symbols of objects in ".nv.global*" and ".nv.constant3".
 * The format is not published; the numbers are those that several independent readers agree on.
 *
 * Everything is checked against the length where the caller was told one. Without it (most calls
 * take no length) the sizes in the image are believed, and only sums that wrap round are refused.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

#define TEXT_PREFIX ".text."
#define SHARED_PREFIX ".nv.shared."
#define INFO_PREFIX ".nv.info."
#define INFO_SECTION ".nv.info"
#define SYMBOL_MANAGED 0x04
#define SYMBOL_ENTRY 0x10
#define NEW_FORM_ABI 0x41 /* since CUDA 13 the architecture stands one byte higher */

#define FORM_SIZED 4 /* attribute: form (1), number (1), bytes or value (2), then such data */
#define ATTRIBUTE_MAX_THREADS 0x05
#define ATTRIBUTE_REQUIRED_THREADS 0x10
#define ATTRIBUTE_FRAME_BYTES 0x11
#define ATTRIBUTE_PARAMETER 0x17
#define ATTRIBUTE_REGISTERS 0x2f
#define PARAMETER_SIZE_SHIFT 18

struct cubin {
    const char *base;
    uint64_t length;
    const Elf64_Ehdr *header;
    const Elf64_Shdr *sections;
    const Elf64_Shdr *symbols; /* their section, or NULL */
    struct image *image;
};

static bool inside(const struct cubin *cubin, uint64_t offset, uint64_t bytes)
{
    return offset + bytes >= offset && offset + bytes <= cubin->length;
}

/* A text in a section of texts, NULL when it does not end there. */
static const char *text_at(const struct cubin *cubin, uint32_t section, uint32_t offset)
{
    if (section >= cubin->header->e_shnum)
        return NULL;
    const Elf64_Shdr *texts = &cubin->sections[section];
    if (texts->sh_type == SHT_NOBITS || !inside(cubin, texts->sh_offset, texts->sh_size) ||
        offset >= texts->sh_size)
        return NULL;
    const char *text = cubin->base + texts->sh_offset + offset;
    return memchr(text, 0, texts->sh_size - offset) ? text : NULL;
}

static const char *section_name(const struct cubin *cubin, const Elf64_Shdr *section)
{
    return text_at(cubin, cubin->header->e_shstrndx, section->sh_name);
}

/* Symbol `index`; false behind the last. */
static bool read_symbol(const struct cubin *cubin, uint64_t index, Elf64_Sym *symbol,
                        const char **name)
{
    if (!cubin->symbols || index >= cubin->symbols->sh_size / sizeof *symbol)
        return false;
    memcpy(symbol, cubin->base + cubin->symbols->sh_offset + index * sizeof *symbol,
           sizeof *symbol);
    *name = text_at(cubin, cubin->symbols->sh_link, symbol->st_name);
    return true;
}

/* Whether a symbol says that the code of that name is called by other code only. */
static bool is_called_only(const struct cubin *cubin, const char *code)
{
    Elf64_Sym symbol;
    const char *name;
    for (uint64_t i = 0; read_symbol(cubin, i, &symbol, &name); i++)
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && name && strcmp(name, code) == 0)
            return !(symbol.st_other & SYMBOL_ENTRY);
    return false;
}

static uint32_t word_at(const char *data, uint32_t index)
{
    uint32_t word;
    memcpy(&word, data + index * sizeof word, sizeof word);
    return word;
}

static int add_parameter(struct CUfunc_st *function, const char *data)
{
    uint32_t ordinal = word_at(data, 1) & 0xffff, offset = word_at(data, 1) >> 16;
    uint32_t count =
        function->parameter_count == PARAMETERS_UNKNOWN ? 0 : function->parameter_count;
    if (ordinal >= count) { /* they come last first */
        struct parameter *grown =
            realloc(function->parameters, (ordinal + 1) * sizeof *function->parameters);
        REFUSE_IF(!grown, -ENOMEM);
        memset(grown + count, 0, (ordinal + 1 - count) * sizeof *grown);
        function->parameters = grown;
        function->parameter_count = ordinal + 1;
    }
    function->parameters[ordinal] =
        (struct parameter){offset, word_at(data, 2) >> PARAMETER_SIZE_SHIFT};
    return 0;
}

static int apply_own(struct CUfunc_st *function, uint8_t number, const char *data, uint32_t bytes)
{
    if ((number == ATTRIBUTE_MAX_THREADS || number == ATTRIBUTE_REQUIRED_THREADS) &&
        bytes >= 3 * sizeof(uint32_t)) {
        function->max_threads = word_at(data, 0) * word_at(data, 1) * word_at(data, 2);
        if (number == ATTRIBUTE_REQUIRED_THREADS) {
            memcpy(function->required_block, data, sizeof function->required_block);
            function->required_threads = function->max_threads;
        }
    }
    return number == ATTRIBUTE_PARAMETER && bytes >= 3 * sizeof(uint32_t)
               ? add_parameter(function, data)
               : 0;
}

/* Of a symbol: registers or stack. */
static void apply_to_symbol(const struct cubin *cubin, uint8_t number, const char *data,
                            uint32_t bytes)
{
    Elf64_Sym symbol;
    const char *name;
    if (bytes < 2 * sizeof(uint32_t) || !read_symbol(cubin, word_at(data, 0), &symbol, &name) ||
        !name)
        return;
    struct CUfunc_st *function = image_find_function(cubin->image, name);
    if (function && number == ATTRIBUTE_REGISTERS)
        function->register_count = word_at(data, 1);
    if (function && number == ATTRIBUTE_FRAME_BYTES)
        function->local_bytes = word_at(data, 1);
}

/* Goes through the attributes of one section: of `function`, or of all when it is NULL. */
static int read_attributes(const struct cubin *cubin, const Elf64_Shdr *section,
                           struct CUfunc_st *function)
{
    const char *at = cubin->base + section->sh_offset;
    uint64_t left = section->sh_size;
    int error = inside(cubin, section->sh_offset, section->sh_size) ? 0 : -EINVAL;
    while (!error && left >= sizeof(uint32_t)) {
        uint32_t head = word_at(at, 0);
        uint32_t bytes = (head & 0xff) == FORM_SIZED ? head >> 16 : 0;
        at += sizeof head;
        left -= sizeof head;
        REFUSE_IF(bytes > left, -EINVAL);
        if (bytes && function)
            error = apply_own(function, (uint8_t)(head >> 8), at, bytes);
        else if (bytes)
            apply_to_symbol(cubin, (uint8_t)(head >> 8), at, bytes);
        at += bytes;
        left -= bytes;
    }
    return error;
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static int read_kernels(struct cubin *cubin)
{
    for (int i = 0; i < cubin->header->e_shnum; i++) {
        const char *name = section_name(cubin, &cubin->sections[i]);
        REFUSE_IF(!name, -EINVAL);
        if (!starts_with(name, TEXT_PREFIX))
            continue;
        name += strlen(TEXT_PREFIX);
        REFUSE_IF(!is_called_only(cubin, name) &&
                      !image_add_function(cubin->image, name, strlen(name)),
                  -ENOMEM);
    }
    return 0;
}

static int read_kernel_sections(struct cubin *cubin)
{
    int error = 0;
    for (int i = 0; i < cubin->header->e_shnum && !error; i++) {
        const Elf64_Shdr *section = &cubin->sections[i];
        const char *name = section_name(cubin, section);
        bool shared = starts_with(name, SHARED_PREFIX), own = starts_with(name, INFO_PREFIX);
        struct CUfunc_st *function = NULL;
        if (shared || own)
            function = image_find_function(cubin->image,
                                           name + strlen(shared ? SHARED_PREFIX : INFO_PREFIX));
        if (function && shared)
            function->shared_bytes = (uint32_t)section->sh_size;
        if (function && own)
            function->parameter_count =
                function->parameter_count == PARAMETERS_UNKNOWN ? 0 : function->parameter_count;
        if ((function && own) || strcmp(name, INFO_SECTION) == 0)
            error = read_attributes(cubin, section, function);
    }
    for (struct CUfunc_st *each = cubin->image->functions; each; each = each->next)
        function_bound_threads(each, each->max_threads);
    return error;
}

static int read_variables(struct cubin *cubin)
{
    Elf64_Sym symbol;
    const char *name;
    for (uint64_t i = 0; read_symbol(cubin, i, &symbol, &name); i++) {
        if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_size == 0 ||
            symbol.st_shndx >= cubin->header->e_shnum)
            continue;
        const char *section = section_name(cubin, &cubin->sections[symbol.st_shndx]);
        bool constant = starts_with(section, ".nv.constant3");
        if (!name || !*name || (!constant && !starts_with(section, ".nv.global")))
            continue;
        enum global_kind kind = constant                           ? GLOBAL_CONSTANT
                                : symbol.st_other & SYMBOL_MANAGED ? GLOBAL_MANAGED
                                                                   : GLOBAL_DEVICE;
        REFUSE_IF(!image_add_global(cubin->image, name, strlen(name), symbol.st_size, kind),
                  -ENOMEM);
    }
    return 0;
}

int cubin_parse(struct image *image, const void *bytes, uint64_t length)
{
    struct cubin cubin = {
        .base = bytes, .length = length ? length : UINT64_MAX / 2, .header = bytes, .image = image};
    const Elf64_Ehdr *header = bytes;
    REFUSE_IF(cubin.length < sizeof *header || header->e_ident[EI_CLASS] != ELFCLASS64 ||
                  header->e_shentsize != sizeof(Elf64_Shdr) ||
                  !inside(&cubin, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr)),
              -EINVAL);
    cubin.sections = (const Elf64_Shdr *)(cubin.base + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++)
        if (cubin.sections[i].sh_type == SHT_SYMTAB)
            cubin.symbols = &cubin.sections[i];
    REFUSE_IF(cubin.symbols && !inside(&cubin, cubin.symbols->sh_offset, cubin.symbols->sh_size),
              -EINVAL);
    image->binary_architecture = header->e_ident[EI_OSABI] == NEW_FORM_ABI
                                     ? header->e_flags >> 8 & 0xff
                                     : header->e_flags & 0xff;
    image->ptx_architecture = image->binary_architecture;
    int error = read_kernels(&cubin);
    if (!error)
        error = read_kernel_sections(&cubin);
    return error ? error : read_variables(&cubin);
}
