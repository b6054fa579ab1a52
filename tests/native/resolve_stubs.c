/* Stands in for every hook of the table, so that resolve.c can be linked without them. */
#include "resolve_stubs.h"

#include "slice/entry_notes.h"

#define ROW_IF_START(symbol, twin) EACH(symbol) TWIN_##twin(symbol)
#define ROW_IF_LOOKUP ROW_IF_START
#define ROW_IF_CONTEXT ROW_IF_START
#define ROW_IF_CHARGED ROW_IF_START
#define ROW_IF_VIRTUAL ROW_IF_START
#define ROW_IF_TIMED ROW_IF_START
#define ROW_IF_SYNC ROW_IF_START
#define ROW_IF_POLL ROW_IF_START
#define ROW_IF_CAPTURE ROW_IF_START
#define ROW_IF_PASS(symbol, twin)
#define TWIN_none(symbol)
#define TWIN_ptsz(symbol) EACH(symbol##_ptsz)
#define TWIN_ptds(symbol) EACH(symbol##_ptds)
#define ROW(symbol, public_name, since, policy, twin, words) ROW_IF_##policy(symbol, twin)

/* Something to do in each, or the compiler would make one function of them all. */
#define EACH(symbol) \
    void symbol(void); \
    void symbol(void) \
    { \
        __asm__ volatile("# " #symbol); \
    }
#include "hooks/hooks.def"
#undef EACH

long noted[ENTRY_KINDS];

void entry_note(enum entry_kind kind, const char *name)
{
    (void)name;
    __atomic_fetch_add(&noted[kind], 1, __ATOMIC_RELAXED);
}

const struct stub stubs[] = {
#define EACH(symbol) {#symbol, (void *)symbol},
#include "hooks/hooks.def"
#undef EACH
    {0},
};
