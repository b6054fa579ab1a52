/* Threads race over the books of handles and mappings, with a driver of our own below that gives
 * numbers out again at once.
 *
 *   vmm_race proper|misuse ROUNDS SEED
 *
 * proper: every thread uses what it made. Whenever all stand still, exactly what the driver keeps
 * is charged. misuse: all threads use all numbers and addresses. Never does the driver keep more
 * than is charged, which is asked at every byte given back. */
#include <stdint.h>
#include <string.h>

#include "vmm_fixture.h"

#define THREADS 8
#define SLOTS 8 /* of each thread; places for mappings */
#define SLOT_BYTES 100u
#define NUMBERS 64
#define OFFSETS 3
#define STEPS 1000 /* of a round: then all stand still */

/* ---- the driver ---- */

struct memory {
    int references, uses; /* both 0: the number is free */
    uint64_t bytes;       /* 0: a multicast object */
    int bound[OFFSETS];   /* numbers of memory, in an object */
};

static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
static struct memory memories[NUMBERS]; /* by number; 0 is none */
static int slots[THREADS * SLOTS];      /* numbers */
static uint64_t driver_bytes;
static uint64_t charged_bytes;

static void drop(int number)
{
    struct memory *memory = &memories[number];
    if (memory->references > 0 || memory->uses > 0)
        return;
    driver_bytes -= memory->bytes;
    for (int i = 0; i < OFFSETS && memory->bytes == 0; i++) {
        int bound = memory->bound[i];
        memory->bound[i] = 0;
        if (bound != 0) {
            memories[bound].uses--;
            drop(bound);
        }
    }
}

static int driver_create(uint64_t bytes)
{
    for (int number = 1; number < NUMBERS; number++)
        if (memories[number].references == 0 && memories[number].uses == 0) {
            memories[number] = (struct memory){.references = 1, .bytes = bytes};
            driver_bytes += bytes;
            return number;
        }
    return 0;
}

static bool driver_release(int number)
{
    if (memories[number].references == 0)
        return false;
    memories[number].references--;
    drop(number);
    return true;
}

static bool driver_use(int *place, int number)
{
    if (*place != 0 || memories[number].references == 0)
        return false;
    memories[number].uses++;
    *place = number;
    return true;
}

static bool driver_unuse(int *place)
{
    int number = *place;
    *place = 0;
    if (number == 0)
        return false;
    memories[number].uses--;
    drop(number);
    return true;
}

static bool driver_unmap(int slot, int count)
{
    for (int i = 0; i < count; i++)
        if (slots[slot + i] == 0)
            return false;
    for (int i = 0; i < count; i++)
        driver_unuse(&slots[slot + i]);
    return true;
}

static int driver_retain(int slot)
{
    if (slots[slot] != 0)
        memories[slots[slot]].references++;
    return slots[slot];
}

static bool driver_bind(int object, int offset, int number)
{
    return memories[object].references > 0 && memories[object].bytes == 0 &&
           memories[number].bytes > 0 && driver_use(&memories[object].bound[offset], number);
}

/* ---- the ledger ---- */

void charge_cancel(const struct charge *charge)
{
    if (charge->device < 0)
        return;
    pthread_mutex_lock(&driver);
    charged_bytes -= charge->bytes;
    CHECK(charged_bytes >= driver_bytes, "the driver keeps %llu bytes, %llu are charged",
          (unsigned long long)driver_bytes, (unsigned long long)charged_bytes);
    pthread_mutex_unlock(&driver);
}

/* ---- the hooks ---- */

static __thread uint64_t random_state;

static uint64_t roll(uint64_t sides)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % sides;
}

/* Others take a step meanwhile. To yield the processor would be to wait for all other programs. */
static void dawdle(void)
{
    for (volatile uint64_t turns = roll(3) * 1000; turns > 0; turns--)
        ;
}

#define DRIVER(result, call) \
    do { \
        dawdle(); \
        pthread_mutex_lock(&driver); \
        result = (call); \
        pthread_mutex_unlock(&driver); \
        dawdle(); \
    } while (0)

static uint64_t address_of(int slot)
{
    return 1000 + (uint64_t)slot * SLOT_BYTES;
}

static int create(uint64_t bytes)
{
    struct charge charge = {.device = bytes > 0 ? 0 : CHARGE_NONE, .bytes = bytes};
    int number;
    pthread_mutex_lock(&driver);
    charged_bytes += bytes;
    pthread_mutex_unlock(&driver);
    struct vmm_record *record = bytes > 0 ? vmm_create_begin(&charge) : vmm_object_begin();
    DRIVER(number, driver_create(bytes));
    if (bytes > 0)
        vmm_create_end(record, (uint64_t)number, number != 0);
    else
        vmm_object_end(record, (uint64_t)number, number != 0);
    return number;
}

static void release(int number)
{
    bool done;
    struct vmm_record *record = vmm_release_begin((uint64_t)number);
    DRIVER(done, driver_release(number));
    vmm_release_end(record, done);
}

static void map(int slot, int number)
{
    bool done;
    struct vmm_call call;
    struct vmm_place place = {VMM_MAPPING, 0, address_of(slot), SLOT_BYTES};
    CHECK(vmm_use_begin(&call, place, (uint64_t)number), "no host memory");
    DRIVER(done, driver_use(&slots[slot], number));
    vmm_use_end(&call, done);
}

static void unmap(int slot, int count)
{
    bool done;
    uint64_t before = vmm_now();
    DRIVER(done, driver_unmap(slot, count));
    if (done)
        vmm_unmapped(address_of(slot), (uint64_t)count * SLOT_BYTES, before);
}

static int retain(int slot)
{
    int number;
    struct vmm_call call;
    CHECK(vmm_retain_begin(&call, address_of(slot) + 1), "no host memory");
    DRIVER(number, driver_retain(slot));
    vmm_retain_end(&call, (uint64_t)number, number != 0);
    return number;
}

static void bind(int object, int offset, int number)
{
    bool done;
    struct vmm_call call;
    CHECK(vmm_bind_begin(&call, (uint64_t)object, (uint64_t)offset * SLOT_BYTES, SLOT_BYTES,
                         (uint64_t)number),
          "no host memory");
    DRIVER(done, driver_bind(object, offset, number));
    vmm_bind_end(&call, done);
}

static void bind_address(int object, int offset, int slot)
{
    bool done;
    struct vmm_call call;
    CHECK(vmm_bind_address_begin(&call, (uint64_t)object, (uint64_t)offset * SLOT_BYTES, SLOT_BYTES,
                                 address_of(slot)),
          "no host memory");
    /* the driver takes what is mapped there, its handle released or not */
    DRIVER(done,
           slots[slot] != 0 && memories[object].references > 0 && memories[object].bytes == 0 &&
               memories[object].bound[offset] == 0 && memories[slots[slot]].bytes > 0 &&
               (memories[slots[slot]].uses++, memories[object].bound[offset] = slots[slot], true));
    vmm_bind_address_end(&call, done);
}

static void unbind(int object, int offset)
{
    bool done;
    uint64_t before = vmm_now();
    DRIVER(done, memories[object].references > 0 && memories[object].bytes == 0 &&
                     driver_unuse(&memories[object].bound[offset]));
    if (done)
        vmm_unbind((uint64_t)object, (uint64_t)offset * SLOT_BYTES, SLOT_BYTES, 0, before);
}

/* ---- the program ---- */

struct program {
    pthread_t thread;
    int index;
    uint64_t seed;
    int handles[SLOTS]; /* references it holds: numbers */
    int object;
};

static bool misuse;
static int rounds;
static pthread_barrier_t barrier;

static int *pick(struct program *program, bool wanted)
{
    for (int tries = 0; tries < 4; tries++) {
        int *handle = &program->handles[roll(SLOTS)];
        if ((*handle != 0) == wanted)
            return handle;
    }
    return NULL;
}

static void step_properly(struct program *program)
{
    int slot = program->index * SLOTS + (int)roll(SLOTS);
    int offset = (int)roll(OFFSETS);
    int *empty = pick(program, false);
    int *held = pick(program, true);
    switch (roll(9)) {
    case 0:
        if (empty != NULL)
            *empty = create(1 + roll(SLOT_BYTES));
        break;
    case 1:
        if (held != NULL) {
            release(*held);
            *held = 0;
        }
        break;
    case 2 ... 3:
        if (held != NULL)
            map(slot, *held);
        break;
    case 4:
        unmap(slot, 1 + (int)roll((uint64_t)((program->index + 1) * SLOTS - slot)) / 3);
        break;
    case 5:
        if (empty != NULL)
            *empty = retain(slot);
        break;
    case 6:
        if (program->object == 0)
            program->object = create(0);
        else if (held != NULL)
            bind(program->object, offset, *held);
        break;
    case 7:
        if (program->object != 0)
            bind_address(program->object, offset, slot);
        break;
    default:
        if (program->object != 0 && roll(4) > 0) {
            unbind(program->object, offset);
        } else if (program->object != 0) {
            release(program->object);
            program->object = 0;
        }
    }
}

static void step_badly(void)
{
    int slot = (int)roll(4);
    int number = 1 + (int)roll(4);
    int object = 1 + (int)roll(4);
    switch (roll(9)) {
    case 0 ... 1:
        create(roll(4) > 0 ? 1 + roll(SLOT_BYTES) : 0);
        break;
    case 2 ... 3:
        release(number);
        break;
    case 4:
        map(slot, number);
        break;
    case 5:
        unmap(slot, 1 + (int)roll((uint64_t)(5 - slot)) / 2);
        break;
    case 6:
        retain(slot);
        break;
    case 7:
        if (roll(2) > 0)
            bind(object, (int)roll(OFFSETS), number);
        else
            bind_address(object, (int)roll(OFFSETS), slot);
        break;
    default:
        unbind(object, (int)roll(OFFSETS));
    }
}

static void give_all_back(struct program *program)
{
    for (int i = 0; i < SLOTS; i++) {
        unmap(program->index * SLOTS + i, 1);
        if (program->handles[i] != 0)
            release(program->handles[i]);
    }
    if (program->object != 0)
        release(program->object);
}

static void *run(void *argument)
{
    struct program *program = argument;
    random_state = program->seed;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < STEPS; i++)
            if (misuse)
                step_badly();
            else
                step_properly(program);
        if (round == rounds - 1 && !misuse)
            give_all_back(program);
        pthread_barrier_wait(&barrier);
        CHECK(misuse ? charged_bytes >= driver_bytes : charged_bytes == driver_bytes,
              "round %d: the driver keeps %llu bytes, %llu are charged", round,
              (unsigned long long)driver_bytes, (unsigned long long)charged_bytes);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 4, "vmm_race proper|misuse ROUNDS SEED");
    misuse = strcmp(argv[1], "misuse") == 0;
    rounds = atoi(argv[2]);
    struct program programs[THREADS] = {0};
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        programs[i].index = i;
        programs[i].seed = (strtoull(argv[3], NULL, 10) + (uint64_t)i + 1) * 0x9e3779b97f4a7c15u;
        CHECK(pthread_create(&programs[i].thread, NULL, run, &programs[i]) == 0, "a thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(programs[i].thread, NULL);
    CHECK(misuse || charged_bytes == 0, "%llu bytes are left", (unsigned long long)charged_bytes);
    printf("%d\n", THREADS * STEPS * rounds);
    return 0;
}
