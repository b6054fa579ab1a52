#include "code/image_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILE_BYTES (4ll << 30)

static bool read_all(int descriptor, uint8_t *bytes, uint64_t length)
{
    uint64_t at = 0;
    while (at < length) {
        ssize_t got = pread(descriptor, bytes + at, length - at, (off_t)at);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        at += got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

static bool read_open(int descriptor, struct image_view *view)
{
    struct stat status;
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size <= 0 ||
        status.st_size > MOST_FILE_BYTES)
        return false;
    uint64_t length = (uint64_t)status.st_size;
    void *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return false;
    *view = (struct image_view){bytes, length, false};
    if (read_all(descriptor, bytes, length))
        return true;
    image_file_free(view);
    return false;
}

bool image_file_read(const char *path, struct image_view *view)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
    if (descriptor < 0)
        return false;
    bool is_read = read_open(descriptor, view);
    close(descriptor);
    return is_read;
}

void image_file_free(const struct image_view *view)
{
    munmap((void *)(uintptr_t)view->bytes, view->length);
}
