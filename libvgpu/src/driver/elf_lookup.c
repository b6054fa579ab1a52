#include "driver/elf_lookup.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

/* Symbol version table entry of a definition that is not the default one. */
#define VERSION_HIDDEN 0x8000

/* The loader's list, by glibc's name. */
extern struct r_debug _r_debug __attribute__((weak));

/* A sanitizer's run-time asks dlsym for libc's functions before its own stand-ins for them work, and
 * stands in for strcmp and dl_iterate_phdr, too. So what finds dlsym calls nothing of libc. */
static bool is_same(const char *a, const char *b)
{
    for (; *a == *b && *a != 0; a++)
        b++;
    return *a == *b;
}

static const char *file_name(const char *path)
{
    const char *name = path;
    for (; *path != 0; path++)
        if (*path == '/')
            name = path + 1;
    return name;
}

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
        !is_same(object->strings + entry->st_name, symbol))
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

void *elf_lookup(const char *name, const char *symbol)
{
    /* What a process began with comes first and is never unloaded, so no lock is needed for it. */
    for (const struct link_map *map = &_r_debug != NULL ? _r_debug.r_map : NULL; map != NULL;
         map = map->l_next) {
        if (map->l_name == NULL || !is_same(file_name(map->l_name), name))
            continue;
        struct elf_object object = read_object(map->l_addr, map->l_ld);
        void *found = elf_find(&object, symbol);
        if (found != NULL)
            return found;
    }
    return NULL;
}

struct elf_object elf_object_of(void *handle)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL || map->l_ld == NULL)
        return (struct elf_object){0};
    return read_object(map->l_addr, map->l_ld);
}
