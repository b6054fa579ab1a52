#include "hooks/resolve.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "hooks/export.h"
#include "hooks/real.h"
#include "slice/entry_notes.h"

extern void *dlsym(void *handle, const char *name);
extern void *dlvsym(void *handle, const char *name, const char *version);

struct hook_row {
    const char *symbol;
    void *hook;          /* NULL: it passes */
    void *const *driver; /* field of `real` */
    uint16_t length;     /* of the symbol */
    bool nvml;
};

#undef ROW_IF_PASS
#define ROW_IF_PASS(symbol, twin) PASSES(symbol) PASSES_##twin(symbol)
#define PASSES_none(symbol)
#define PASSES_ptsz(symbol) PASSES(symbol##_ptsz)
#define PASSES_ptds(symbol) PASSES(symbol##_ptds)
#define TABLE_ROW(symbol, hook, driver) \
    {#symbol, (void *)(hook), (void *const *)(driver), sizeof #symbol - 1, #symbol[0] == 'n'},

static const struct hook_row rows[] = {
#define EACH(symbol) TABLE_ROW(symbol, &symbol, &real.symbol)
#define PASSES(symbol) TABLE_ROW(symbol, NULL, NULL)
#include "hooks/hooks.def"
#undef EACH
};
#define ROWS_END (rows + sizeof rows / sizeof *rows)

/* The next row whose symbol is the name followed by nothing, or by what tells versions and twins of
 * a public name apart: each public name is the symbol of its oldest version. */
static const struct hook_row *next_form(const struct hook_row *row, const char *name, size_t length)
{
    for (; row < ROWS_END; row++)
        if (row->length >= length && (row->symbol[length] == 0 || row->symbol[length] == '_') &&
            memcmp(row->symbol, name, length) == 0)
            return row;
    return NULL;
}

static const struct hook_row *find_row(const char *name)
{
    size_t length = strlen(name);
    const struct hook_row *row = next_form(rows, name, length);
    while (row != NULL && row->length != length)
        row = next_form(row + 1, name, length);
    return row;
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

static bool is_loaders(void *function)
{
    Dl_info loader, info;
    return function != NULL && dladdr(real_dlsym_address, &loader) != 0 &&
           dladdr(function, &info) != 0 && info.dli_fbase == loader.dli_fbase;
}

/* The driver's answer to a name that has no row. */
static void note_unknown(void *handle, const char *name)
{
    void *found = real_has_cuda() && real_load_cuda() ? real_find_cuda(name) : NULL;
    if (found != NULL && (handle == RTLD_NEXT || real_dlsym(handle, name) == found))
        entry_note(ENTRY_UNKNOWN, name);
}

__attribute__((used)) struct resolve_answer resolve_symbol(void *handle, const char *name,
                                                           const char *version)
{
    struct resolve_answer theirs = {NULL, 0};
    if (!real_find_loader())
        return (struct resolve_answer){NULL, 1}; /* nobody to ask: nothing is found */
    if (name == NULL || !may_be_ours(name))
        return theirs;
    if (strcmp(name, "dlsym") == 0 || strcmp(name, "dlvsym") == 0) {
        /* Only where the loader's own, of whatever version, would be the answer: another library
         * may define its own. */
        void *ours = name[2] == 's' ? (void *)&dlsym : (void *)&dlvsym;
        if (handle == RTLD_NEXT || is_loaders(version != NULL ? real_dlvsym(handle, name, version)
                                                              : real_dlsym(handle, name)))
            return (struct resolve_answer){ours, 1};
        return theirs;
    }
    const struct hook_row *row = find_row(name);
    if (row == NULL && name[0] == 'c')
        note_unknown(handle, name);
    if (row == NULL || row->hook == NULL)
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

/* The driver's answer to cuGetProcAddress that is no hooked row's. It is never exchanged for a hook:
 * what a newer driver answers may be a newer version, whose arguments are not ours. */
static void note_answer(const char *name, void *function)
{
    size_t length = strlen(name);
    bool is_hooked = false;
    const struct hook_row *row = next_form(rows, name, length), *first = row;
    for (; row != NULL; row = next_form(row + 1, name, length)) {
        is_hooked |= row->hook != NULL;
        if (row->hook == NULL && real_find_cuda(row->symbol) == function)
            return;
    }
    if (first == NULL || is_hooked)
        entry_note(first == NULL ? ENTRY_UNKNOWN : ENTRY_MOVED, name);
}

void *resolve_replacement(const char *name, void *driver_function)
{
    if (driver_function == NULL)
        return NULL;
    for (const struct hook_row *row = rows; row < ROWS_END; row++)
        if (!row->nvml && row->hook != NULL && *row->driver == driver_function)
            return row->hook;
    note_answer(name, driver_function);
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
        "    xorl %edx, %edx\n"
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
