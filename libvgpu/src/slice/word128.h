/* 16-byte atomic words for x86-64, without -mcx16 and libatomic.
 *
 * An aligned 16-byte vector load is atomic on every CPU with AVX (Intel SDM vol. 3A §9.1.1, AMD APM
 * vol. 2 §7.3.2); elsewhere the load is a compare-and-exchange of the value with itself.
 * ThreadSanitizer does not see inline assembly, so that build (VGPU_TSAN) uses the builtins
 * instead. */
#ifndef VGPU_WORD128_H
#define VGPU_WORD128_H

#include <stdbool.h>
#include <stdint.h>

#if !defined(__x86_64__)
#error "only x86-64 is supported yet: this file and arch_x86_64.h are what another one needs"
#endif

struct word128 {
    uint64_t low;
    uint64_t high;
} __attribute__((aligned(16)));

static inline bool word128_equal(struct word128 a, struct word128 b)
{
    return a.low == b.low && a.high == b.high;
}

/* Replaces *at by `desired` if it is `expected`. Acquire and release, whatever the outcome. */
static inline bool word128_cas(void *at, struct word128 expected, struct word128 desired)
{
#ifdef VGPU_TSAN
    unsigned __int128 old = (unsigned __int128)expected.high << 64 | expected.low;
    unsigned __int128 new = (unsigned __int128)desired.high << 64 | desired.low;
    return __atomic_compare_exchange_n((unsigned __int128 *)at, &old, new, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
#else
    bool done;
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(done), "+m"(*(struct word128 *)at), "+a"(expected.low),
                       "+d"(expected.high)
                     : "b"(desired.low), "c"(desired.high)
                     : "memory");
    return done;
#endif
}

/* Reads 16 bytes at once, with acquire order. */
static inline struct word128 word128_load(const void *at)
{
#ifdef VGPU_TSAN
    unsigned __int128 value = __atomic_load_n((const unsigned __int128 *)at, __ATOMIC_ACQUIRE);
    return (struct word128){(uint64_t)value, (uint64_t)(value >> 64)};
#else
    static int has_avx = -1; /* racing writers store the same value */
    struct word128 value;
    if (__builtin_expect(has_avx < 0, 0)) {
        __builtin_cpu_init();
        has_avx = __builtin_cpu_supports("avx") ? 1 : 0;
    }
    if (__builtin_expect(has_avx, 1)) {
        __asm__ volatile("movdqa %1, %%xmm0\n\t"
                         "movdqa %%xmm0, %0"
                         : "=m"(value)
                         : "m"(*(const struct word128 *)at)
                         : "xmm0", "memory");
        return value;
    }
    value.low = value.high = 0;
    __asm__ volatile("lock cmpxchg16b %2"
                     : "+a"(value.low), "+d"(value.high), "+m"(*(struct word128 *)(uintptr_t)at)
                     : "b"(value.low), "c"(value.high)
                     : "memory", "cc");
    return value;
#endif
}

#endif
