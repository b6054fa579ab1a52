/* Runs a target over files, one input each, where there is no libFuzzer. */
#include "input.h"

int main(int count, char **paths)
{
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(paths[i], "rb");
        HOLDS(file != NULL && fseek(file, 0, SEEK_END) == 0);
        long size = ftell(file);
        rewind(file);
        uint8_t *data = malloc(size > 0 ? (size_t)size : 1); /* of just that size, for ASan */
        HOLDS(data != NULL && fread(data, 1, (size_t)size, file) == (size_t)size);
        fclose(file);
        LLVMFuzzerTestOneInput(data, (size_t)size);
        free(data);
    }
    return 0;
}
