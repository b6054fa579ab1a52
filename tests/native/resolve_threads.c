/* Eight threads look up every name of the table at once, the first lookups of the process among
 * them; to be built with a sanitizer. Prints how many names the driver has. */
#include <dlfcn.h>
#include <pthread.h>

#include "hooks/real.h"
#include "hooks/resolve.h"
#include "ledger_fixture.h"
#include "resolve_stubs.h"

#define THREADS 8
#define ROUNDS 20

static pthread_barrier_t start;
static void *cuda;
static void *nvml;
static long found;

static void check_names_that_are_not_ours(void)
{
    static const char *const names[] = {"malloc",   "curl_easy_init", "cudaMalloc", "cu", "nvml",
                                        "cuNoSuch", "nvmlNoSuch",     "dlopen",     "",   "c"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(!resolve_symbol(cuda, names[i]).is_ours, "%s", names[i]);
    CHECK(!resolve_symbol(cuda, NULL).is_ours, "no name");
    CHECK(resolve_replacement(NULL) == NULL, "no function");
    CHECK(resolve_replacement((void *)&found) == &found, "a function that is not the driver's");
}

static void *look_up(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++)
        for (const struct stub *stub = stubs; stub->symbol != NULL; stub++) {
            void *library = stub->symbol[0] == 'n' ? nvml : cuda;
            struct resolve_answer answer = resolve_symbol(library, stub->symbol);
            void *driver = real_dlsym(library, stub->symbol);
            if (driver == NULL) {
                CHECK(!answer.is_ours, "%s is not in the driver", stub->symbol);
                continue;
            }
            CHECK(answer.is_ours && answer.address == stub->hook, "%s", stub->symbol);
            if (library == cuda)
                CHECK(resolve_replacement(driver) == stub->hook, "%s", stub->symbol);
            __atomic_fetch_add(&found, 1, __ATOMIC_RELAXED);
        }
    check_names_that_are_not_ours();
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    CHECK(cuda != NULL && nvml != NULL, "%s", dlerror());
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, look_up, NULL) == 0, "thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\n", found / THREADS / ROUNDS);
    return 0;
}
