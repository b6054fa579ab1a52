#include "code/library_book.h"

#include <stddef.h>
#include <stdlib.h>

#include "slice/locks.h"
#include "vgpu/contract.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct library *libraries, *spare_libraries;
static struct member *members, *spare_members;
static uint32_t last_number;

void library_book_after_fork(void)
{
    lock_reset(&mutex);
    libraries = spare_libraries = NULL;
    members = spare_members = NULL;
}

void library_book_lock(void)
{
    lock_take(&mutex, LOCK_LIBRARIES);
}

void library_book_unlock(void)
{
    lock_give_back(&mutex);
}

struct library *library_book_libraries(void)
{
    return libraries;
}

struct member *library_book_members(void)
{
    return members;
}

/* ---- pairs ---- */

/* Without a library: the member's own entry. */
static uint64_t key_of(const struct library *library, const struct member *member)
{
    return (uint64_t)(library != NULL ? library->number : 0) << 32 | member->number;
}

bool library_book_has_pair(const struct library *library, const struct member *member)
{
    struct allocation found;
    return allocation_map_find(SPACE_LIBRARY, key_of(library, member), &found);
}

void library_book_put_pair(const struct library *library, const struct member *member,
                           const struct charge *charge)
{
    charge_keep_lasting(charge, SPACE_LIBRARY, key_of(library, member), NULL);
}

static void drop_pair(const struct library *library, const struct member *member)
{
    struct allocation taken;
    if (allocation_map_take(SPACE_LIBRARY, key_of(library, member), &taken))
        charge_taken(&taken, true);
}

void library_book_drop_pairs(const struct library *library)
{
    for (struct member *member = members; member != NULL; member = member->next)
        drop_pair(library, member);
}

/* ---- records ---- */

/* Takes a record of its list, if it is there, and keeps it for the next one. */
#define RETIRE(list, spares, record) \
    do { \
        __typeof__(list) *link_ = &(list); \
        while (*link_ != NULL && *link_ != (record)) \
            link_ = &(*link_)->next; \
        if (*link_ != NULL) { \
            *link_ = (record)->next; \
            (record)->next = (spares); \
            (spares) = (record); \
        } \
    } while (0)

void library_book_end_library(struct library *library)
{
    library_book_lock();
    library_book_drop_pairs(library);
    RETIRE(libraries, spare_libraries, library);
    library_book_unlock();
}

void library_book_end_member(struct member *member)
{
    library_book_lock();
    for (struct library *library = libraries; library != NULL; library = library->next)
        drop_pair(library, member);
    RETIRE(members, spare_members, member);
    library_book_unlock();
}

static void release_library(struct charge_owner *owner, const struct allocation *allocation)
{
    (void)allocation;
    library_book_end_library((struct library *)owner);
}

static void release_member(struct charge_owner *owner, const struct allocation *allocation)
{
    (void)allocation;
    library_book_end_member((struct member *)owner);
}

/* A record from the spares, or a new one. */
#define TAKE_SPARE(spares) \
    __extension__({ \
        __typeof__(spares) record_ = (spares); \
        if (record_ != NULL) \
            (spares) = record_->next; \
        else \
            record_ = calloc(1, sizeof *record_); \
        record_; \
    })

struct library *library_book_add_library(const struct image_size *size, uint64_t reserved_bytes)
{
    struct library *library = TAKE_SPARE(spare_libraries);
    if (library == NULL)
        return NULL;
    *library = (struct library){.owner.release = release_library,
                                .next = libraries,
                                .number = ++last_number,
                                .size = *size,
                                .reserved_bytes = reserved_bytes};
    libraries = library;
    return library;
}

struct member *library_book_add_member(CUcontext context, int device)
{
    struct member *member = TAKE_SPARE(spare_members);
    if (member == NULL)
        return NULL;
    *member = (struct member){.owner.release = release_member,
                              .next = members,
                              .number = ++last_number,
                              .context = context,
                              .device = device};
    members = member;
    return member;
}

/* ---- handles ---- */

void library_book_keep_library(struct library *library)
{
    struct allocation entry = {.address = (uint64_t)(uintptr_t)library->handle,
                               .owner = &library->owner,
                               .kind = VGPU_KIND_MODULE,
                               .space = SPACE_MODULE};
    charge_taken(&entry, false);
}

void library_book_keep_member(struct member *member)
{
    struct allocation entry = {.address = key_of(NULL, member),
                               .context = charge_context(member->context),
                               .owner = &member->owner,
                               .kind = VGPU_KIND_MODULE,
                               .space = SPACE_LIBRARY};
    charge_taken(&entry, false);
}

struct library *library_book_find(CUlibrary handle)
{
    struct allocation found;
    if (!allocation_map_find(SPACE_MODULE, (uint64_t)(uintptr_t)handle, &found))
        return NULL;
    struct charge_owner *owner = found.owner;
    return owner != NULL && owner->release == release_library ? (struct library *)owner : NULL;
}
