#include "elf_lookup.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Symbol version table entry of a definition that is not the default one. */
#define VERSION_HIDDEN 0x8000

struct request {
    const char *object;
    const char *symbol;
    void *found;
};

/* The parts of a dynamic section that a lookup needs. */
struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Half) * versions;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
};

/* glibc relocates d_ptr in place, other loaders (musl, vdso) leave an offset. */
static const void *at_address(ElfW(Addr) base, ElfW(Addr) value)
{
    return (const void *)(value < base ? base + value : value);
}

static struct tables read_tables(ElfW(Addr) base, const ElfW(Dyn) * dynamic)
{
    struct tables tables = {0};
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *address = at_address(base, dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_SYMTAB)
            tables.symbols = address;
        else if (dynamic->d_tag == DT_STRTAB)
            tables.strings = address;
        else if (dynamic->d_tag == DT_VERSYM)
            tables.versions = address;
        else if (dynamic->d_tag == DT_GNU_HASH)
            tables.gnu_hash = address;
        else if (dynamic->d_tag == DT_HASH)
            tables.sysv_hash = address;
    }
    return tables;
}

/* How many symbols there are: said by the SysV table, or counted along the last GNU chain. */
static uint32_t count_symbols(const struct tables *tables)
{
    if (tables->sysv_hash != NULL)
        return tables->sysv_hash[1];
    if (tables->gnu_hash == NULL)
        return 0;
    uint32_t bucket_count = tables->gnu_hash[0];
    uint32_t first = tables->gnu_hash[1];
    uint32_t bloom_words = tables->gnu_hash[2];
    const uint32_t *buckets =
        tables->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chains = buckets + bucket_count;
    uint32_t last = 0;
    for (uint32_t i = 0; i < bucket_count; i++)
        if (buckets[i] > last)
            last = buckets[i];
    if (last < first)
        return first;
    while ((chains[last - first] & 1) == 0)
        last++;
    return last + 1;
}

static void *find_in(ElfW(Addr) base, const struct tables *tables, const char *symbol)
{
    void *hidden = NULL;
    uint32_t count = count_symbols(tables);
    for (uint32_t i = 0; i < count; i++) {
        const ElfW(Sym) *entry = &tables->symbols[i];
        if (entry->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(entry->st_info) != STT_FUNC ||
            strcmp(tables->strings + entry->st_name, symbol) != 0)
            continue;
        void *address = (void *)(base + entry->st_value);
        if (tables->versions == NULL || !(tables->versions[i] & VERSION_HIDDEN))
            return address;
        hidden = address;
    }
    return hidden;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct request *request = argument;
    const char *name = info->dlpi_name == NULL ? "" : info->dlpi_name;
    const char *slash = strrchr(name, '/');
    if (strcmp(slash != NULL ? slash + 1 : name, request->object) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *dynamic =
            (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        struct tables tables = read_tables(info->dlpi_addr, dynamic);
        if (tables.symbols != NULL && tables.strings != NULL)
            request->found = find_in(info->dlpi_addr, &tables, request->symbol);
    }
    return request->found != NULL;
}

void *elf_lookup(const char *object, const char *symbol)
{
    struct request request = {object, symbol, NULL};
    dl_iterate_phdr(look_at, &request);
    return request.found;
}
