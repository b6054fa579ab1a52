/* What the names of kernels say about them (collective.h). Pure. */
#include <stddef.h>
#include <string.h>

#include "compute/cap/collective.h"

/* What names of such kernels say, in lower case and without underscores. To know a further library by its names, add
 * a row. */
static const struct rule {
    const char *words;
    bool begins; /* a name begins so; else the words may stand anywhere in it */
} rules[] = {
    {"ncclkernel", true},         /* NCCL up to 2.18 */
    {"nccldevkernel", true},      /* since then */
    {"ncclsymdevkernel", true},   /* with symmetric memory, 2.27 */
    {"ncclsymkdevkernel", true},  /* since then */
    {"nvshmem", false},           /* NVSHMEM */
    {"allreduce", false},         /* TensorRT-LLM, FlashInfer, XLA, PyTorch, SGLang */
    {"allgather", false},         /* PyTorch, TensorRT-LLM */
    {"reducescatter", false},     /* the same */
    {"alltoall", false},          /* the same */
    {"crossdevicereduce", false}, /* vLLM */
    {"multimem", false},          /* PyTorch */
    {"symmetricmemory", false},   /* PyTorch: the name of the file, in those of its kernels */
    {"symmmem", false},           /* Triton's kernels on PyTorch's symmetric memory */
    {"deepep", false},            /* DeepEP */
    {"mscclpp", false},           /* MSCCL++ */
    {"userbuffers", false},       /* Transformer Engine */
    {"kuserbuffers", false},      /* the same */
};

/* Before the words: the parts of one kernel do it among themselves. */
static const char *const within[] = {"block", "warp", "thread", "cta", "lane"};

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

/* `small_reduce` and `CallReduce` do not say `allreduce`. */
static bool begins_word(const char *name, size_t length, size_t at)
{
    if (at == 0 || (!is_lower(name[at - 1]) && !is_upper(name[at - 1])))
        return true;
    return is_upper(name[at]) &&
           (is_lower(name[at - 1]) || (at + 1 < length && is_lower(name[at + 1])));
}

static bool reads(const char *name, size_t length, const char *words)
{
    for (size_t i = 0; i < length && *words != '\0'; i++) {
        if (name[i] == '_')
            continue;
        if ((is_upper(name[i]) ? name[i] - 'A' + 'a' : name[i]) != *words++)
            return false;
    }
    return *words == '\0';
}

static bool is_within(const char *name, size_t at)
{
    while (at > 0 && name[at - 1] == '_')
        at--;
    for (size_t i = 0; i < sizeof within / sizeof *within; i++) {
        size_t length = strlen(within[i]);
        if (at >= length && reads(name + at - length, length, within[i]))
            return true;
    }
    return false;
}

/* A name of one piece: that of a function, or of what it is nested in. */
static bool says_collective(const char *name, size_t length)
{
    for (size_t at = 0; at < length; at++) {
        if (name[at] == '_' || !begins_word(name, length, at))
            continue;
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
            if ((at == 0 || !rules[i].begins) && reads(name + at, length - at, rules[i].words) &&
                !is_within(name, at))
                return true;
    }
    return false;
}

/* What a C++ compiler makes of a name: _Z, where it is nested N, letters for how, then each piece with its length in
 * front. Behind the pieces stand arguments, whose types may be named after anything. */
static bool mangled_says_collective(const char *at)
{
    bool is_nested = *at == 'N';
    at += is_nested;
    do {
        size_t length = 0, left;
        at += strspn(at, "rVKL");
        if (strncmp(at, "St", 2) == 0)
            at += 2;
        for (; *at >= '0' && *at <= '9' && length < 10000; at++)
            length = 10 * length + (size_t)(*at - '0');
        left = strlen(at);
        if (length == 0 || length > left)
            return false;
        if (says_collective(at, length))
            return true;
        at += length;
    } while (is_nested);
    return false;
}

bool collective_is_name(const char *name)
{
    if (name == NULL)
        return false;
    return strncmp(name, "_Z", 2) == 0 ? mangled_says_collective(name + 2)
                                       : says_collective(name, strlen(name));
}
