/*
 * A library that is preloaded before the shim and makes its claim of a slot last: after the lock
 * number CLAIM_AT (counted from 1) the process sleeps for CLAIM_SLEEP_MS, or stops itself if that
 * is 0. So a test can fork, kill or look exactly then.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int locks;

/* The simulated driver takes locks of the same kind on a file of its own. */
static int is_usage(int descriptor)
{
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    const char *name = strrchr(path, '/');
    return name != NULL && strcmp(name, "/usage") == 0;
}

int fcntl(int descriptor, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    int result = (int)syscall(SYS_fcntl, descriptor, command, argument);
    if (command != F_OFD_SETLK || !is_usage(descriptor))
        return result;
    if (++locks == atoi(getenv("CLAIM_AT"))) {
        int sleep_ms = atoi(getenv("CLAIM_SLEEP_MS"));
        if (sleep_ms > 0)
            usleep((useconds_t)sleep_ms * 1000);
        else
            raise(SIGSTOP);
    }
    return result;
}
