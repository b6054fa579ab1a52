#ifndef RESOLVE_STUBS_H
#define RESOLVE_STUBS_H

struct stub {
    const char *symbol;
    void *hook;
};

extern long noted[]; /* how often entry_note was called, by kind */

extern const struct stub stubs[]; /* the last symbol is NULL */

#endif
