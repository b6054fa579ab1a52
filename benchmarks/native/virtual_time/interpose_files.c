/* Reading and writing: who would have to wait does so in the world, and who waits for a file is told of changes. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "interpose.h"

#define MS_NS 1000000ll

static ssize_t (*real_recvmsg)(int, struct msghdr *, int);
static ssize_t (*real_recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static ssize_t (*real_sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
static int (*real_accept4)(int, struct sockaddr *, socklen_t *, int);
static int (*real_fflush)(FILE *);
static int (*real_fclose)(FILE *);

void find_files(void)
{
    find(&real_recvmsg, "recvmsg", "GLIBC_2.2.5");
    find(&real_recvfrom, "recvfrom", "GLIBC_2.2.5");
    find(&real_sendmsg, "sendmsg", "GLIBC_2.2.5");
    find(&real_sendto, "sendto", "GLIBC_2.2.5");
    find(&real_accept4, "accept4", "GLIBC_2.10");
    find(&real_fflush, "fflush", "GLIBC_2.2.5");
    find(&real_fclose, "fclose", "GLIBC_2.2.5");
}

/* Not a file that can always be read. */
static bool is_waited_for(int file)
{
    struct stat status;
    return world && __atomic_load_n(&world->file_waiters, __ATOMIC_RELAXED) &&
           fstat(file, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode) &&
           !S_ISCHR(status.st_mode);
}

static long changed(int file, long result)
{
    if (result >= 0 && is_waited_for(file))
        files_changed();
    return answer(result);
}

ssize_t read(int file, void *bytes, size_t count)
{
    await_file(file, POLLIN);
    return changed(file, turn_syscall(SYS_read, file, (long)bytes, (long)count, 0));
}

ssize_t recvmsg(int file, struct msghdr *message, int flags)
{
    if (!(flags & MSG_DONTWAIT))
        await_file(file, POLLIN);
    return real_recvmsg(file, message, flags);
}

ssize_t recvfrom(int file, void *bytes, size_t count, int flags, struct sockaddr *from,
                 socklen_t *from_size)
{
    if (!(flags & MSG_DONTWAIT))
        await_file(file, POLLIN);
    return real_recvfrom(file, bytes, count, flags, from, from_size);
}

ssize_t recv(int file, void *bytes, size_t count, int flags)
{
    return recvfrom(file, bytes, count, flags, NULL, NULL);
}

/* What programs call that are compiled with _FORTIFY_SOURCE, as Ubuntu's compiler does by itself. Whether the
 * bytes have room is not asked: nobody here tries to break it. */
ssize_t __read_chk(int file, void *bytes, size_t count, size_t room)
{
    (void)room;
    return read(file, bytes, count);
}

ssize_t __recv_chk(int file, void *bytes, size_t count, size_t room, int flags)
{
    (void)room;
    return recv(file, bytes, count, flags);
}

ssize_t __recvfrom_chk(int file, void *bytes, size_t count, size_t room, int flags,
                       struct sockaddr *from, socklen_t *from_size)
{
    (void)room;
    return recvfrom(file, bytes, count, flags, from, from_size);
}

int accept4(int file, struct sockaddr *from, socklen_t *from_size, int flags)
{
    await_file(file, POLLIN);
    return real_accept4(file, from, from_size, flags);
}

int accept(int file, struct sockaddr *from, socklen_t *from_size)
{
    return accept4(file, from, from_size, 0);
}

ssize_t write(int file, const void *bytes, size_t count)
{
    await_file(file, POLLOUT);
    return changed(file, turn_syscall(SYS_write, file, (long)bytes, (long)count, 0));
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    await_file(file, POLLOUT);
    return changed(file, turn_syscall(SYS_writev, file, (long)parts, count, 0));
}

int eventfd_write(int file, eventfd_t value)
{
    return write(file, &value, sizeof value) == sizeof value ? 0 : -1;
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags)
{
    ssize_t result = real_sendmsg(file, message, flags);
    files_changed();
    return result;
}

ssize_t sendto(int file, const void *bytes, size_t count, int flags, const struct sockaddr *to,
               socklen_t to_size)
{
    ssize_t result = real_sendto(file, bytes, count, flags, to, to_size);
    files_changed();
    return result;
}

ssize_t send(int file, const void *bytes, size_t count, int flags)
{
    return sendto(file, bytes, count, flags, NULL, 0);
}

int close(int file)
{
    bool is_told = is_waited_for(file);
    forget_timer(file);
    long result = turn_syscall(SYS_close, file, 0, 0, 0);
    if (is_told)
        files_changed();
    return (int)answer(result);
}

int fflush(FILE *stream)
{
    int result = real_fflush(stream);
    files_changed();
    return result;
}

int fclose(FILE *stream)
{
    int result = real_fclose(stream);
    files_changed();
    return result;
}

struct lock {
    int file;
    int operation;
    long result;
};

static bool is_locked(void *argument)
{
    struct lock *lock = argument;
    lock->result = turn_syscall(SYS_flock, lock->file, lock->operation | LOCK_NB, 0, 0);
    return lock->result != -EWOULDBLOCK;
}

/* Its holder may close the file, of which nobody is told: it is looked at every millisecond, too. */
int flock(int file, int operation)
{
    struct lock lock = {file, operation, 0};
    if (own < 0 || operation & LOCK_NB || operation & LOCK_UN)
        return (int)answer(turn_syscall(SYS_flock, file, operation, 0, 0));
    while (!wait_for_files(is_locked, &lock, now_ns() + MS_NS))
        continue;
    return (int)answer(lock.result);
}
