/* Sizes of images of device code, and their reader under damage.
 *
 *   image_size ARCHITECTURE FILE...      a line for each: variables, code, whether all was read
 *   image_size fuzz SEED COUNT FILE...   reads COUNT damaged copies of the files, each once with
 * its length and once as a bare pointer
 *
 * A damaged copy ends where a page that may not be read begins, so that a read beyond it faults. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "code/image_size.h"

#define PAGE_BYTES 4096u
#define MOST_IMAGE_BYTES (1u << 20)
#define CHANGES 6

static uint64_t state;

static uint64_t random_below(uint64_t bound)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * 0x2545f4914f6cdd1du >> 11) % bound;
}

static size_t read_file(const char *path, uint8_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        exit(2);
    size_t length = fread(bytes, 1, MOST_IMAGE_BYTES, file);
    fclose(file);
    return length;
}

/* A copy that ends with the last byte that may be read. */
static uint8_t *place(uint8_t *room, const uint8_t *bytes, size_t length)
{
    uint8_t *start = room + MOST_IMAGE_BYTES - length;
    memcpy(start, bytes, length);
    return start;
}

static void damage(uint8_t *bytes, size_t length)
{
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff};
    for (uint64_t left = 1 + random_below(CHANGES); left > 0; left--) {
        size_t at = random_below(length);
        if (random_below(2)) { /* numbers sit at multiples of four: change whole ones too */
            at &= ~(size_t)3;
            uint8_t value = telling[random_below(sizeof telling)];
            for (size_t i = at; i < at + 4 && i < length; i++)
                bytes[i] = value;
        } else {
            bytes[at] = (uint8_t)random_below(256);
        }
    }
}

static int fuzz(uint64_t count, int file_count, char **files)
{
    static uint8_t bytes[MOST_IMAGE_BYTES], copy[MOST_IMAGE_BYTES];
    uint8_t *room = mmap(NULL, MOST_IMAGE_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED || mprotect(room + MOST_IMAGE_BYTES, PAGE_BYTES, PROT_NONE) != 0)
        return 2;
    uint64_t unknown = 0, known = 0;
    for (uint64_t i = 0; i < count; i++) {
        size_t length = read_file(files[i % (uint64_t)file_count], bytes);
        if (random_below(3) == 0)
            length = 1 + random_below(length);
        memcpy(copy, bytes, length);
        damage(copy, length);
        /* The heap has no room to spare behind it under a sanitizer. */
        uint8_t *exact = malloc(length);
        memcpy(exact, copy, length);
        struct image_view bounded = {exact, length, false};
        struct image_view bare = image_view_unbounded(place(room, copy, length));
        uint32_t architecture = (uint32_t)random_below(2) * 90;
        struct image_size sizes[] = {image_size(&bounded, architecture),
                                     image_size(&bare, architecture)};
        free(exact);
        for (int j = 0; j < 2; j++) {
            if (sizes[j].variable_bytes > IMAGE_MOST_BYTES)
                return 1;
            unknown += sizes[j].is_unknown;
            known += !sizes[j].is_unknown;
        }
    }
    printf("%llu %llu\n", (unsigned long long)known, (unsigned long long)unknown);
    return 0;
}

int main(int count, char **words)
{
    static uint8_t bytes[MOST_IMAGE_BYTES + 1];
    if (count > 4 && strcmp(words[1], "fuzz") == 0) {
        state = strtoull(words[2], NULL, 10) + 1;
        return fuzz(strtoull(words[3], NULL, 10), count - 4, words + 4);
    }
    for (int i = 2; i < count; i++) {
        size_t length = read_file(words[i], bytes);
        bytes[length] = 0;
        struct image_view bounded = {bytes, length, false};
        struct image_view bare = image_view_unbounded(bytes);
        uint32_t architecture = (uint32_t)atoi(words[1]);
        struct image_size size = image_size(&bounded, architecture);
        struct image_size again = image_size(&bare, architecture);
        if (size.variable_bytes != again.variable_bytes || size.is_unknown != again.is_unknown)
            return 1;
        printf("%llu %llu %d\n", (unsigned long long)size.variable_bytes,
               (unsigned long long)size.code_bytes, size.is_unknown);
    }
    return 0;
}
