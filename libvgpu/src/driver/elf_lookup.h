/* Looks a function up in one loaded object by its ELF symbol table, without dlsym (which we
 * interpose, so asking for the real one by name would find ourselves) and in a tenth of its time.
 * Takes no lock of ours. */
#ifndef VGPU_ELF_LOOKUP_H
#define VGPU_ELF_LOOKUP_H

#include <elf.h>
#include <link.h>
#include <stdint.h>

/* The parts of a loaded object that a lookup needs. Good for as long as the object stays loaded. */
struct elf_object {
    ElfW(Addr) base;
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Half) * versions;
    const uint32_t *gnu_hash; /* neither table: nothing is found */
    const uint32_t *sysv_hash;
};

/* Returns the address of the newest definition of `symbol` in the loaded object whose file name is
 * `name` (for example "libc.so.6"), or NULL. */
void *elf_lookup(const char *name, const char *symbol);

/* What dlopen returned `handle` for. */
struct elf_object elf_object_of(void *handle);

/* Returns the address of the newest definition of the function `symbol` in the object itself, or
 * NULL: also for one that only dlsym can tell (an indirect function, one of a dependency). */
void *elf_find(const struct elf_object *object, const char *symbol);

#endif
