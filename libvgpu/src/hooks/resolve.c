#include "hooks/resolve.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "hooks/export.h"
#include "hooks/real.h"
#include "slice/log.h"

extern void *dlsym(void *handle, const char *name);
extern void *dlvsym(void *handle, const char *name, const char *version);

struct hook_row {
    const char *symbol;
    void *hook;
    void *const *driver; /* field of `real` */
    bool nvml;
};

static const struct hook_row rows[] = {
#define EACH(symbol) {#symbol, (void *)&symbol, (void *const *)&real.symbol, #symbol[0] == 'n'},
#include "hooks/hooks.def"
#undef EACH
};

static const struct hook_row *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].symbol, name) == 0)
            return &rows[i];
    return NULL;
}

/* Driver names are "cu" and a capital (not "curl_…" or "cudaMalloc"), NVML's "nvml" and one. */
static bool may_be_ours(const char *name)
{
    if (name[0] == 'c' && name[1] == 'u')
        return name[2] >= 'A' && name[2] <= 'Z';
    if (name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l')
        return name[4] >= 'A' && name[4] <= 'Z';
    return name[0] == 'd' && name[1] == 'l';
}

__attribute__((used)) struct resolve_answer resolve_symbol(void *handle, const char *name)
{
    struct resolve_answer theirs = {NULL, 0};
    if (!real_find_loader())
        return (struct resolve_answer){NULL, 1}; /* nobody to ask: nothing is found */
    if (name == NULL || !may_be_ours(name))
        return theirs;
    if (strcmp(name, "dlsym") == 0 || strcmp(name, "dlvsym") == 0) {
        /* Only where the loader's own would be the answer: another library may define its own. */
        void *found = handle == RTLD_NEXT ? NULL : real_dlsym(handle, name);
        bool loader =
            handle == RTLD_NEXT || found == real_dlsym_address || found == real_dlvsym_address;
        void *ours = name[2] == 's' ? (void *)&dlsym : (void *)&dlvsym;
        return loader ? (struct resolve_answer){ours, 1} : theirs;
    }
    const struct hook_row *row = find_row(name);
    if (row == NULL)
        return theirs;
    bool is_loaded =
        row->nvml ? real_has_nvml() && real_load_nvml() : real_has_cuda() && real_load_cuda();
    if (!is_loaded || *row->driver == NULL) {
        /* Our exports must not make a program that probes for CUDA, or for what a newer driver
         * has, believe it is there. */
        if (handle != RTLD_NEXT && real_dlsym(handle, name) != row->hook)
            return theirs;
        /* Asked of libc, which lacks it, the loader says so in dlerror, too. */
        void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        return (struct resolve_answer){libc != NULL ? real_dlsym(libc, name) : NULL, 1};
    }
    if (handle == RTLD_NEXT || real_dlsym(handle, name) == *row->driver)
        return (struct resolve_answer){row->hook, 1};
    return theirs;
}

void *resolve_replacement(void *driver_function)
{
    if (driver_function == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].nvml && *rows[i].driver == driver_function)
            return rows[i].hook;
    return driver_function;
}

/* dlsym(rdi, rsi), dlvsym(rdi, rsi, rdx): ask resolve_symbol, keep the arguments for the jump. */
__asm__(".pushsection .text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call resolve_symbol\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rdx, %rdx\n"
        "    jne 1f\n"
        "    jmpq *real_dlsym_address(%rip)\n"
        "1:  ret\n"
        "    .cfi_endproc\n"
        ".size dlsym, .-dlsym\n"
        ".globl dlvsym\n"
        ".type dlvsym, @function\n"
        "dlvsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rdx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call resolve_symbol\n"
        "    movq %rdx, %rcx\n"
        "    popq %rdx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rcx, %rcx\n"
        "    jne 1f\n"
        "    jmpq *real_dlvsym_address(%rip)\n"
        "1:  ret\n"
        "    .cfi_endproc\n"
        ".size dlvsym, .-dlvsym\n"
        ".popsection\n");
