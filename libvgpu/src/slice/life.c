#include "slice/life.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* glibc 2.17 has no names for these (linux/fcntl.h: since Linux 3.15). */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

#define OVERLAYFS 0x794c7630 /* OVERLAYFS_SUPER_MAGIC of linux/magic.h */
#define KEEPING_FILE "/dev/zero"
#define BYTES_A_FILE 13 /* as a shift: so many places of KEEPING_FILE are one file's */
#define FILE_BITS 49
#define PAGE_BYTES 4096

static int open_quietly(const char *path)
{
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    return descriptor < 0 ? -errno : descriptor;
}

static void close_quietly(int descriptor)
{
    syscall(SYS_close, descriptor);
}

/* The descriptor in which the locks of an open file are, and where they begin there: that of the
 * file itself, or another, which the caller closes. */
static int find_locks(int file, uint64_t *base)
{
    struct statfs system;
    struct stat status;
    *base = 0;
    if (fstatfs(file, &system) != 0 || fstat(file, &status) != 0)
        return -errno;
    if (system.f_type != OVERLAYFS)
        return file;
    uint64_t name = (uint64_t)status.st_dev * 0x9e3779b97f4a7c15u ^ (uint64_t)status.st_ino;
    *base = (name & ((1ull << FILE_BITS) - 1)) << BYTES_A_FILE;
    return open_quietly(KEEPING_FILE);
}

static struct flock byte_lock(uint64_t at, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
}

/* The same for a path; the caller closes it. */
static int open_locks(const char *path, uint64_t *base)
{
    int file = open_quietly(path);
    if (file < 0)
        return file;
    int descriptor = find_locks(file, base);
    if (descriptor != file)
        close_quietly(file);
    return descriptor;
}

static int lock_byte(int descriptor, uint64_t at, short type)
{
    struct flock lock = byte_lock(at, type);
    return fcntl(descriptor, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

static int is_byte_held(int descriptor, uint64_t at)
{
    struct flock lock = byte_lock(at, F_WRLCK);
    return fcntl(descriptor, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

int life_open(struct life *life, const char *path)
{
    life->descriptor = open_locks(path, &life->base);
    if (life->descriptor < 0)
        return life->descriptor;
    /* private, since a shared page of /dev/zero is not mapped from it */
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_PRIVATE, life->descriptor, 0);
    life->page = page;
    if (page != MAP_FAILED && madvise(page, PAGE_BYTES, MADV_DONTFORK) == 0)
        return 0;
    int status = -errno;
    if (page != MAP_FAILED)
        munmap(page, PAGE_BYTES);
    close_quietly(life->descriptor);
    return status;
}

int life_lock(const struct life *life, uint64_t at, short type)
{
    return lock_byte(life->descriptor, life->base + at, type);
}

int life_is_held_beside(const struct life *life, uint64_t at)
{
    return is_byte_held(life->descriptor, life->base + at);
}

void life_close(const struct life *life)
{
    close_quietly(life->descriptor);
}

void life_end(void *page)
{
    munmap(page, PAGE_BYTES);
}

int life_look(const char *path)
{
    return open_quietly(path);
}

void life_look_end(int file)
{
    if (file >= 0)
        close_quietly(file);
}

int life_is_held(int file, uint64_t at)
{
    uint64_t base;
    int descriptor = find_locks(file, &base);
    if (descriptor < 0)
        return 1;
    int held = is_byte_held(descriptor, base + at);
    if (descriptor != file)
        close_quietly(descriptor);
    return held;
}

int life_is_held_at(const char *path, uint64_t at)
{
    int file = open_quietly(path);
    if (file < 0)
        return 1;
    int held = life_is_held(file, at);
    close_quietly(file);
    return held;
}

/* ---- what forked children inherit ---- */

static bool is_open(const struct lifeline *line)
{
    struct stat status;
    return line->inode != 0 && fstat(line->descriptor, &status) == 0 &&
           status.st_dev == line->device && status.st_ino == line->inode;
}

void lifeline_open(struct lifeline *line, const char *path)
{
    struct stat status;
    if (is_open(line))
        return;
    uint64_t base;
    int descriptor = open_locks(path, &base);
    *line = (struct lifeline){0};
    if (descriptor >= 0 && fstat(descriptor, &status) == 0)
        *line = (struct lifeline){descriptor, base, status.st_dev, status.st_ino};
}

void lifeline_lock(const struct lifeline *line, uint64_t at, short type)
{
    if (is_open(line))
        lock_byte(line->descriptor, line->base + at, type);
}

void lifeline_close(const struct lifeline *line)
{
    if (is_open(line))
        close_quietly(line->descriptor);
}
