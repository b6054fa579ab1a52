#include "memory/contexts/imported.h"

#include "memory/shared/shared_memory.h"

#define TELLING_BYTES ((int64_t)8 << 20) /* of an import: no figure moves so far by itself */

bool imported_look(struct imported *imported, uint32_t device)
{
    uint64_t bytes = shared_memory_imported_bytes(device);
    bool was_changing = imported->is_changing;
    imported->is_changing = bytes != imported->seen_bytes;
    imported->seen_bytes = bytes;
    return imported->is_changing && !was_changing;
}

/* Code may be loaded between the two figures, so what lies in between tells nothing. */
static void learn(struct imported *imported, int64_t more_bytes, int64_t grown_bytes)
{
    if (more_bytes < TELLING_BYTES)
        return;
    if (grown_bytes > more_bytes / 4)
        imported->is_elsewhere = true;
    else if (grown_bytes > -more_bytes / 8 && grown_bytes < more_bytes / 8)
        imported->is_elsewhere = false;
}

uint64_t imported_elsewhere_bytes(struct imported *imported, uint32_t device, int64_t lack_bytes)
{
    uint64_t bytes = shared_memory_imported_bytes(device);
    if (!imported->is_changing && bytes == imported->seen_bytes) {
        if (imported->is_measured)
            learn(imported, (int64_t)(bytes - imported->lack_imported_bytes),
                  lack_bytes - imported->lack_bytes);
        imported->is_measured = true;
        imported->lack_bytes = lack_bytes;
        imported->lack_imported_bytes = bytes;
    }
    return imported->is_elsewhere ? bytes : 0;
}
