/* Byte locks of a file that last as long as the process which took them, whatever it does with its
 * descriptors: by them the others know that it lives. The shim's slots, those of the simulated
 * machine and Python's view of both have them from here.
 *
 * They are OFD locks of an open description whose only reference is one page mapped from it with
 * MADV_DONTFORK; the descriptor is closed. So neither a child nor a program that closes all its
 * descriptors can keep or drop them, and the kernel drops them with the process, however it ends,
 * before its parent hears of it. No PID is asked about, so PID namespaces do not matter.
 *
 * On overlayfs, which a container has as its root, a page of a file is mapped from the file below,
 * the description of the file itself ends with the descriptor, and its locks are lost. There the
 * locks are taken on /dev/zero instead, at a place that the file's device and inode give: it is
 * there in every container, and a page of it is mapped from itself. Two containers with a /dev each
 * do not see each other there, so they cannot share a slice on overlayfs. Anyone who may open
 * /dev/zero can lock there, too, and keep the dead from being given back: it is asked on overlayfs
 * alone, where no container of the agent has its files. (A thread with descriptors of its own would
 * hold the file's own locks, but programs count their threads; what an asynchronous poll holds is
 * let go only some time after the process has ended.)
 *
 * Nothing here is a cancellation point: callers hold locks, which a thread that is cancelled would
 * keep for ever. Returns are 0 or more, or a negative errno. */
#ifndef VGPU_LIFE_H
#define VGPU_LIFE_H

#include <stdint.h>

struct life {
    int descriptor; /* of the file with the locks, until life_close */
    uint64_t base;  /* where they begin in that file */
    void *page;     /* keeps them; never touched */
};

/* Opens the file and maps the page, before anything is locked: what follows cannot fail half-way for
 * want of memory. No child may be forked before life_close. */
int life_open(struct life *life, const char *path);
/* Does not wait. `type` is F_WRLCK, F_RDLCK or F_UNLCK. */
int life_lock(const struct life *life, uint64_t at, short type);
/* Whether any other description has a byte locked; 1 when it cannot be told. */
int life_is_held_beside(const struct life *life, uint64_t at);
/* Closes the descriptor. A process that has locked a byte then asks whether the lock is still held, and
 * fails with -ENOLCK if it is not: others would take the process for dead. */
void life_close(const struct life *life);
/* Ends the locks. */
void life_end(void *page);

/* Opens the file to ask about several bytes; negative: it cannot be. */
int life_look(const char *path);
void life_look_end(int file);

/* Whether any other description has a byte of the file locked; 1 when it cannot be told. */
int life_is_held(int file, uint64_t at);
int life_is_held_at(const char *path, uint64_t at);

/* ---- what forked children inherit ----
 *
 * A driver's open files outlive their process in the children it has forked, and so does its memory
 * on the GPU: until each of them has ended, has run another program (the files are O_CLOEXEC) or has
 * closed them. A lifeline is such a descriptor with byte locks of its own, beside those of the page,
 * and shared for reading. The program may close it, as it may the driver's: each use looks whether it
 * is still there. */
struct lifeline {
    int descriptor;
    uint64_t base;
    uint64_t device, inode; /* of what is open; 0: never opened */
};

/* Opens it unless it is; what fails leaves the children nothing to inherit. */
void lifeline_open(struct lifeline *line, const char *path);
/* As life_lock, and nothing where it was closed. */
void lifeline_lock(const struct lifeline *line, uint64_t at, short type);
/* Ends it in this process. */
void lifeline_close(const struct lifeline *line);

#endif
