#include "code/cubin_size.h"

#include <elf.h>
#include <string.h>

struct cubin {
    const struct image_view *view;
    const uint8_t *sections; /* of section_count headers, at any alignment */
    uint64_t section_count;
    const char *names;
    uint64_t names_bytes;
};

static Elf64_Shdr section_at(const struct cubin *cubin, uint64_t index)
{
    Elf64_Shdr section;
    memcpy(&section, cubin->sections + index * sizeof section, sizeof section);
    return section;
}

/* An ELF file with 65280 sections or more keeps their number, and where their names are, in the
 * first of them. */
static bool open_sections(struct cubin *cubin, const Elf64_Ehdr *header)
{
    Elf64_Shdr first;
    uint64_t names = header->e_shstrndx;
    const void *start = image_view_at(cubin->view, header->e_shoff, sizeof first);
    if (start == NULL || header->e_shentsize != sizeof first)
        return false;
    memcpy(&first, start, sizeof first);
    cubin->section_count = header->e_shnum != 0 ? header->e_shnum : first.sh_size;
    if (names == SHN_XINDEX)
        names = first.sh_link;
    uint64_t bytes;
    if (__builtin_mul_overflow(cubin->section_count, sizeof first, &bytes))
        return false;
    cubin->sections = image_view_at(cubin->view, header->e_shoff, bytes);
    if (cubin->sections == NULL || names >= cubin->section_count)
        return false;
    Elf64_Shdr texts = section_at(cubin, names);
    cubin->names_bytes = texts.sh_size;
    cubin->names = image_view_at(cubin->view, texts.sh_offset, texts.sh_size);
    return cubin->names != NULL && texts.sh_type != SHT_NOBITS;
}

static bool begins(const struct cubin *cubin, const Elf64_Shdr *section, const char *prefix)
{
    uint64_t length = strlen(prefix);
    return section->sh_name <= cubin->names_bytes &&
           length <= cubin->names_bytes - section->sh_name &&
           memcmp(cubin->names + section->sh_name, prefix, length) == 0;
}

static bool holds_variables(const struct cubin *cubin, const Elf64_Shdr *section)
{
    if (begins(cubin, section, ".nv.global") || begins(cubin, section, ".nv.constant3"))
        return true;
    return (section->sh_flags & SHF_ALLOC) != 0 && section->sh_type == SHT_NOBITS &&
           !begins(cubin, section, ".nv.shared");
}

/* Adds the variables of one table of symbols. False when the table does not lie in the image. */
static bool add_symbols(const struct cubin *cubin, const Elf64_Shdr *table, struct image_size *size)
{
    const uint8_t *symbols = image_view_at(cubin->view, table->sh_offset, table->sh_size);
    if (symbols == NULL)
        return false;
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, symbols + i * sizeof symbol, sizeof symbol);
        if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_size == 0 ||
            symbol.st_shndx == SHN_UNDEF)
            continue;
        if (symbol.st_shndx < cubin->section_count) { /* else: common, or a number too large */
            Elf64_Shdr section = section_at(cubin, symbol.st_shndx);
            if (!holds_variables(cubin, &section))
                continue;
        }
        image_size_add_variable(size, symbol.st_size, 0);
    }
    return true;
}

void cubin_size(const struct image_view *view, struct image_size *size)
{
    struct cubin cubin = {.view = view};
    struct image_size by_symbol = {0};
    Elf64_Ehdr header;
    const void *start = image_view_at(view, 0, sizeof header);
    if (start != NULL)
        memcpy(&header, start, sizeof header);
    if (start == NULL || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        !open_sections(&cubin, &header)) {
        size->is_unknown = true;
        return;
    }
    for (uint64_t i = 0; i < cubin.section_count; i++) {
        Elf64_Shdr section = section_at(&cubin, i);
        if (holds_variables(&cubin, &section))
            image_size_add_variable(size, section.sh_size, section.sh_addralign);
        else if ((section.sh_flags & SHF_ALLOC) != 0 && section.sh_type != SHT_NOBITS)
            size->code_bytes += section.sh_size < IMAGE_MOST_BYTES ? section.sh_size : 0;
        if (section.sh_type == SHT_SYMTAB && !add_symbols(&cubin, &section, &by_symbol))
            size->is_unknown = true;
    }
    if (size->variable_bytes < by_symbol.variable_bytes)
        size->variable_bytes = by_symbol.variable_bytes;
    size->image_bytes = header.e_shoff + cubin.section_count * sizeof(Elf64_Shdr);
}
