/* Eight threads look up every name of the table at once, the first lookups of the process among
 * them; to be built with a sanitizer. Prints how many names the driver has. */
#include <dlfcn.h>
#include <pthread.h>

#include "driver/real.h"
#include "hooks/resolve.h"
#include "ledger_fixture.h"
#include "resolve_stubs.h"
#include "slice/entry_notes.h"

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
        CHECK(!resolve_symbol(cuda, names[i], NULL).is_ours, "%s", names[i]);
    CHECK(!resolve_symbol(cuda, NULL, NULL).is_ours, "no name");
    CHECK(resolve_replacement("cuNoSuch", NULL) == NULL, "no function");
}

static void *look_up(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&start);
    for (int round = 0; round < ROUNDS; round++)
        for (const struct stub *stub = stubs; stub->symbol != NULL; stub++) {
            void *library = stub->symbol[0] == 'n' ? nvml : cuda;
            struct resolve_answer answer = resolve_symbol(library, stub->symbol, NULL);
            void *driver = real_dlsym(library, stub->symbol);
            if (driver == NULL) {
                CHECK(!answer.is_ours, "%s is not in the driver", stub->symbol);
                continue;
            }
            CHECK(answer.is_ours && answer.address == stub->hook, "%s", stub->symbol);
            if (library == cuda)
                CHECK(resolve_replacement(stub->symbol, driver) == stub->hook, "%s", stub->symbol);
            __atomic_fetch_add(&found, 1, __ATOMIC_RELAXED);
        }
    check_names_that_are_not_ours();
    return NULL;
}

/* By name, what lies at the address, and what kind of note the answer is worth (ENTRY_KINDS: none). */
static void check_notes(void)
{
    void *stranger = &found;
    const struct {
        const char *name;
        void *answer;
        enum entry_kind kind;
    } cases[] = {
        {"cuNoSuch", stranger, ENTRY_UNKNOWN},
        {"cuMem", stranger, ENTRY_UNKNOWN}, /* no row, though many begin so */
        {"cuMemAlloc_v", stranger, ENTRY_UNKNOWN},
        {"cuMemAlloc", stranger, ENTRY_MOVED},
        {"cuMemAlloc_v2", stranger, ENTRY_MOVED},
        {"cuLaunchKernel_ptsz", stranger, ENTRY_MOVED},
        {"cuMemcpyHtoD", stranger, ENTRY_MOVED}, /* its oldest version passes, the others do not */
        {"cuMemcpyHtoD", real_dlsym(cuda, "cuMemcpyHtoD"), ENTRY_KINDS},
        {"cuDeviceGetCount", stranger, ENTRY_KINDS}, /* passes, wherever it is */
        {"cuDeviceGetUuid", real_dlsym(cuda, "cuDeviceGetUuid_v2"), ENTRY_KINDS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        noted[ENTRY_UNKNOWN] = noted[ENTRY_MOVED] = 0;
        CHECK(cases[i].answer != NULL, "%s is not in the driver", cases[i].name);
        CHECK(resolve_replacement(cases[i].name, cases[i].answer) == cases[i].answer, "%s",
              cases[i].name);
        CHECK(noted[ENTRY_UNKNOWN] == (cases[i].kind == ENTRY_UNKNOWN) &&
                  noted[ENTRY_MOVED] == (cases[i].kind == ENTRY_MOVED),
              "%s: %ld unknown, %ld moved", cases[i].name, noted[ENTRY_UNKNOWN],
              noted[ENTRY_MOVED]);
    }
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
    CHECK(noted[ENTRY_UNKNOWN] == 0 && noted[ENTRY_MOVED] == 0, "a known name was noted");
    check_notes();
    printf("%ld\n", found / THREADS / ROUNDS);
    return 0;
}
