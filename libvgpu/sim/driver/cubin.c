/* Reads of a cubin (an ELF file) the names of its kernels: sections ".text.NAME". What their
 * parameters are is not looked at. */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "driver.h"

#define TEXT_PREFIX ".text."

int cubin_parse(struct CUmod_st *module, const void *image)
{
    const char *base = image;
    const Elf64_Ehdr *header = image;
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr) ||
        header->e_shstrndx >= header->e_shnum)
        return -EINVAL;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(base + header->e_shoff);
    const char *names = base + sections[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; i++) {
        const char *name = names + sections[i].sh_name;
        if (strncmp(name, TEXT_PREFIX, strlen(TEXT_PREFIX)) != 0)
            continue;
        name += strlen(TEXT_PREFIX);
        if (!module_add_function(module, name, strlen(name)))
            return -ENOMEM;
    }
    return 0;
}
