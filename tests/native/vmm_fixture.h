/* What vmm.c needs around it, for programs that test it alone: a ledger that only counts. */
#ifndef VGPU_VMM_FIXTURE_H
#define VGPU_VMM_FIXTURE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver/log.h"
#include "driver/real.h"
#include "memory/ledger/charge.h"
#include "memory/vmm/vmm.h"
#include "slice/region.h"

#define CHECK(condition, ...) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            exit(1); \
        } \
    } while (0)

struct real real;

enum region_state region_open(void)
{
    return REGION_MAPPED;
}

void log_line(enum log_level level, const char *format, ...)
{
    (void)level;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

#endif
