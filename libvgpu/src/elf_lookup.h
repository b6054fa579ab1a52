/* Looks a function up in one loaded object by its ELF symbol table, without dlsym (which we
 * interpose, so asking for the real one by name would find ourselves). Takes no lock of ours. */
#ifndef VGPU_ELF_LOOKUP_H
#define VGPU_ELF_LOOKUP_H

/* Returns the address of the newest definition of `symbol` in the loaded object whose file name is
 * `object` (for example "libc.so.6"), or NULL. */
void *elf_lookup(const char *object, const char *symbol);

#endif
