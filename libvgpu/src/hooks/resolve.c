#include "hooks/resolve.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "driver/export.h"
#include "driver/real.h"
#include "slice/entry_notes.h"

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

/* All rows, also those that pass. */
static const struct entry_point {
    const char *symbol;
    size_t length;
} entry_points[] = {
#undef ROW
#define ROW(symbol, public_name, since, policy, twin, words) EACH(symbol) TWIN_##twin(symbol)
#define EACH(symbol) {#symbol, sizeof #symbol - 1},
#include "hooks/hooks.def"
#undef EACH
};

/* From `at` on, the first whose symbol is the name followed by nothing or by what tells versions and
 * twins of a public name apart. A public name is the symbol of its oldest version. NULL: none. */
static const struct entry_point *find_form(const struct entry_point *at, const char *name)
{
    size_t length = strlen(name);
    for (; at < entry_points + sizeof entry_points / sizeof *entry_points; at++)
        if (at->length >= length && (at->symbol[length] == 0 || at->symbol[length] == '_') &&
            memcmp(at->symbol, name, length) == 0)
            return at;
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

/* Whether it is in the library of the loader's own dlsym, of which there may be several versions. */
static bool is_loaders(void *function)
{
    Dl_info loader, info;
    return function != NULL && dladdr(real_dlsym_address, &loader) != 0 &&
           dladdr(function, &info) != 0 && info.dli_fbase == loader.dli_fbase;
}

/* For a name that is not hooked. */
static void note_symbol(void *handle, const char *name)
{
    if (name[0] != 'c' || find_form(entry_points, name) != NULL)
        return;
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
        /* Only where the loader's own would be the answer: another library may define its own. */
        void *(*find)(void *, const char *, const char *) = real_dlvsym_address;
        bool loader =
            handle == RTLD_NEXT ||
            is_loaders(version != NULL ? find(handle, name, version) : real_dlsym(handle, name));
        void *ours = name[2] == 's' ? (void *)&dlsym : (void *)&dlvsym;
        return loader ? (struct resolve_answer){ours, 1} : theirs;
    }
    const struct hook_row *row = find_row(name);
    if (row == NULL) {
        note_symbol(handle, name);
        return theirs;
    }
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

/* For an answer that is no hooked row's. It stays the driver's: the newest version of a name may take
 * other arguments than any hook. */
static void note_answer(const char *name, void *function)
{
    bool is_hooked = false;
    const struct entry_point *first = find_form(entry_points, name);
    for (const struct entry_point *at = first; at != NULL; at = find_form(at + 1, name)) {
        if (real_find_cuda(at->symbol) == function)
            return;
        is_hooked |= find_row(at->symbol) != NULL;
    }
    if (first == NULL || is_hooked)
        entry_note(first == NULL ? ENTRY_UNKNOWN : ENTRY_MOVED, name);
}

void *resolve_replacement(const char *name, void *driver_function)
{
    if (driver_function == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].nvml && *rows[i].driver == driver_function)
            return rows[i].hook;
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
