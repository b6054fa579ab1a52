#include "driver/elf_lookup.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Symbol version table entry of a definition that is not the default one. */
#define VERSION_HIDDEN 0x8000

struct request {
    const char *name;
    const char *symbol;
    void *found;
};

/* glibc relocates d_ptr in place, other loaders (musl, vdso) leave an offset. */
static const void *at_address(ElfW(Addr) base, ElfW(Addr) value)
{
    return (const void *)(value < base ? base + value : value);
}

static struct elf_object read_object(ElfW(Addr) base, const ElfW(Dyn) * dynamic)
{
    struct elf_object object = {.base = base};
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        const void *address = at_address(base, dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_SYMTAB)
            object.symbols = address;
        else if (dynamic->d_tag == DT_STRTAB)
            object.strings = address;
        else if (dynamic->d_tag == DT_VERSYM)
            object.versions = address;
        else if (dynamic->d_tag == DT_GNU_HASH)
            object.gnu_hash = address;
        else if (dynamic->d_tag == DT_HASH)
            object.sysv_hash = address;
    }
    if (object.symbols == NULL || object.strings == NULL)
        object.gnu_hash = object.sysv_hash = NULL;
    return object;
}

/* A definition of the symbol that is looked for: kept if it is the default one, or the first. */
static void *take(const struct elf_object *object, uint32_t index, const char *symbol, void *found,
                  bool *is_default)
{
    const ElfW(Sym) *entry = &object->symbols[index];
    if (*is_default || entry->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(entry->st_info) != STT_FUNC ||
        strcmp(object->strings + entry->st_name, symbol) != 0)
        return found;
    *is_default = object->versions == NULL || !(object->versions[index] & VERSION_HIDDEN);
    return *is_default || found == NULL ? (void *)(object->base + entry->st_value) : found;
}

/* The chain of a name's bucket: as the GNU table has it (bits of hashes behind a filter, the last
 * of a chain is odd), else as the SysV one (System V ABI, "Hash Table"). */
void *elf_find(const struct elf_object *object, const char *symbol)
{
    void *found = NULL;
    bool is_default = false;
    if (object->gnu_hash != NULL) {
        const uint32_t *table = object->gnu_hash;
        uint32_t bucket_count = table[0], first = table[1], filter_words = table[2], hash = 5381;
        const uint32_t *buckets = table + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof *table);
        const uint32_t *chains = buckets + bucket_count;
        for (const unsigned char *at = (const unsigned char *)symbol; *at != 0; at++)
            hash = hash * 33 + *at;
        uint32_t index = bucket_count > 0 ? buckets[hash % bucket_count] : 0;
        for (bool more = index >= first; more; more = (chains[index++ - first] & 1) == 0)
            if ((chains[index - first] | 1) == (hash | 1))
                found = take(object, index, symbol, found, &is_default);
    } else if (object->sysv_hash != NULL && object->sysv_hash[0] > 0) {
        const uint32_t *table = object->sysv_hash;
        const uint32_t *chains = table + 2 + table[0];
        uint32_t hash = 0;
        for (const unsigned char *at = (const unsigned char *)symbol; *at != 0; at++) {
            hash = (hash << 4) + *at;
            hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
        }
        for (uint32_t index = table[2 + hash % table[0]]; index != 0; index = chains[index])
            found = take(object, index, symbol, found, &is_default);
    }
    return found;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct request *request = argument;
    const char *name = info->dlpi_name == NULL ? "" : info->dlpi_name;
    const char *slash = strrchr(name, '/');
    if (strcmp(slash != NULL ? slash + 1 : name, request->name) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *dynamic =
            (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        struct elf_object object = read_object(info->dlpi_addr, dynamic);
        request->found = elf_find(&object, request->symbol);
    }
    return request->found != NULL;
}

void *elf_lookup(const char *name, const char *symbol)
{
    struct request request = {name, symbol, NULL};
    dl_iterate_phdr(look_at, &request);
    return request.found;
}

struct elf_object elf_object_of(void *handle)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL || map->l_ld == NULL)
        return (struct elf_object){0};
    return read_object(map->l_addr, map->l_ld);
}
