/* Multicast objects between processes, by file descriptors. The team is on a page that all of them
 * map; what a process has bound stays bound as long as its own part of the object. */
#include <stdlib.h>
#include <sys/mman.h>

#include "multicast.h"

#define TEAM_AT 2048 /* on the record's page, behind the record */

_Static_assert(sizeof(struct shareable_record) <= TEAM_AT, "they do not overlap");

static struct multicast *shared_objects;

bool multicast_attach(struct multicast *multicast, const struct shareable_file *file,
                      uint64_t bytes)
{
    void *page =
        mmap(NULL, SIM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, (off_t)bytes);
    if (page == MAP_FAILED)
        return false;
    multicast->page = page;
    multicast->team = (struct multicast_team *)((char *)page + TEAM_AT);
    return true;
}

bool multicast_share(struct multicast *multicast, struct shareable_file *file, uint64_t bytes,
                     uint64_t team_size)
{
    if (!shareable_file_create(file, bytes + SIM_PAGE))
        return false;
    if (shareable_record_write(file, SHARE_RECORD_MULTICAST, NULL, bytes, 0) &&
        multicast_attach(multicast, file, bytes)) {
        multicast->team->size = team_size;
        return true;
    }
    shareable_file_close(file);
    return false;
}

void multicast_list_locked(struct multicast *multicast)
{
    multicast->next_shared = shared_objects;
    shared_objects = multicast;
}

void multicast_end_share_locked(struct multicast *multicast)
{
    struct multicast **at = &shared_objects;
    while (*at != multicast)
        at = &(*at)->next_shared;
    *at = multicast->next_shared;
    munmap(multicast->page, SIM_PAGE);
}

static struct physical *find_locked(const struct shareable_file *file)
{
    struct multicast *multicast = shared_objects;
    while (multicast && (multicast->physical->file.inode != file->inode ||
                         multicast->physical->file.filesystem != file->filesystem))
        multicast = multicast->next_shared;
    return multicast ? multicast->physical : NULL;
}

static struct physical *import_locked(struct shareable_file *file, uint64_t bytes)
{
    const CUmemAllocationProp none = {.type = CU_MEM_ALLOCATION_TYPE_INVALID,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    struct multicast *multicast = calloc(1, sizeof *multicast);
    file->descriptor = shareable_file_reopen(file); /* the given one is the caller's */
    if (multicast && file->descriptor >= 0 && multicast_attach(multicast, file, bytes)) {
        struct physical *physical = physical_make_locked(NULL, bytes, &none, file);
        if (physical) {
            multicast->physical = physical;
            physical->multicast = multicast;
            multicast_list_locked(multicast);
            return physical;
        }
        munmap(multicast->page, SIM_PAGE);
    } else if (file->descriptor >= 0) {
        shareable_file_close(file);
    }
    free(multicast);
    return NULL;
}

CUresult multicast_import_locked(int descriptor, struct physical **physical)
{
    struct shareable_record record;
    struct shareable_file file;
    INVALID_IF(!shareable_record_check(descriptor, SHARE_RECORD_MULTICAST, &record) ||
               !shareable_file_adopt(&file, descriptor));
    *physical = find_locked(&file);
    if (*physical)
        (*physical)->references++;
    else
        *physical = import_locked(&file, record.bytes);
    return *physical ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
