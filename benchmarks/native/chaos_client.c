/* A tenant of `chaos`: takes and gives odd pieces of memory, launches, and looks whether its slice is
 * what it was told. What is wrong it says on a board (chaos_client.h). An error of the driver ends it
 * with 3, after the error is on the board.
 *
 * usage: chaos_client BOARD SEAT LIMIT_BYTES ROOM_BYTES SEED. ROOM_BYTES: the most that it may hold, so
 * that no refusal is right. */
#include <fcntl.h>
#include <sys/mman.h>

#include "chaos_client.h"
#include "client.h"

#define PIECES 8
#define MARK_BYTES 256u
#define BEYOND_BYTES (1u << 20)
#define SPIN_NS 100000
#define PAUSE_US 200000
#define STILL_US 20000
#define TRY_BEYOND_IN 20

struct piece {
    CUdeviceptr address;
    unsigned char mark;
};

struct tenant {
    struct chaos_board *board;
    struct chaos_seat *seat;
    uint64_t limit_bytes, room_bytes;
    unsigned int seed;
    struct piece pieces[PIECES];
    CUfunction spin;
};

static void end_with(struct tenant *me, int code, const char *call)
{
    strncpy(me->seat->call, call, sizeof me->seat->call - 1);
    atomic_store(&me->seat->code, (uint32_t)code);
    exit(3);
}

#define DO(me, function, ...) \
    do { \
        int code_ = function(__VA_ARGS__); \
        if (code_ != CUDA_SUCCESS) \
            end_with(me, code_, #function); \
    } while (0)

static void say_wrong(struct tenant *me, enum chaos_wrong wrong, uint64_t wanted, uint64_t seen)
{
    if (atomic_load(&me->seat->wrong) != CHAOS_NOTHING)
        return;
    atomic_store(&me->seat->wanted, wanted);
    atomic_store(&me->seat->seen, seen);
    atomic_store(&me->seat->wrong, wrong);
}

static void look(struct tenant *me)
{
    size_t free_bytes, total_bytes;
    DO(me, cuMemGetInfo_v2, &free_bytes, &total_bytes);
    if (total_bytes != me->limit_bytes)
        say_wrong(me, CHAOS_OTHER_TOTAL, me->limit_bytes, total_bytes);
}

static void take(struct tenant *me, struct piece *piece)
{
    size_t size = (size_t)rand_r(&me->seed) % (me->room_bytes / PIECES) + 1;
    size += size < MARK_BYTES ? MARK_BYTES : 0;
    int code = cuMemAlloc_v2(&piece->address, size);
    if (code == CUDA_ERROR_OUT_OF_MEMORY)
        say_wrong(me, CHAOS_REFUSED, size, 0);
    if (code != CUDA_SUCCESS)
        end_with(me, code, "cuMemAlloc_v2");
    piece->mark = (unsigned char)rand_r(&me->seed);
    DO(me, cuMemsetD8_v2, piece->address, piece->mark, MARK_BYTES);
}

static void give(struct tenant *me, struct piece *piece)
{
    unsigned char found[MARK_BYTES];
    DO(me, cuMemcpyDtoH_v2, found, piece->address, sizeof found);
    for (size_t i = 0; i < sizeof found; i++)
        if (found[i] != piece->mark)
            say_wrong(me, CHAOS_OTHER_CONTENT, piece->mark, found[i]);
    DO(me, cuMemFree_v2, piece->address);
    piece->address = 0;
}

static void try_beyond(struct tenant *me)
{
    CUdeviceptr address;
    int code = cuMemAlloc_v2(&address, me->limit_bytes + BEYOND_BYTES);
    if (code == CUDA_SUCCESS)
        say_wrong(me, CHAOS_BEYOND, me->limit_bytes, me->limit_bytes + BEYOND_BYTES);
    else if (code != CUDA_ERROR_OUT_OF_MEMORY)
        end_with(me, code, "cuMemAlloc_v2");
}

static void launch(struct tenant *me)
{
    struct client_spin spin = client_spin(SPIN_NS, 0, 1, 1);
    void *parameters[] = CLIENT_SPIN_PARAMS(spin);
    DO(me, cuLaunchKernel, me->spin, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL);
    DO(me, cuCtxSynchronize, );
}

/* Keeps what it has. It looks first, so that the ledger is rid of those who died. */
static void stand_still(struct tenant *me, uint32_t pause)
{
    look(me);
    atomic_store(&me->seat->stands, pause);
    while (atomic_load(&me->board->pause) == pause)
        usleep(STILL_US);
}

static void begin(struct tenant *me)
{
    CUcontext context;
    CUmodule module;
    DO(me, cuInit, 0);
    DO(me, cuDevicePrimaryCtxRetain, &context, 0);
    DO(me, cuCtxSetCurrent, context);
    DO(me, cuModuleLoadData, &module, CLIENT_PTX_BEGIN CLIENT_PTX_SPIN);
    DO(me, cuModuleGetFunction, &me->spin, module, "spin_ns");
}

int main(int count, char **words)
{
    struct tenant me = {0};
    int file = count == 6 ? open(words[1], O_RDWR | O_CLOEXEC) : -1;
    me.board = mmap(NULL, sizeof *me.board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || me.board == MAP_FAILED) {
        perror("chaos_client: board");
        return 2;
    }
    me.seat = &me.board->seats[strtoul(words[2], NULL, 10) % CHAOS_SEATS];
    me.limit_bytes = strtoull(words[3], NULL, 10);
    me.room_bytes = strtoull(words[4], NULL, 10);
    me.seed = (unsigned int)strtoul(words[5], NULL, 10);
    begin(&me);
    for (;;) {
        uint32_t pause = atomic_load(&me.board->pause);
        if (pause != 0)
            stand_still(&me, pause);
        struct piece *piece = &me.pieces[rand_r(&me.seed) % PIECES];
        if (piece->address)
            give(&me, piece);
        else
            take(&me, piece);
        if (rand_r(&me.seed) % TRY_BEYOND_IN == 0)
            try_beyond(&me);
        launch(&me);
        look(&me);
        atomic_fetch_add(&me.seat->loops, 1);
        usleep((useconds_t)rand_r(&me.seed) % PAUSE_US + STILL_US);
    }
}
