#include "slice/checksum.h"

#include <string.h>

uint64_t vgpu_checksum(const void *data, uint64_t bytes)
{
    const unsigned char *at = data;
    uint64_t sum = 0x9e3779b97f4a7c15u ^ bytes; /* so that no all-zero area has checksum 0 */
    while (bytes > 0) {
        uint64_t word = 0;
        uint64_t take = bytes < sizeof word ? bytes : sizeof word;
        memcpy(&word, at, take);
        sum = (sum ^ word) * 0xff51afd7ed558ccdu;
        sum ^= sum >> 32;
        at += take;
        bytes -= take;
    }
    return sum;
}
