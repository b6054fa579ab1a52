/* The table of prices, one question a run; prints what it says. The word that is asked:
 *   counts A B    whether launches of one function of A and of B blocks share a key
 *   functions     how many of many functions share a key with another one, whatever their blocks
 *   known         the price that is prepaid after 0, 1, 2 … samples
 *   shared NS…    the price after each sample that was measured next to others
 *   uneven NS…    whether a kind with such samples is uneven, and what it is prepaid
 *   full          of more keys than there is room for: how many are found, wrong, and free again
 *   threads       of prices that are looked up while the table is changed: looked up, and wrong
 */
#include "compute/measure/estimate.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION_BYTES 64 /* apart: as objects of malloc are */
#define FUNCTIONS 4000
#define COUNTS 40 /* of blocks */
#define SAMPLES 5
#define LENGTH_NS 7000
#define KEYS (4 * ESTIMATE_KEYS)
#define THREADS 3
#define ROUNDS 200
#define LEAST_LOOKS 1000 /* of each thread */

static struct estimates estimates;
static char functions[FUNCTIONS * FUNCTION_BYTES];

static uint64_t key_of(int number)
{
    return estimate_key(functions + number % FUNCTIONS * FUNCTION_BYTES,
                        1 + (uint64_t)number / FUNCTIONS);
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void ask_functions(void)
{
    static uint64_t keys[FUNCTIONS * COUNTS];
    int shared = 0, zero = 0, count = 0;
    for (int function = 0; function < FUNCTIONS; function++)
        for (int power = 1; power <= COUNTS / 2; power++)
            for (uint64_t half = 0; half < 2; half++) /* 2, 3, 4, 6, 8, 12 … blocks */
                keys[count++] = estimate_key(functions + function * FUNCTION_BYTES,
                                             ((uint64_t)2 + half) << (power - 1));
    qsort(keys, (size_t)count, sizeof *keys, compare);
    for (int i = 0; i < count; i++) {
        zero += keys[i] == 0;
        shared += i > 0 && keys[i] == keys[i - 1];
    }
    printf("%d %d\n", shared, zero);
}

static void ask_known(void)
{
    struct estimate *estimate = estimate_find(&estimates, key_of(1));
    for (int sample = 0; sample <= SAMPLES; sample++) {
        printf("%lld %u\n", (long long)estimate->budget_price_ns, estimate_batch_limit(estimate));
        estimate_learn(estimate, LENGTH_NS, 1, false);
    }
}

static void ask_shared(int count, char **samples)
{
    struct estimate *estimate = estimate_find(&estimates, key_of(1));
    for (int i = 0; i < count; i++) {
        estimate_learn_shared(estimate, strtoll(samples[i], NULL, 10));
        printf("%lld\n", (long long)estimate->gpu_ns);
    }
}

static void ask_uneven(int count, char **samples)
{
    struct estimate *estimate = estimate_find(&estimates, key_of(1));
    for (int i = 0; i < count; i++)
        estimate_learn(estimate, strtoll(samples[i], NULL, 10), 1, false);
    printf("%d %lld\n", estimate_is_uneven(estimate, ESTIMATE_UNEVEN_NS),
           (long long)estimate->budget_price_ns);
}

/* Each price is its key's own: whatever the table gives must be of the key that was asked. */
static int64_t length_of(int number)
{
    return 1000 + number;
}

static void ask_full(void)
{
    int missing = 0, wrong = 0, left = 0;
    for (int number = 0; number < KEYS; number++) {
        struct estimate *estimate = estimate_find(&estimates, key_of(number));
        missing += estimate->key != key_of(number) || estimate->samples != 0 ||
                   estimate->budget_price_ns != ESTIMATE_NO_PRICE_NS ||
                   estimate->gpu_ns != ESTIMATE_GUESS_NS;
        for (int sample = 0; sample < ESTIMATE_KNOWN; sample++)
            estimate_learn(estimate, length_of(number), 1, false);
        missing += estimate_look(&estimates, key_of(number)) != estimate;
    }
    for (int number = 0; number < KEYS; number++) {
        struct estimate *estimate = estimate_look(&estimates, key_of(number));
        left += estimate != NULL;
        wrong += estimate != NULL && estimate->budget_price_ns != length_of(number);
    }
    printf("%d %d %d\n", missing, wrong, left);
}

static bool is_over;

/* What replaces a kind withdraws its price first; a look-up in between may be charged the price of
 * the old or the new one, and nothing else. */
static void *look_up(void *counts)
{
    uint64_t *looked = counts, *wrong = looked + 1;
    for (int number = 0; !__atomic_load_n(&is_over, __ATOMIC_RELAXED);
         number = (number + 7) % KEYS) {
        struct estimate *estimate = estimate_look(&estimates, key_of(number));
        if (estimate == NULL)
            continue;
        int64_t price_ns = __atomic_load_n(&estimate->budget_price_ns, __ATOMIC_RELAXED);
        __atomic_store_n(looked, *looked + 1, __ATOMIC_RELAXED);
        *wrong += price_ns != ESTIMATE_NO_PRICE_NS &&
                  (price_ns < length_of(0) || price_ns >= length_of(KEYS));
    }
    return NULL;
}

/* However late a machine lets them begin. */
static bool have_looked(uint64_t (*counts)[8])
{
    for (int i = 0; i < THREADS; i++)
        if (__atomic_load_n(counts[i], __ATOMIC_RELAXED) < LEAST_LOOKS)
            return false;
    return true;
}

static void ask_threads(void)
{
    pthread_t threads[THREADS];
    uint64_t counts[THREADS][8] = {0}, looked = 0, wrong = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, look_up, counts[i]);
    for (int round = 0; round < ROUNDS || !have_looked(counts); round++)
        for (int number = 0; number < KEYS; number++) {
            struct estimate *estimate = estimate_find(&estimates, key_of(number));
            for (int sample = 0; sample < ESTIMATE_KNOWN; sample++)
                estimate_learn(estimate, length_of(number), 1, false);
        }
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        looked += counts[i][0];
        wrong += counts[i][1];
    }
    printf("%llu %llu\n", (unsigned long long)looked, (unsigned long long)wrong);
}

int main(int argc, char **argv)
{
    const char *question = argc > 1 ? argv[1] : "";
    if (strcmp(question, "counts") == 0 && argc > 3)
        printf("%d\n", estimate_key(functions, strtoull(argv[2], NULL, 10)) ==
                           estimate_key(functions, strtoull(argv[3], NULL, 10)));
    else if (strcmp(question, "functions") == 0)
        ask_functions();
    else if (strcmp(question, "known") == 0)
        ask_known();
    else if (strcmp(question, "shared") == 0)
        ask_shared(argc - 2, argv + 2);
    else if (strcmp(question, "uneven") == 0)
        ask_uneven(argc - 2, argv + 2);
    else if (strcmp(question, "full") == 0)
        ask_full();
    else if (strcmp(question, "threads") == 0)
        ask_threads();
    else
        return 2;
    return 0;
}
