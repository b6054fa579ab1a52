/* Prints array_size_bound of each form it reads: width, height, depth, format, channels, flags and
 * levels, a line each. */
#include "memory/ledger/array_size.h"

#include <stdio.h>

int main(void)
{
    CUDA_ARRAY3D_DESCRIPTOR form = {0};
    unsigned int format, levels;
    while (scanf("%zu %zu %zu %u %u %u %u", &form.Width, &form.Height, &form.Depth, &format,
                 &form.NumChannels, &form.Flags, &levels) == 7) {
        form.Format = (CUarray_format)format;
        printf("%llu\n", (unsigned long long)array_size_bound(&form, levels));
    }
}
