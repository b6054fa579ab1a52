/* The books of handles and mappings, one order of events at a time.
 *
 *   vmm_books            names the cases
 *   vmm_books CASE       exits 1 with the sentence that does not hold
 *
 * Every case plays program and driver: what it calls between a _begin and its _end is what other
 * threads do while the driver is at work. */
#include <string.h>

#include "memory/vmm/sparse_array.h"
#include "memory/vmm/vmm_books.h"
#include "vmm_fixture.h"

#define PIECE 100u
#define OBJECT 50u

static uint64_t charged;

void charge_cancel(const struct charge *charge)
{
    if (charge->device < 0)
        return;
    CHECK(charged >= charge->bytes, "more is given back than was taken");
    charged -= charge->bytes;
}

#define CHARGED(bytes) \
    CHECK(charged == (bytes), "%llu charged, not %llu", (unsigned long long)charged, \
          (unsigned long long)(bytes))

static struct charge take(uint64_t bytes)
{
    charged += bytes;
    return (struct charge){.device = 0, .kind = 4, .bytes = bytes};
}

static void create(uint64_t handle, uint64_t bytes)
{
    struct charge charge = take(bytes);
    vmm_create_end(vmm_create_begin(&charge), handle, true);
}

static void release(uint64_t handle)
{
    vmm_release_end(vmm_release_begin(handle), true);
}

static struct vmm_place mapping(uint64_t address, uint64_t bytes)
{
    return (struct vmm_place){VMM_MAPPING, 0, address, bytes};
}

static void map(uint64_t address, uint64_t bytes, uint64_t handle)
{
    struct vmm_call call;
    CHECK(vmm_use_begin(&call, mapping(address, bytes), handle), "no host memory");
    vmm_use_end(&call, true);
}

static void unmap(uint64_t address, uint64_t bytes)
{
    vmm_unmapped(address, bytes, vmm_now());
}

static void retain(uint64_t address, uint64_t handle)
{
    struct vmm_call call;
    CHECK(vmm_retain_begin(&call, address), "no host memory");
    vmm_retain_end(&call, handle, true);
}

/* ---- one thread ---- */

static void memory_stays_charged_until_it_is_released_and_unmapped(void)
{
    create(1, PIECE);
    map(1000, PIECE, 1);
    map(2000, PIECE, 1);
    release(1);
    unmap(1000, PIECE);
    CHARGED(PIECE);
    unmap(2000, PIECE);
    CHARGED(0);
    create(1, PIECE);
    map(1000, PIECE, 1);
    unmap(1000, PIECE);
    CHARGED(PIECE);
    release(1);
    CHARGED(0);
}

static void one_unmapping_ends_all_mappings_within_it_and_no_other(void)
{
    for (uint64_t i = 0; i < 6; i++) {
        create(1 + i, PIECE);
        map(1000 + i * PIECE, PIECE, 1 + i);
        release(1 + i);
    }
    unmap(1000 + PIECE, 3 * PIECE);
    CHARGED(3 * PIECE);
    unmap(1000 + PIECE, 3 * PIECE);
    unmap(1000, PIECE / 2); /* no mapping lies within it */
    CHARGED(3 * PIECE);
    unmap(1000, PIECE);
    unmap(1000 + 4 * PIECE, 2 * PIECE);
    CHARGED(0);
}

static void what_the_driver_refuses_leaves_nothing(void)
{
    struct charge charge = take(PIECE);
    vmm_create_end(vmm_create_begin(&charge), 0, false);
    CHARGED(0);
    create(1, PIECE);
    vmm_release_end(vmm_release_begin(1), false);
    CHARGED(PIECE);
    struct vmm_call call;
    CHECK(vmm_use_begin(&call, mapping(1000, PIECE), 1), "no host memory");
    vmm_use_end(&call, false);
    CHECK(vmm_use_begin(&call, mapping(1000, PIECE), 77), "no host memory");
    vmm_use_end(&call, false);
    CHECK(vmm_retain_begin(&call, 1000), "no host memory");
    vmm_retain_end(&call, 0, false);
    CHECK(vmm_bind_begin(&call, 88, 0, PIECE, 1), "no host memory");
    vmm_bind_end(&call, false);
    release(1);
    CHARGED(0);
    CHECK(vmm_release_begin(77) == NULL && vmm_release_begin(88) == NULL, "unknown is known");
}

static void a_retained_handle_keeps_the_memory(void)
{
    create(1, PIECE);
    map(1000, PIECE, 1);
    retain(1000 + PIECE - 1, 1);
    unmap(1000, PIECE);
    release(1);
    CHARGED(PIECE);
    release(1);
    CHARGED(0);
}

static void another_number_for_the_same_memory_keeps_it(void)
{
    create(1, PIECE);
    map(1000, PIECE, 1);
    retain(1050, 2);
    retain(1050, 2);
    release(1);
    unmap(1000, PIECE);
    map(3000, PIECE, 2);
    release(2);
    release(2);
    CHARGED(PIECE);
    unmap(3000, PIECE);
    CHARGED(0);
}

static void memory_of_the_host_is_known_and_not_charged(void)
{
    struct charge none = {.device = CHARGE_NONE, .bytes = PIECE};
    vmm_create_end(vmm_create_begin(&none), 1, true);
    map(1000, PIECE, 1);
    release(1);
    unmap(1000, PIECE);
    CHARGED(0);
}

static void many_pieces_are_found_again(void)
{
    enum { COUNT = 6000 };
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t handle = 1 + i * 7919 % COUNT;
        create(handle, PIECE);
        map(1000 + handle * PIECE, PIECE, handle);
    }
    for (uint64_t i = 0; i < COUNT; i++)
        release(1 + i);
    CHARGED((uint64_t)COUNT * PIECE);
    unmap(1000, (COUNT / 2 + 1) * PIECE); /* the lowest of them is at 1000 + PIECE */
    CHARGED((uint64_t)COUNT / 2 * PIECE);
    unmap(1000, (uint64_t)2 * COUNT * PIECE);
    CHARGED(0);
}

/* ---- threads that meet ---- */

static void a_number_given_out_again_before_the_old_end_is_told_is_new_memory(void)
{
    create(1, PIECE);
    struct vmm_record *old = vmm_release_begin(1);
    create(1, 7); /* the driver has released it, the other thread not said so yet */
    vmm_release_end(old, true);
    CHARGED(7);
    map(1000, 7, 1);
    release(1);
    CHARGED(7);
    unmap(1000, 7);
    CHARGED(0);
}

static void a_mapping_of_a_number_that_is_given_out_meanwhile_keeps_the_new_memory(void)
{
    struct vmm_call call;
    struct charge charge = take(PIECE);
    struct vmm_record *record = vmm_create_begin(&charge);
    CHECK(vmm_use_begin(&call, mapping(1000, PIECE), 1), "no host memory");
    vmm_use_end(&call, true);
    vmm_create_end(record, 1, true);
    release(1);
    CHARGED(PIECE);
    unmap(1000, PIECE);
    CHARGED(0);
}

static void a_mapping_under_way_while_its_number_changes_hands_keeps_both(void)
{
    struct vmm_call call;
    create(1, PIECE);
    struct vmm_record *old = vmm_release_begin(1);
    CHECK(vmm_use_begin(&call, mapping(1000, PIECE), 1), "no host memory");
    create(1, 7);
    vmm_release_end(old, true);
    vmm_use_end(&call, true);
    release(1);
    CHARGED(PIECE + 7);
    unmap(1000, PIECE);
    CHARGED(0);
}

static void a_mapping_made_while_another_is_unmapped_there_stays(void)
{
    create(1, PIECE);
    create(2, 7);
    map(1000, PIECE, 1);
    release(1);
    uint64_t before = vmm_now();
    map(1000, 7, 2); /* the driver has unmapped the first, the other thread not said so yet */
    release(2);
    vmm_unmapped(1000, PIECE, before);
    CHARGED(7);
    unmap(1000, PIECE);
    CHARGED(0);
}

static void what_is_unmapped_while_it_is_retained_stays(void)
{
    struct vmm_call call;
    struct vmm_call other;
    create(1, PIECE);
    map(1000, PIECE, 1);
    release(1);
    CHECK(vmm_retain_begin(&call, 1000) && vmm_retain_begin(&other, 1001), "no host memory");
    unmap(1000, PIECE);
    vmm_retain_end(&other, 0, false);
    CHARGED(PIECE);
    vmm_retain_end(&call, 1, true);
    CHARGED(PIECE);
    release(1);
    CHARGED(0);
}

static void what_is_unmapped_while_somebody_asks_in_vain_ends(void)
{
    struct vmm_call call;
    create(1, PIECE);
    map(1000, PIECE, 1);
    release(1);
    CHECK(vmm_retain_begin(&call, 1000), "no host memory");
    unmap(1000, PIECE);
    vmm_retain_end(&call, 0, false);
    CHARGED(0);
}

static void the_last_of_two_releases_ends_it(void)
{
    create(1, PIECE);
    map(1000, PIECE, 1);
    retain(1000, 1);
    unmap(1000, PIECE);
    struct vmm_record *one = vmm_release_begin(1);
    struct vmm_record *other = vmm_release_begin(1);
    vmm_release_end(one, true);
    CHARGED(PIECE);
    vmm_release_end(other, true);
    CHARGED(0);
}

/* ---- multicast ---- */

static void make_object(uint64_t handle)
{
    vmm_object_end(vmm_object_begin(), handle, true);
}

static void bind(uint64_t object, uint64_t offset, uint64_t handle)
{
    struct vmm_call call;
    CHECK(vmm_bind_begin(&call, object, offset, PIECE, handle), "no host memory");
    vmm_bind_end(&call, true);
}

static void bound_memory_stays_until_it_is_unbound(void)
{
    make_object(OBJECT);
    create(1, PIECE);
    bind(OBJECT, 0, 1);
    release(1);
    vmm_unbind(OBJECT, 0, PIECE, 1, vmm_now()); /* of another device */
    vmm_unbind(OBJECT, PIECE, PIECE, 0, vmm_now());
    CHARGED(PIECE);
    vmm_unbind(OBJECT, 0, PIECE, 0, vmm_now());
    CHARGED(0);
    release(OBJECT);
    CHECK(vmm_release_begin(OBJECT) == NULL, "the object is still known");
}

static void bound_memory_stays_until_the_object_is_released_and_unmapped(void)
{
    struct vmm_call call;
    make_object(OBJECT);
    create(1, PIECE);
    create(2, PIECE);
    map(1000, PIECE, 2);
    bind(OBJECT, 0, 1);
    CHECK(vmm_bind_address_begin(&call, OBJECT, PIECE, PIECE, 1000), "no host memory");
    unmap(1000, PIECE); /* by another thread, after the driver bound it */
    release(1);
    release(2);
    vmm_bind_address_end(&call, true);
    map(5000, 2 * PIECE, OBJECT);
    release(OBJECT);
    CHARGED(2 * PIECE);
    unmap(5000, 2 * PIECE);
    CHARGED(0);
}

static void what_is_bound_to_an_object_that_nobody_counts_stays(void)
{
    create(1, PIECE);
    bind(77, 0, 1);
    release(1);
    release(77);
    CHARGED(PIECE);
    vmm_unbind(77, 0, PIECE, 0, vmm_now());
    CHARGED(0);
}

/* ---- tiles ---- */

static void a_tile_stays_until_its_stream_is_done_or_its_array_ends(void)
{
    struct vmm_place tile = {VMM_TILE, 4000, 3, 9};
    struct vmm_place other = {VMM_TILE, 4000, 3, 8};
    struct vmm_call calls[2];
    create(1, PIECE);
    create(2, 7);
    CHECK(vmm_use_begin(&calls[0], tile, 1) && vmm_use_begin(&calls[1], other, 2), "no memory");
    vmm_use_end(&calls[0], true);
    vmm_use_end(&calls[1], true);
    release(1);
    release(2);
    uint64_t early = vmm_now();
    vmm_tile_leaves(tile, vmm_now(), 5);
    vmm_stream_done(5, early);
    vmm_stream_done(6, vmm_now());
    CHARGED(PIECE + 7);
    vmm_stream_done(5, vmm_now());
    CHARGED(7);
    vmm_array_ended(4001);
    CHARGED(7);
    vmm_array_ended(4000);
    CHARGED(0);
}

static struct vmm_place tile_of(uint64_t array)
{
    return (struct vmm_place){VMM_TILE, sparse_array_life(array), 3, 9};
}

static void put_into_array(uint64_t array, uint64_t handle, uint64_t bytes)
{
    struct vmm_call call;
    create(handle, bytes);
    CHECK(vmm_use_begin(&call, tile_of(array), handle), "no host memory");
    vmm_use_end(&call, true);
    release(handle);
}

/* As hooks do that destroy an array: taken out before the driver is called, ended after. */
static void destroyed(const struct allocation *array)
{
    ((struct charge_owner *)array->owner)->release(array->owner, array);
}

static void an_array_takes_its_tiles_along_and_not_those_of_its_successor(void)
{
    struct allocation array;
    sparse_array_made(4000);
    put_into_array(4000, 1, PIECE);
    put_into_array(4096, 2, 20);
    CHECK(allocation_map_take(SPACE_ARRAY, 4000, &array), "the array is not in the map");
    put_into_array(4000, 3, 7); /* the handle was given out again */
    destroyed(&array);
    CHARGED(20 + 7);
    CHECK(allocation_map_take(SPACE_ARRAY, 4000, &array), "its successor is not in the map");
    destroyed(&array);
    CHARGED(20);
}

static CUresult current_context(CUcontext *context)
{
    *context = (CUcontext)(uintptr_t)512;
    return CUDA_SUCCESS;
}

static void a_context_takes_its_arrays_along(void)
{
    struct allocation array;
    struct allocation_walk walk = {0};
    real.cuCtxGetCurrent = current_context;
    sparse_array_made(4000);
    put_into_array(4000, 1, PIECE);
    CHECK(allocation_map_take_of_context(512, &walk, &array), "not of its context");
    destroyed(&array);
    CHARGED(0);
}

static void an_ordinary_array_keeps_its_charge(void)
{
    struct allocation ordinary = {.address = 4000, .bytes = PIECE, .kind = 5, .space = SPACE_ARRAY};
    struct allocation found;
    CHECK(allocation_map_insert(&ordinary, &found), "no host memory");
    CHECK(sparse_array_life(4000) == 0 && sparse_array_life(0) == 0, "it has a life");
    sparse_array_made(4000);
    CHECK(allocation_map_find(SPACE_ARRAY, 4000, &found) && found.bytes == PIECE &&
              found.owner == NULL,
          "its entry has changed");
}

/* ---- owners ---- */

static uint64_t released_bytes;

static void on_release(struct charge_owner *owner, const struct allocation *allocation)
{
    CHECK(allocation->owner == owner && allocation->address == 1, "whose release is it");
    vmm_now(); /* no lock is held */
    released_bytes += allocation->bytes;
}

static void an_owner_is_told_in_place_of_the_ledger(void)
{
    struct charge_owner owner = {on_release};
    uint64_t bytes = 0;
    int device = -1;
    create(1, PIECE);
    CHECK(!vmm_hand_over(2, &owner, &bytes, &device), "an unknown handle was handed over");
    CHECK(vmm_hand_over(1, &owner, &bytes, &device), "not handed over");
    CHECK(!vmm_hand_over(1, &owner, &bytes, &device), "handed over twice");
    CHECK(bytes == PIECE && device == 0, "what was handed over");
    map(1000, PIECE, 1);
    release(1);
    CHECK(released_bytes == 0, "released while mapped");
    unmap(1000, PIECE);
    CHECK(released_bytes == PIECE, "not released");
    CHARGED(PIECE);
}

static void an_imported_handle_is_one_more_reference_or_memory_of_its_own(void)
{
    struct charge_owner owner = {on_release};
    struct charge charge = take(PIECE);
    CHECK(vmm_adopt(1, &charge, &owner), "an import that is not known");
    CHECK(!vmm_adopt(1, &charge, NULL), "one more of the same");
    release(1);
    CHECK(released_bytes == 0, "released with a reference left");
    struct vmm_record *last = vmm_release_begin(1);
    struct charge again = take(7);
    CHECK(vmm_adopt(1, &again, NULL), "its last reference may have gone already");
    vmm_release_end(last, true);
    CHECK(released_bytes == PIECE, "the first has ended");
    release(1);
    CHARGED(PIECE); /* the owner's */
}

static void a_forked_child_starts_empty(void)
{
    create(1, PIECE);
    map(1000, PIECE, 1);
    vmm_after_fork();
    CHECK(vmm_release_begin(1) == NULL, "the parent's handle is known");
    unmap(1000, PIECE);
    CHARGED(PIECE);
    create(1, 7);
    release(1);
    CHARGED(PIECE);
}

#define CASE(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    CASE(memory_stays_charged_until_it_is_released_and_unmapped),
    CASE(one_unmapping_ends_all_mappings_within_it_and_no_other),
    CASE(what_the_driver_refuses_leaves_nothing),
    CASE(a_retained_handle_keeps_the_memory),
    CASE(another_number_for_the_same_memory_keeps_it),
    CASE(memory_of_the_host_is_known_and_not_charged),
    CASE(many_pieces_are_found_again),
    CASE(a_number_given_out_again_before_the_old_end_is_told_is_new_memory),
    CASE(a_mapping_of_a_number_that_is_given_out_meanwhile_keeps_the_new_memory),
    CASE(a_mapping_under_way_while_its_number_changes_hands_keeps_both),
    CASE(a_mapping_made_while_another_is_unmapped_there_stays),
    CASE(what_is_unmapped_while_it_is_retained_stays),
    CASE(what_is_unmapped_while_somebody_asks_in_vain_ends),
    CASE(the_last_of_two_releases_ends_it),
    CASE(bound_memory_stays_until_it_is_unbound),
    CASE(bound_memory_stays_until_the_object_is_released_and_unmapped),
    CASE(what_is_bound_to_an_object_that_nobody_counts_stays),
    CASE(a_tile_stays_until_its_stream_is_done_or_its_array_ends),
    CASE(an_array_takes_its_tiles_along_and_not_those_of_its_successor),
    CASE(a_context_takes_its_arrays_along),
    CASE(an_ordinary_array_keeps_its_charge),
    CASE(an_owner_is_told_in_place_of_the_ledger),
    CASE(an_imported_handle_is_one_more_reference_or_memory_of_its_own),
    CASE(a_forked_child_starts_empty),
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc < 2)
            puts(cases[i].name);
        else if (strcmp(argv[1], cases[i].name) == 0)
            return cases[i].run(), 0;
    }
    return argc < 2 ? 0 : 2;
}
