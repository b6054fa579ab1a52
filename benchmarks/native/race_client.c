/* One of many processes that take and give device memory of every kind as fast as they can, for
 * `memory-race` and `crash`. It works on a board that all of them map (race_board.h): whoever runs
 * them says there when to stand still and when to stop.
 *
 * usage: race_client BOARD INDEX. A refusal for want of memory is an answer like any other; any
 * other error ends the process with 1 and a line on stderr. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "race_client.h"

#define STANDING_STILL_US 200

static struct race_board *board;
static struct race_seat *seat;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void race_publish(const CUipcMemHandle *handle)
{
    memcpy(&seat->handle, handle, sizeof *handle);
    atomic_store(&seat->handle_number, seat->handle_number + 1);
}

bool race_look_at(unsigned int other, CUipcMemHandle *handle)
{
    struct race_seat *peer = &board->seats[other % RACE_SEATS];
    uint32_t number = atomic_load(&peer->handle_number);
    memcpy(handle, &peer->handle, sizeof *handle);
    return peer != seat && number != 0 && number == atomic_load(&peer->handle_number);
}

bool race_allowed(int result, const char *call)
{
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&seat->granted, 1);
        return true;
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        fprintf(stderr, "race_client: %s answered %d\n", call, result);
        exit(1);
    }
    atomic_fetch_add(&seat->refused, 1);
    return false;
}

/* Keeps nothing that it does not use, and waits for the end of pause number `pause`: by the number
 * nobody takes one who has yet to wake from the last pause for one who stands in this. */
static void stand_still(struct race *race, uint32_t pause)
{
    race_give_all(race);
    race_trim(race);
    atomic_store(&seat->stands, pause);
    while (atomic_load(&board->pause) == pause && !atomic_load(&board->stop))
        usleep(STANDING_STILL_US);
}

static void step(struct race *race)
{
    uint64_t begun_ns = now_ns();
    struct race_piece *piece = &race->pieces[race_below(race, RACE_PIECES)];
    if (piece->kind == RACE_NOTHING)
        race_take(race, piece);
    else
        race_give(race, piece);
    uint64_t took_ns = now_ns() - begun_ns;
    if (took_ns > atomic_load(&seat->slowest_ns))
        atomic_store(&seat->slowest_ns, took_ns);
    atomic_fetch_add(&seat->steps, 1);
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    unsigned int index = (unsigned int)atoi(arguments[2]);
    int file = open(arguments[1], O_RDWR | O_CLOEXEC);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file < 0 || board == MAP_FAILED || index >= RACE_SEATS) {
        perror("race_client: board");
        return 2;
    }
    seat = &board->seats[index];
    struct race race = {.seed = (unsigned int)now_ns() ^ index, .index = index};
    if (!race_begin(&race))
        return 0; /* no room for a context: as good an answer as any */
    while (!atomic_load(&board->stop)) {
        uint32_t pause = atomic_load(&board->pause);
        if (pause != 0)
            stand_still(&race, pause);
        else
            step(&race);
    }
    race_give_all(&race);
    return 0;
}
