#include "memory/contexts/reconcile.h"

#include "driver/log.h"
#include "memory/contexts/context_charge.h"
#include "memory/contexts/context_cost.h"
#include "memory/contexts/imported.h"
#include "memory/ledger/block.h"
#include "memory/ledger/charge.h"
#include "memory/shared/shared_memory.h"
#include "slice/devices.h"
#include "slice/locks.h"
#include "slice/region.h"
#include "slice/usage_file.h"
#include "vgpu/contract.h"

#define PERIOD_NS 1000000000ll
#define MOST_ASKED 32
#define FORGET_NS (16 * PERIOD_NS)
#define UNTOLD_NS (16 * PERIOD_NS)
#define TRIES 3
#define SURE_SLACK_BYTES ((uint64_t)4 << 20) /* reserved for a moment, before the driver has it */
#define LIKELY_BYTES ((uint64_t)256 << 20)   /* of code, and what else the ledger cannot have */
#define MOVE_BYTES ((uint64_t)8 << 20)       /* no figure stands still when so much was taken */

int reconcile_due;
int64_t reconcile_next_ns = INT64_MAX;

/* All below: under the lock. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct account {
    uint64_t other_bytes;              /* charged here */
    uint64_t figure_bytes, sure_bytes; /* when it was believed last; 0: never */
    bool is_settled;                   /* the last look had an answer that stands … */
    int64_t others_bytes;              /* … while the others have this */
    int64_t still_since_ns;            /* when these were seen to move last */
    int64_t looked_ns;                 /* at these, or at what NVML says */
    struct imported imported;
    uint32_t asked_in_vain; /* NVML, so often … */
    int64_t forget_ns;      /* … and when one of these is forgotten */
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
    uint64_t managed_bytes;
};

void reconcile_after_fork(void)
{
    lock_reset(&mutex);
    for (uint32_t device = 0; device < VGPU_MAX_DEVICES; device++) {
        accounts[device] = (struct account){0};
        pids[device] = PID_UNKNOWN;
    }
    is_said = false;
    __atomic_store_n(&reconcile_next_ns, INT64_MAX, __ATOMIC_RELAXED);
    __atomic_store_n(&reconcile_due, RECONCILE_NOTHING, __ATOMIC_RELAXED);
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
        .sure_bytes = usage_kind_bytes(own, VGPU_KIND_PLAIN),
        .managed_bytes = usage_kind_bytes(own, VGPU_KIND_MANAGED),
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
 * has. `is_booked`: that has all there is. */
static bool prove(uint32_t device, uint64_t figure_bytes, bool is_booked)
{
    uint64_t known_bytes = __atomic_load_n(&region_counters(device)->bytes, __ATOMIC_ACQUIRE) +
                           shared_memory_held_bytes(device);
    if (figure_bytes + LIKELY_BYTES + shared_memory_imported_bytes(device) < known_bytes)
        return false;
    bool is_near = figure_bytes <= known_bytes + LIKELY_BYTES;
    if (is_near || is_booked)
        reconcile_pid_is(device, !is_near);
    return is_near;
}

/* Whether a figure can only be of this process. Without the lock, too. */
static bool is_own(uint32_t device, const struct context_cost_sample *sample, bool is_booked)
{
    if (sample->own_count > 1)
        reconcile_pid_is(device, true);
    enum pid pid = __atomic_load_n(&pids[device], __ATOMIC_RELAXED);
    return sample->own_count == 1 && sample->own_bytes > 0 && pid != PID_SHARED &&
           (!sample->is_gpu_known || sample->own_bytes <= sample->gpu_bytes) &&
           (pid == PID_OWN || prove(device, sample->own_bytes, is_booked));
}

bool reconcile_own_bytes(uint32_t device, uint64_t *bytes)
{
    struct context_cost_sample sample = context_cost_sample_own(device);
    *bytes = sample.own_bytes;
    return is_own(device, &sample, false);
}

/* Of a figure of this process. */
static bool is_believed(uint32_t device, uint64_t figure_bytes, const struct books *books)
{
    struct account *account = &accounts[device];
    if (figure_bytes + SURE_SLACK_BYTES < books->sure_bytes)
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

enum answer { NOT_NOW, NOT_OURS, OURS };

/* How much more than the ledger has NVML says, by one of the two samples. */
static enum answer measure(uint32_t device, struct context_cost_sample (*ask)(uint32_t device),
                           uint64_t *excess_bytes)
{
    for (int i = 0; i < TRIES; i++) {
        struct books before = read_books(device);
        struct context_cost_sample sample = ask(device);
        struct books after = read_books(device);
        if (before.change_count != after.change_count)
            continue; /* another thread allocated or freed meanwhile */
        say_once(&sample);
        if (context_charge_is_under_way(device))
            return NOT_NOW;
        if (!is_own(device, &sample, true))
            return NOT_OURS;
        if (!is_believed(device, sample.own_bytes, &after))
            return NOT_NOW;
        int64_t lack_bytes = (int64_t)(after.known_bytes - after.managed_bytes - sample.own_bytes);
        uint64_t known_bytes =
            after.known_bytes -
            imported_elsewhere_bytes(&accounts[device].imported, device, lack_bytes);
        *excess_bytes = sample.own_bytes > known_bytes ? sample.own_bytes - known_bytes : 0;
        if (*excess_bytes < block_known_bytes(device)) /* a block that is filled in part */
            *excess_bytes = 0;
        return OURS;
    }
    return NOT_NOW;
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

/* What two answers have is charged or given back: one alone may have met a call of another thread. Returns
 * whether that stands while others do. */
static bool settle(uint32_t device)
{
    struct account *account = &accounts[device];
    uint64_t excess_bytes, again_bytes;
    enum answer answer = measure(device, context_cost_sample_own, &excess_bytes);
    if (answer != OURS || excess_bytes == account->other_bytes)
        return answer != NOT_NOW;
    if (measure(device, context_cost_sample, &again_bytes) != OURS)
        return false;
    bool is_more = excess_bytes > account->other_bytes;
    if (is_more != (again_bytes > account->other_bytes))
        return false;
    set_other(device, is_more == (again_bytes < excess_bytes) ? again_bytes : excess_bytes);
    return true;
}

/* What is in use of a device and is not in the books of this process. False where that is not known now. */
static bool ask_others(uint32_t device, int64_t *bytes)
{
    uint64_t gpu_bytes;
    if (devices_current() != (int)device)
        return false;
    for (int i = 0; i < TRIES; i++) {
        struct books before = read_books(device);
        if (!context_cost_gpu_in_use(&gpu_bytes))
            return false;
        *bytes = (int64_t)(gpu_bytes - before.known_bytes - accounts[device].other_bytes);
        if (before.change_count == read_books(device).change_count)
            return true;
    }
    return false;
}

static bool stand_still(const struct account *account, int64_t others_bytes)
{
    return __atomic_load_n(&account->is_settled, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&account->others_bytes, __ATOMIC_RELAXED) == others_bytes &&
           now_ns() - __atomic_load_n(&account->still_since_ns, __ATOMIC_RELAXED) >= PERIOD_NS;
}

bool reconcile_others_stand_still(uint32_t device, uint64_t gpu_bytes)
{
    uint64_t other_bytes = __atomic_load_n(&accounts[device].other_bytes, __ATOMIC_RELAXED);
    return stand_still(&accounts[device],
                       (int64_t)(gpu_bytes - read_books(device).known_bytes - other_bytes));
}

/* Notes what others have next to an answer of NVML's. */
static void note_others(struct account *account, bool is_settled, int64_t others_bytes)
{
    if (is_settled && account->is_settled && others_bytes != account->others_bytes)
        __atomic_store_n(&account->still_since_ns, now_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&account->others_bytes, others_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&account->is_settled, is_settled, __ATOMIC_RELEASE);
}

/* Whether NVML may be asked; that is noted as in vain until there is an answer. */
static bool may_ask(struct account *account, int64_t now)
{
    if (account->asked_in_vain > 0 && now >= account->forget_ns) {
        account->asked_in_vain--;
        account->forget_ns = now + FORGET_NS;
    }
    if (account->asked_in_vain == MOST_ASKED)
        return false;
    if (account->asked_in_vain++ == 0)
        account->forget_ns = now + FORGET_NS;
    return true;
}

static void look(uint32_t device, enum reconcile_due due)
{
    struct account *account = &accounts[device];
    int64_t others_bytes = 0, now = now_ns();
    if (context_charge_count(device) == 0) {
        set_other(device, 0);
        account->figure_bytes = 0;
        __atomic_store_n(&account->is_settled, false, __ATOMIC_RELEASE);
        return;
    }
    if (imported_look(&account->imported, device)) { /* too early to learn from it */
        __atomic_store_n(&account->is_settled, false, __ATOMIC_RELEASE);
        reconcile_current_soon();
        if (due != RECONCILE_ALL)
            return;
    }
    bool is_told = ask_others(device, &others_bytes);
    if (!is_told && due != RECONCILE_ALL && now - account->looked_ns < UNTOLD_NS)
        return;
    account->looked_ns = now;
    if ((is_told && stand_still(account, others_bytes)) || !may_ask(account, now))
        return;
    uint64_t charged_bytes = account->other_bytes;
    bool is_settled = settle(device) && (is_told || account->is_settled);
    if (account->other_bytes != charged_bytes)
        account->asked_in_vain--;
    others_bytes -= (int64_t)(account->other_bytes - charged_bytes);
    note_others(account, is_settled && !account->imported.is_changing,
                is_told ? others_bytes : account->others_bytes);
}

static void look_at_all(void)
{
    enum reconcile_due due = (enum reconcile_due)__atomic_exchange_n(
        &reconcile_due, RECONCILE_NOTHING, __ATOMIC_ACQ_REL);
    if (due == RECONCILE_NOTHING &&
        now_ns() < __atomic_load_n(&reconcile_next_ns, __ATOMIC_RELAXED))
        return;
    for (uint32_t device = 0; device < region_device_count(); device++)
        look(device, due);
    __atomic_store_n(&reconcile_next_ns, now_ns() + PERIOD_NS, __ATOMIC_RELAXED);
}

void reconcile_look(void)
{
    int cancelling;
    if (region_open() != REGION_MAPPED || context_cost_is_over()) {
        __atomic_store_n(&reconcile_due, RECONCILE_NOTHING, __ATOMIC_RELAXED);
        return;
    }
    shared_memory_look();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    if (lock_try(&mutex, LOCK_RECONCILE)) {
        if (region_claim())
            look_at_all();
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
