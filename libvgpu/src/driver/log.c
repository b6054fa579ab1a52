#include "driver/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RECENT_TEXTS 16
#define REPEAT_MS 1000
#define KERNEL_SIGSET_BYTES 8

static int chosen_level(void)
{
    static int level = -1; /* racing first calls store the same value */
    int chosen = __atomic_load_n(&level, __ATOMIC_RELAXED);
    if (chosen >= 0)
        return chosen;
    const char *text = getenv("VGPU_LOG");
    chosen = LOG_WARN;
    if (text != NULL) {
        static const char *const names[] = {"error", "warn", "info", "debug"};
        for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
            if (strcmp(text, names[i]) == 0)
                chosen = i;
    }
    __atomic_store_n(&level, chosen, __ATOMIC_RELAXED);
    return chosen;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t allowance_second;
static int lines_of_second;

/* Is anything left of this second's allowance? Asked first, so that a flood costs little. */
static bool is_open(uint64_t at_ms)
{
    uint64_t second = at_ms / 1000;
    if (__atomic_exchange_n(&allowance_second, second, __ATOMIC_RELAXED) != second)
        __atomic_store_n(&lines_of_second, 0, __ATOMIC_RELAXED);
    return __atomic_load_n(&lines_of_second, __ATOMIC_RELAXED) < LOG_LINES_PER_SECOND;
}

static bool take_line(void)
{
    return __atomic_fetch_add(&lines_of_second, 1, __ATOMIC_RELAXED) < LOG_LINES_PER_SECOND;
}

/* Was this text written less than a second ago? Notes that it is written now if not. A word is the
 * upper half of the text's hash (FNV-1a) and the time; of two texts that share a place the later
 * one is remembered, so that a line may be said twice, and is never lost. */
static bool is_repeated(const char *text, size_t bytes, uint64_t at_ms)
{
    static uint64_t recent[RECENT_TEXTS];
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    uint64_t *place = &recent[hash % RECENT_TEXTS];
    uint64_t before = __atomic_load_n(place, __ATOMIC_RELAXED);
    uint64_t word = (hash & 0xffffffff00000000u) | (uint32_t)at_ms;
    bool is_same = before >> 32 == word >> 32;
    if (is_same && (uint32_t)((uint32_t)word - (uint32_t)before) < REPEAT_MS)
        return true;
    /* of two threads with the same text one writes it */
    return !__atomic_compare_exchange_n(place, &before, word, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) &&
           before >> 32 == word >> 32;
}

/* Raw calls, since a thread could be cancelled in libc's, inside a hook. */
static void put(const char *line, size_t bytes)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    struct timespec no_time = {0};
    if (syscall(SYS_ppoll, &out, 1, &no_time, NULL, KERNEL_SIGSET_BYTES) != 1 ||
        (out.revents & POLLOUT) == 0)
        return;
    sigset_t deadly, before, pending;
    sigemptyset(&deadly);
    sigaddset(&deadly, SIGPIPE);
    sigaddset(&deadly, SIGXFSZ); /* a file at the program's size limit */
    sigpending(&pending);
    if (pthread_sigmask(SIG_BLOCK, &deadly, &before) != 0)
        return;
    errno = 0;
    syscall(SYS_write, STDERR_FILENO, line, bytes);
    int raised = errno == EPIPE ? SIGPIPE : errno == EFBIG ? SIGXFSZ : 0;
    if (raised != 0 && !sigismember(&pending, raised)) {
        sigemptyset(&deadly);
        sigaddset(&deadly, raised);
        syscall(SYS_rt_sigtimedwait, &deadly, NULL, &no_time, KERNEL_SIGSET_BYTES);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void log_line(enum log_level level, const char *format, ...)
{
    uint64_t at_ms = now_ms();
    if ((int)level > chosen_level() || !is_open(at_ms))
        return;
    int saved_errno = errno;
    static const char prefix[] = "libvgpu: ";
    char line[LOG_LINE_BYTES];
    memcpy(line, prefix, sizeof prefix - 1);
    size_t room = sizeof line - sizeof prefix; /* the last byte is the newline's */
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line + sizeof prefix - 1, room, format, arguments);
    va_end(arguments);
    if (length > 0) {
        size_t used = sizeof prefix - 1 + ((size_t)length < room ? (size_t)length : room - 1);
        line[used++] = '\n';
        if (!is_repeated(line, used, at_ms) && take_line())
            put(line, used);
    }
    errno = saved_errno;
}
