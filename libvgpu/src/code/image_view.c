#include "code/image_view.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE_BYTES 4096u /* the least there is: larger pages are only asked for more often */
#define PROBES 128

/* How many of the bytes at `address` are mapped and readable, as far as the first `wanted`. The
 * kernel copies one byte of each page for us, and stops at what cannot be read. A kernel that does
 * not let us ask leaves us where the driver is: the image is believed. */
static uint64_t readable_bytes(const uint8_t *address, uint64_t wanted)
{
    uint64_t known = 0;
    while (known < wanted) {
        struct iovec pages[PROBES];
        uint8_t copies[PROBES];
        uint64_t at = known;
        int count = 0;
        for (; count < PROBES && at < wanted; count++) {
            uintptr_t place = (uintptr_t)(address + at);
            pages[count] = (struct iovec){(void *)place, 1};
            at += PAGE_BYTES - place % PAGE_BYTES;
        }
        struct iovec local = {copies, (size_t)count};
        ssize_t copied = process_vm_readv(getpid(), &local, 1, pages, (unsigned long)count, 0);
        if (copied < 0 && errno != EFAULT)
            return wanted;
        if (copied < count)
            return copied <= 0 ? known
                               : (uint64_t)((uintptr_t)pages[copied].iov_base - (uintptr_t)address);
        known = at;
    }
    return wanted;
}

/* Where a piece of the view is, mapped or not; NULL when it is not inside. Counted as a number: an
 * offset that an image claims may lead round the whole address space. */
static const uint8_t *place_of(const struct image_view *view, uint64_t offset, uint64_t bytes)
{
    uintptr_t place, end;
    if (offset > view->length || bytes > view->length - offset ||
        __builtin_add_overflow((uintptr_t)view->bytes, offset, &place) ||
        __builtin_add_overflow(place, bytes, &end))
        return NULL;
    return (const uint8_t *)place;
}

const void *image_view_at(const struct image_view *view, uint64_t offset, uint64_t bytes)
{
    const uint8_t *place = place_of(view, offset, bytes);
    return place == NULL || (view->is_foreign && readable_bytes(place, bytes) < bytes) ? NULL
                                                                                       : place;
}

bool image_view_part(const struct image_view *view, uint64_t offset, uint64_t bytes,
                     struct image_view *part)
{
    const uint8_t *place = place_of(view, offset, bytes);
    *part = (struct image_view){place, bytes, view->is_foreign};
    return place != NULL;
}

uint64_t image_view_text_length(const struct image_view *view)
{
    uint64_t length = 0;
    uint64_t step = PAGE_BYTES;
    while (length < view->length) {
        uint64_t piece = view->length - length < step ? view->length - length : step;
        uint64_t readable = view->is_foreign ? readable_bytes(view->bytes + length, piece) : piece;
        const uint8_t *nul = memchr(view->bytes + length, 0, readable);
        if (nul != NULL)
            return (uint64_t)(nul - view->bytes);
        length += readable;
        if (readable < piece)
            break;
        step = PROBES * PAGE_BYTES; /* most texts end within the first pages */
    }
    return length;
}
