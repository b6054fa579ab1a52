#include "arbiter.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "tenant_files.h"

#define SECOND_NS 1000000000
#define EVENTS 64
/* A ring that is full, or comes more often than this, is not listened to for the rest of a
 * millisecond: whatever a tenant writes, it costs this thread a bounded part of a core. */
#define RING_PERIOD_NS 1000000
#define RINGS_A_PERIOD 8
#define NOT_A_TENANT 0xffffffffu

struct ring_state {
    bool is_armed;
    bool rang;
    uint32_t count; /* since counted_ns */
    int64_t counted_ns;
    int64_t muted_until_ns; /* 0: it is not */
};

struct arbiter {
    pthread_mutex_t lock; /* of everything below but the descriptors */
    pthread_t thread;
    int epoll_fd;
    int timer_fd;
    int change_fd;
    bool is_stopping;
    uint64_t wakes;
    int64_t swept_ns;
    struct policy policy;
    struct tenant_files files[POLICY_MAX_TENANTS];
    struct ring_state rings[POLICY_MAX_TENANTS];
};

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

/* Everything is edge-triggered: a FIFO whose last writer has gone would otherwise be reported for
 * ever. Arming again reports what is there already. */
static int watch(struct arbiter *arbiter, int operation, int fd, uint32_t tag, bool is_armed)
{
    struct epoll_event event = {.events = EPOLLET | (is_armed ? EPOLLIN : 0), .data.u32 = tag};
    return epoll_ctl(arbiter->epoll_fd, operation, fd, &event) == 0 ? 0 : -errno;
}

static void hear(struct arbiter *arbiter, uint32_t index, int64_t now_ns)
{
    struct ring_state *ring = &arbiter->rings[index];
    uint32_t bytes = tenant_files_drain(&arbiter->files[index]);
    if (now_ns - ring->counted_ns >= RING_PERIOD_NS) {
        ring->counted_ns = now_ns;
        ring->count = 0;
    }
    ring->count++;
    ring->rang |= bytes > 0;
    bool is_flood = bytes == TENANT_RING_BYTES || ring->count >= RINGS_A_PERIOD;
    ring->muted_until_ns = is_flood ? now_ns + RING_PERIOD_NS : 0;
}

static void hear_all(struct arbiter *arbiter, const struct epoll_event *events, int count)
{
    int64_t now_ns = clock_ns();
    for (int i = 0; i < count; i++) {
        uint32_t index = events[i].data.u32;
        /* It may have been removed, or silenced, after the kernel had queued this. */
        if (index != NOT_A_TENANT && arbiter->policy.tenants[index].is_present &&
            arbiter->rings[index].is_armed)
            hear(arbiter, index, now_ns);
    }
    for (int32_t i = 0; i < arbiter->policy.count; i++)
        if (arbiter->policy.tenants[i].is_present && arbiter->rings[i].muted_until_ns != 0 &&
            now_ns >= arbiter->rings[i].muted_until_ns)
            hear(arbiter, (uint32_t)i, now_ns);
}

/* Reads who may have news. Those that were idle at the last look ring before they want anything;
 * all are read now and then, should a ring have been lost. */
static void observe(struct arbiter *arbiter)
{
    struct policy *policy = &arbiter->policy;
    int64_t now_ns = clock_ns();
    bool everybody = now_ns - arbiter->swept_ns >= POLICY_LOOK_NS;
    if (everybody)
        arbiter->swept_ns = now_ns;
    for (int32_t i = 0; i < policy->count; i++) {
        const struct policy_tenant *tenant = &policy->tenants[i];
        struct ring_state *ring = &arbiter->rings[i];
        if (!tenant->is_present || !(everybody || ring->rang || tenant->is_active ||
                                     i == policy->holder || i == policy->next))
            continue;
        struct vgpu_usage_device usage;
        tenant_files_read(&arbiter->files[i], &usage);
        policy_set_weight(policy, i, tenant_files_weight(&arbiter->files[i]));
        policy_observe(policy, i, clock_ns(), &usage, ring->rang,
                       tenant_files_is_off(&arbiter->files[i]));
        ring->rang = false;
    }
}

static void publish(struct arbiter *arbiter, int64_t now_ns)
{
    for (int32_t i = 0; i < arbiter->policy.count; i++) {
        struct policy_tenant *tenant = &arbiter->policy.tenants[i];
        if (!tenant->is_present)
            continue;
        if (tenant->is_changed) {
            struct vgpu_grant grant = {
                .start_ns = (uint64_t)tenant->start_ns,
                .end_ns = (uint64_t)tenant->end_ns,
                .beat_ns = (uint64_t)now_ns,
                .mode = tenant->mode,
                .window = tenant->window,
            };
            tenant_files_publish(&arbiter->files[i], &grant);
            tenant->is_changed = false;
        } else if (tenant->mode >= VGPU_GRANT_WINDOWS) {
            tenant_files_beat(&arbiter->files[i], (uint64_t)now_ns);
        }
    }
}

/* Listens to those rings that may bring news. Returns when one that is muted is due, or `at_ns`. */
static int64_t arm_rings(struct arbiter *arbiter, int64_t now_ns, int64_t at_ns)
{
    for (int32_t i = 0; i < arbiter->policy.count; i++) {
        struct ring_state *ring = &arbiter->rings[i];
        if (!arbiter->policy.tenants[i].is_present)
            continue;
        bool listens = policy_listens(&arbiter->policy, i);
        bool is_armed = listens && ring->muted_until_ns == 0;
        if (is_armed != ring->is_armed) {
            watch(arbiter, EPOLL_CTL_MOD, arbiter->files[i].ring_fd, (uint32_t)i, is_armed);
            ring->is_armed = is_armed;
        }
        if (listens && !is_armed && ring->muted_until_ns < at_ns)
            at_ns = ring->muted_until_ns;
    }
    return at_ns;
}

static void set_timer(struct arbiter *arbiter, int64_t at_ns)
{
    struct itimerspec when = {0}; /* all zero: never */
    if (at_ns != POLICY_NEVER) {
        when.it_value.tv_sec = at_ns / SECOND_NS;
        when.it_value.tv_nsec = at_ns % SECOND_NS;
    }
    timerfd_settime(arbiter->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Looks at who has news, decides, and says so. Returns when to look again. */
static int64_t step(struct arbiter *arbiter)
{
    observe(arbiter);
    int64_t now_ns = clock_ns();
    int64_t at_ns = policy_step(&arbiter->policy, now_ns);
    publish(arbiter, now_ns);
    return arm_rings(arbiter, now_ns, at_ns);
}

static void *run(void *argument)
{
    struct arbiter *arbiter = argument;
    struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(arbiter->epoll_fd, events, EVENTS, -1);
        pthread_mutex_lock(&arbiter->lock);
        if (arbiter->is_stopping)
            break;
        arbiter->wakes++;
        hear_all(arbiter, events, count);
        set_timer(arbiter, step(arbiter));
        pthread_mutex_unlock(&arbiter->lock);
    }
    pthread_mutex_unlock(&arbiter->lock);
    return NULL;
}

static void release(struct arbiter *arbiter)
{
    int fds[] = {arbiter->epoll_fd, arbiter->timer_fd, arbiter->change_fd};
    for (unsigned i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pthread_mutex_destroy(&arbiter->lock);
    free(arbiter);
}

/* The process' signals are none of this thread's business. */
static int start_thread(struct arbiter *arbiter)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&arbiter->thread, NULL, run, arbiter);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_setname_np(arbiter->thread, "vgpu-arbiter");
    return -error;
}

int arbiter_start(struct arbiter **started)
{
    struct arbiter *arbiter = calloc(1, sizeof *arbiter);
    if (arbiter == NULL)
        return -ENOMEM;
    pthread_mutex_init(&arbiter->lock, NULL);
    policy_init(&arbiter->policy);
    arbiter->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    arbiter->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    arbiter->change_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int error = 0;
    if (arbiter->epoll_fd < 0 || arbiter->timer_fd < 0 || arbiter->change_fd < 0)
        error = -errno;
    if (error == 0)
        error = watch(arbiter, EPOLL_CTL_ADD, arbiter->timer_fd, NOT_A_TENANT, true);
    if (error == 0)
        error = watch(arbiter, EPOLL_CTL_ADD, arbiter->change_fd, NOT_A_TENANT, true);
    if (error == 0)
        error = start_thread(arbiter);
    if (error != 0)
        release(arbiter);
    else
        *started = arbiter;
    return error;
}

/* Ends a change: the thread is to look at it. */
static void unlock_and_wake(struct arbiter *arbiter)
{
    pthread_mutex_unlock(&arbiter->lock);
    eventfd_write(arbiter->change_fd, 1);
}

/* The caller holds the lock. */
static void let_go(struct arbiter *arbiter, int index)
{
    struct vgpu_grant own_cap = {.mode = VGPU_GRANT_NONE,
                                 .beat_ns = (uint64_t)clock_ns(),
                                 .window = arbiter->policy.tenants[index].window};
    tenant_files_publish(&arbiter->files[index], &own_cap);
    tenant_files_close(&arbiter->files[index]);
    policy_leave(&arbiter->policy, index);
}

void arbiter_stop(struct arbiter *arbiter)
{
    pthread_mutex_lock(&arbiter->lock);
    arbiter->is_stopping = true;
    unlock_and_wake(arbiter);
    pthread_join(arbiter->thread, NULL);
    for (int32_t i = 0; i < arbiter->policy.count; i++)
        if (arbiter->policy.tenants[i].is_present)
            let_go(arbiter, i);
    release(arbiter);
}

int arbiter_add(struct arbiter *arbiter, int limits_fd, int usage_fd, int ring_fd,
                uint32_t device_index)
{
    struct tenant_files files;
    int error = tenant_files_open(&files, limits_fd, usage_fd, ring_fd, device_index);
    if (error != 0)
        return error;
    pthread_mutex_lock(&arbiter->lock);
    int index = policy_join(&arbiter->policy, tenant_files_weight(&files), files.grant->window);
    error = index < 0 ? -ENOSPC : watch(arbiter, EPOLL_CTL_ADD, ring_fd, (uint32_t)index, true);
    if (error == 0) {
        arbiter->files[index] = files;
        arbiter->rings[index] = (struct ring_state){.is_armed = true, .rang = true};
        step(arbiter); /* its grant is there before anybody is told to look at it */
    } else {
        if (index >= 0)
            policy_leave(&arbiter->policy, index);
        tenant_files_give_back(&files);
    }
    unlock_and_wake(arbiter);
    return error == 0 ? index : error;
}

void arbiter_remove(struct arbiter *arbiter, int index)
{
    pthread_mutex_lock(&arbiter->lock);
    let_go(arbiter, index);
    unlock_and_wake(arbiter);
}

bool arbiter_withhold(struct arbiter *arbiter, int index, int64_t for_ns)
{
    pthread_mutex_lock(&arbiter->lock);
    int64_t now_ns = clock_ns();
    bool asks_in_vain = policy_asks_in_vain(&arbiter->policy, index, now_ns);
    policy_withhold(&arbiter->policy, index, now_ns + for_ns);
    unlock_and_wake(arbiter);
    return asks_in_vain;
}

void arbiter_count(struct arbiter *arbiter, struct arbiter_counters *counters)
{
    pthread_mutex_lock(&arbiter->lock);
    counters->wakes = arbiter->wakes;
    counters->windows = arbiter->policy.windows;
    counters->overruns = arbiter->policy.overruns;
    counters->longest_overrun_ns = arbiter->policy.longest_overrun_ns;
    counters->mode = arbiter->policy.mode;
    memcpy(counters->mode_ns, arbiter->policy.mode_ns, sizeof counters->mode_ns);
    if (arbiter->policy.stepped_ns != 0) /* an idle GPU makes no steps */
        counters->mode_ns[counters->mode] += clock_ns() - arbiter->policy.stepped_ns;
    pthread_mutex_unlock(&arbiter->lock);
}

void arbiter_count_tenant(struct arbiter *arbiter, int index,
                          struct arbiter_tenant_counters *counters)
{
    pthread_mutex_lock(&arbiter->lock);
    const struct policy_tenant *tenant = &arbiter->policy.tenants[index];
    counters->occupancy_ns = tenant->occupancy_ns;
    counters->windows = tenant->window_count;
    counters->is_active = tenant->is_active;
    counters->wanted_part = tenant->is_active ? demand_wanted(&tenant->demand) : 0;
    pthread_mutex_unlock(&arbiter->lock);
}
