#include "code/library_context.h"

#include <stddef.h>

#include "code/library_charge.h"
#include "vgpu/contract.h"

/* What the used libraries take in a new context, but for those that are measured there. Under the
 * mutex. */
static uint64_t used_bytes(void)
{
    uint64_t bytes = 0;
    for (struct library *library = library_book_libraries(); library != NULL;
         library = library->next)
        if (library->is_used && !library->size.is_unknown)
            bytes += library->reserved_bytes;
    return bytes;
}

CUresult library_context_reserve(struct charge *charge, int device)
{
    library_book_lock();
    uint64_t bytes = used_bytes();
    library_book_unlock();
    *charge = (struct charge){.device = device, .kind = VGPU_KIND_MODULE, .bytes = 0};
    return bytes > 0 ? charge_reserve(charge, device, VGPU_KIND_MODULE, bytes) : CUDA_SUCCESS;
}

/* Hands each used library's part of the reservation to the new context. Under the mutex. */
static void put_pairs(struct charge *charge, const struct member *member)
{
    for (struct library *library = library_book_libraries(); library != NULL;
         library = library->next) {
        if (!library->is_used || library->size.is_unknown)
            continue;
        struct charge part = {
            .device = charge->device, .kind = charge->kind, .bytes = library->reserved_bytes};
        library_book_put_pair(library, member, &part);
        charge->bytes -= library->reserved_bytes;
    }
}

/* A used library that has yet to be measured in `member`. Under the mutex. */
static struct library *first_unmeasured(const struct member *member)
{
    struct library *library = library_book_libraries();
    while (library != NULL && (!library->is_used || !library->size.is_unknown ||
                               library_book_has_pair(library, member)))
        library = library->next;
    return library;
}

static bool measure_all(const struct member *at)
{
    for (;;) {
        library_book_lock();
        struct library *library = first_unmeasured(at);
        library_book_unlock();
        if (library == NULL)
            return true;
        if (library_charge_pair(library, at) != CUDA_SUCCESS)
            return false;
    }
}

bool library_context_made(struct charge *charge, CUcontext context)
{
    struct member *member = NULL;
    if (charge->device < 0)
        return true;
    for (;;) {
        library_book_lock();
        uint64_t bytes = used_bytes();
        if (bytes <= charge->bytes) {
            member = library_book_add_member(context, charge->device);
            break;
        }
        library_book_unlock(); /* one came into use meanwhile */
        if (charge_resize(charge, bytes) != CUDA_SUCCESS) {
            charge_cancel(charge);
            charge->bytes = 0;
            return false;
        }
    }
    if (member != NULL)
        put_pairs(charge, member);
    struct member at = member != NULL ? *member : (struct member){0};
    library_book_unlock();
    charge_cancel(charge); /* what is left: a library went meanwhile */
    charge->bytes = 0;
    if (member == NULL)
        return false;
    library_book_keep_member(member);
    return measure_all(&at);
}
