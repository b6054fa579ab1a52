#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int chosen_level(void)
{
    static int level = -1; /* racing first calls store the same value */
    if (level >= 0)
        return level;
    const char *text = getenv("VGPU_LOG");
    int chosen = LOG_WARN;
    if (text != NULL) {
        static const char *const names[] = {"error", "warn", "info", "debug"};
        for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
            if (strcmp(text, names[i]) == 0)
                chosen = i;
    }
    level = chosen;
    return chosen;
}

/* Counts a line against this second's allowance. */
static int is_allowed(void)
{
    static long second;
    static int lines;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (__atomic_exchange_n(&second, now.tv_sec, __ATOMIC_RELAXED) != now.tv_sec)
        __atomic_store_n(&lines, 0, __ATOMIC_RELAXED);
    return __atomic_fetch_add(&lines, 1, __ATOMIC_RELAXED) < LOG_LINES_PER_SECOND;
}

void log_line(enum log_level level, const char *format, ...)
{
    if ((int)level > chosen_level() || !is_allowed())
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
        ssize_t ignored = write(STDERR_FILENO, line, used);
        (void)ignored; /* a closed stderr is the program's choice */
    }
    errno = saved_errno;
}
