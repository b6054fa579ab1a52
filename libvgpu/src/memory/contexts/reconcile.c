#include "memory/contexts/reconcile.h"

#include "driver/log.h"
#include "memory/contexts/context_charge.h"
#include "memory/contexts/context_cost.h"
#include "memory/ledger/block.h"
#include "memory/ledger/charge.h"
#include "memory/shared/shared_memory.h"
#include "slice/locks.h"
#include "slice/region.h"
#include "vgpu/contract.h"

#define PERIOD_NS 1000000000
#define MOST_EARLY_LOOKS 32
#define TRIES 3
#define SURE_SLACK_BYTES ((uint64_t)4 << 20) /* reserved for a moment, before the driver has it */
#define LIKELY_BYTES ((uint64_t)256 << 20)   /* of code, and what else the ledger cannot have */
#define MOVE_BYTES ((uint64_t)8 << 20)       /* no figure stands still when so much was taken */

bool reconcile_is_due;
int64_t reconcile_next_ns = INT64_MAX;

/* All below: under the lock. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int early_looks = MOST_EARLY_LOOKS;

static struct account {
    uint64_t other_bytes;              /* charged here */
    uint64_t figure_bytes, sure_bytes; /* when it was believed last; 0: never */
} accounts[VGPU_MAX_DEVICES];
static bool is_said; /* that NVML does not tell */

/* Whether what NVML says of our pid is of this process. Atomic, without the lock. */
enum pid { PID_UNKNOWN, PID_OWN, PID_SHARED };
static enum pid pids[VGPU_MAX_DEVICES];

/* What the ledger has for this process at one moment. */
struct books {
    uint64_t change_count;
    uint64_t known_bytes; /* without what is charged here */
    uint64_t sure_bytes;
};

void reconcile_after_fork(void)
{
    lock_reset(&mutex);
    early_looks = MOST_EARLY_LOOKS;
    for (uint32_t device = 0; device < VGPU_MAX_DEVICES; device++) {
        accounts[device] = (struct account){0};
        pids[device] = PID_UNKNOWN;
    }
    is_said = false;
    __atomic_store_n(&reconcile_next_ns, INT64_MAX, __ATOMIC_RELAXED);
    __atomic_store_n(&reconcile_is_due, false, __ATOMIC_RELAXED);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static struct books read_books(uint32_t device)
{
    const struct vgpu_usage_slot_device *own = region_counters(device);
    uint64_t other_bytes = accounts[device].other_bytes;
    uint64_t own_bytes = __atomic_load_n(&own->bytes, __ATOMIC_ACQUIRE);
    return (struct books){
        .change_count = __atomic_load_n(&own->count, __ATOMIC_ACQUIRE),
        .known_bytes = (own_bytes > other_bytes ? own_bytes - other_bytes : 0) +
                       shared_memory_held_bytes(device),
        .sure_bytes = __atomic_load_n(&own->kind_bytes[VGPU_KIND_PLAIN], __ATOMIC_RELAXED),
    };
}

static uint64_t distance(uint64_t one, uint64_t other)
{
    return one > other ? one - other : other - one;
}

void reconcile_pid_is(uint32_t device, bool is_shared)
{
    __atomic_store_n(&pids[device], is_shared ? PID_SHARED : PID_OWN, __ATOMIC_RELAXED);
}

/* Of a pid of which nobody asked before it had a context: whether the figure is near to what the ledger
 * has. */
static bool prove(uint32_t device, uint64_t figure_bytes)
{
    uint64_t known_bytes = __atomic_load_n(&region_counters(device)->bytes, __ATOMIC_ACQUIRE) +
                           shared_memory_held_bytes(device);
    if (figure_bytes + LIKELY_BYTES < known_bytes)
        return false;
    bool is_near = figure_bytes <= known_bytes + LIKELY_BYTES;
    __atomic_store_n(&pids[device], is_near ? PID_OWN : PID_SHARED, __ATOMIC_RELAXED);
    return is_near;
}

/* Whether a figure can only be of this process. Without the lock, too. */
static bool is_own(uint32_t device, const struct context_cost_sample *sample)
{
    if (sample->own_count > 1)
        reconcile_pid_is(device, true);
    enum pid pid = __atomic_load_n(&pids[device], __ATOMIC_RELAXED);
    return sample->own_count == 1 && sample->own_bytes > 0 && pid != PID_SHARED &&
           (!sample->is_gpu_known || sample->own_bytes <= sample->gpu_bytes) &&
           (pid == PID_OWN || prove(device, sample->own_bytes));
}

bool reconcile_own_bytes(uint32_t device, uint64_t *bytes)
{
    struct context_cost_sample sample = context_cost_sample(device);
    *bytes = sample.own_bytes;
    return is_own(device, &sample);
}

static bool is_believed(uint32_t device, const struct context_cost_sample *sample,
                        const struct books *books)
{
    struct account *account = &accounts[device];
    uint64_t figure_bytes = sample->own_bytes;
    if (!is_own(device, sample) || figure_bytes + SURE_SLACK_BYTES < books->sure_bytes)
        return false;
    if (account->figure_bytes == figure_bytes &&
        distance(account->sure_bytes, books->sure_bytes) >= MOVE_BYTES)
        return false;
    account->figure_bytes = figure_bytes;
    account->sure_bytes = books->sure_bytes;
    return true;
}

static void say_once(const struct context_cost_sample *sample)
{
    if (sample->own_count > 0 || is_said)
        return;
    is_said = true;
    log_line(LOG_INFO, "NVML does not tell what this process holds: what its first launches load "
                       "is not charged here");
}

/* How much more than the ledger has NVML says. False where that is not known now. */
static bool measure(uint32_t device, uint64_t *excess_bytes)
{
    for (int i = 0; i < TRIES; i++) {
        struct books before = read_books(device);
        struct context_cost_sample sample = context_cost_sample(device);
        struct books after = read_books(device);
        if (before.change_count != after.change_count)
            continue; /* another thread allocated or freed meanwhile */
        say_once(&sample);
        if (context_charge_is_under_way(device) || !is_believed(device, &sample, &after))
            return false;
        *excess_bytes =
            sample.own_bytes > after.known_bytes ? sample.own_bytes - after.known_bytes : 0;
        if (*excess_bytes < block_known_bytes(device)) /* a block that is filled in part */
            *excess_bytes = 0;
        return true;
    }
    return false;
}

static void set_other(uint32_t device, uint64_t bytes)
{
    struct account *account = &accounts[device];
    struct charge change = {.device = (int)device, .kind = VGPU_KIND_OTHER};
    if (bytes > account->other_bytes) {
        charge_force(&change, (int)device, VGPU_KIND_OTHER, bytes - account->other_bytes);
    } else {
        change.bytes = account->other_bytes - bytes;
        charge_cancel(&change);
    }
    __atomic_store_n(&account->other_bytes, bytes, __ATOMIC_RELAXED);
}

/* What two looks have is charged or given back: one alone may have met a call of another thread. */
static void look(uint32_t device)
{
    struct account *account = &accounts[device];
    uint64_t excess_bytes, again_bytes;
    if (context_charge_count(device) == 0) {
        set_other(device, 0);
        account->figure_bytes = 0;
        return;
    }
    if (!measure(device, &excess_bytes) || excess_bytes == account->other_bytes ||
        !measure(device, &again_bytes))
        return;
    bool is_more = excess_bytes > account->other_bytes;
    if (is_more != (again_bytes > account->other_bytes))
        return;
    set_other(device, is_more == (again_bytes < excess_bytes) ? again_bytes : excess_bytes);
}

/* Whether it is time; what was asked for is taken note of. */
static bool is_time(int64_t now)
{
    bool is_asked = __atomic_exchange_n(&reconcile_is_due, false, __ATOMIC_ACQ_REL);
    if (now >= __atomic_load_n(&reconcile_next_ns, __ATOMIC_RELAXED)) {
        early_looks += early_looks < MOST_EARLY_LOOKS;
        return true;
    }
    if (!is_asked || early_looks == 0)
        return false;
    early_looks--;
    return true;
}

void reconcile_look(void)
{
    int cancelling;
    if (region_open() != REGION_MAPPED || context_cost_is_over()) {
        __atomic_store_n(&reconcile_is_due, false, __ATOMIC_RELAXED);
        return;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    if (lock_try(&mutex, LOCK_RECONCILE)) {
        if (region_claim() && is_time(now_ns())) {
            for (uint32_t device = 0; device < region_device_count(); device++)
                look(device);
            __atomic_store_n(&reconcile_next_ns, now_ns() + PERIOD_NS, __ATOMIC_RELAXED);
        }
        lock_give_back(&mutex);
    }
    pthread_setcancelstate(cancelling, NULL);
}

static void reclaim(int device)
{
    if (__atomic_load_n(&accounts[device].other_bytes, __ATOMIC_RELAXED) == 0)
        return;
    reconcile_soon();
    reconcile_look();
}

void reconcile_begin(void)
{
    int64_t none = INT64_MAX;
    charge_on_shortage(reclaim);
    reconcile_soon(); /* what is used there is loaded there, too */
    __atomic_compare_exchange_n(&reconcile_next_ns, &none, now_ns() + PERIOD_NS, false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
