#include "compute/measure/ration.h"

#define LN_2 0.69314718f
#define WORD 18446744073709551616.0f /* 2 to the 64 */

static uint64_t next_random(uint64_t value) /* xorshift */
{
    value ^= value << 13;
    value ^= value >> 7;
    return value ^ value << 17;
}

/* Minus the logarithm of a number of which every value from 0 to 1 is as likely: a draw of the exponential
 * distribution of mean 1, to within a hundredth. The library of such functions may not be loaded here. */
static float draw(uint64_t random)
{
    int zeros = __builtin_clzll(random | 1);
    float rest = (float)(random << zeros << 1) / WORD;
    return LN_2 * ((float)(zeros + 1) - rest * (1.3465f - 0.3465f * rest));
}

/* 1 / (exp(x) - 1): what a sample stands for besides itself, where it was taken with a probability of
 * 1 - exp(-x). */
static float others(float x)
{
    return 1 / (x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4))));
}

int64_t ration_begin(struct ration *ration, int64_t price_ns, int64_t mean_ns, int64_t now_ns)
{
    int64_t speaks_for_ns = ration->unseen_ns;
    if (ration->charged_ns > ration->due_ns) /* it was due before, and could not begin */
        speaks_for_ns += ration->charged_ns - ration->due_ns;
    if (ration->mean_ns > 0 && price_ns > 0)
        speaks_for_ns +=
            (int64_t)((float)price_ns * others((float)price_ns / (float)ration->mean_ns));
    ration->random = next_random(ration->random != 0 ? ration->random : (uint64_t)now_ns | 1);
    ration->charged_ns = 0;
    ration->due_ns = (int64_t)((float)mean_ns * draw(ration->random));
    ration->mean_ns = mean_ns;
    ration->unseen_ns = 0;
    ration->last_ns = now_ns;
    return speaks_for_ns;
}

void ration_charge(struct ration *ration, int64_t gpu_ns, int64_t now_ns)
{
    ration->charged_ns += gpu_ns;
    ration->until_ns = (ration->until_ns > now_ns ? ration->until_ns : now_ns) + gpu_ns;
}

void ration_leave(struct ration *ration, int64_t gpu_ns)
{
    ration->unseen_ns += gpu_ns;
}

void ration_hurry(struct ration *ration)
{
    if (ration->charged_ns >= ration->due_ns)
        return;
    ration->due_ns = ration->charged_ns;
    ration->mean_ns = 0;
}

bool ration_is_due(const struct ration *ration, int64_t price_ns, int64_t now_ns)
{
    return ration->charged_ns + price_ns > ration->due_ns &&
           (ration->mean_ns > 0 || now_ns - ration->last_ns >= RATION_HURRY_NS);
}

int64_t ration_owed_ns(int64_t speaks_for_ns, int64_t price_ns, int64_t gpu_ns)
{
    if (price_ns <= 0)
        return 0;
    double owed_ns = (double)speaks_for_ns * (double)(gpu_ns - price_ns) / (double)price_ns;
    if (owed_ns < -(double)speaks_for_ns)
        return -speaks_for_ns;
    return owed_ns > RATION_MOST_OWED_NS ? RATION_MOST_OWED_NS : (int64_t)owed_ns;
}

int64_t ration_left_ns(const struct ration *ration)
{
    int64_t left_ns = ration->due_ns - ration->charged_ns;
    if (ration->mean_ns == 0 && left_ns < RATION_HURRY_NS / 4)
        return RATION_HURRY_NS / 4; /* a little at a time, so that the clock is looked at again */
    return left_ns;
}

int64_t ration_backlog_ns(const struct ration *ration, int64_t now_ns)
{
    return ration->until_ns > now_ns ? ration->until_ns - now_ns : 0;
}
