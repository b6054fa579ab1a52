/* The check by which NVIDIA's runtime library tells its own driver: a keyed hash of the driver's version, the
 * process, the devices and the addresses of two private tables. Programs of the runtime start nowhere without the
 * right answer, so the simulated driver gives it, for tests of such programs and nothing else.
 *
 * HMAC (RFC 2104) over MD2 (RFC 1319). The key, the fields and the two fixed answers: public notes of the ZLUDA
 * project (dark_api). Here the runtime itself is the test: it refuses all calls after a wrong answer. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "export_table.h"

#define BLOCK_BYTES 16
#define ROUNDS 18

/* RFC 1319, section 3.2: a permutation of all bytes, made from the digits of pi. */
static const uint8_t pi_substitution[256] = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,
    243, 192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212,
    224, 22,  103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160,
    251, 245, 142, 187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137,
    11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151,
    3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184,
    56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100,
    113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246,
    28,  70,  97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249,
    206, 186, 197, 234, 38,  44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129,
    77,  82,  106, 220, 55,  200, 108, 193, 171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120,
    136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254, 59,  0,   29,  57,  242, 239, 183, 14,
    102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,  80,  180, 143, 237, 31,
    26,  219, 153, 141, 51,  159, 17,  131, 20};

struct hash {
    uint8_t state[BLOCK_BYTES];
    uint8_t checksum[BLOCK_BYTES];
    uint8_t block[BLOCK_BYTES];
    size_t filled;
};

static void hash_block(struct hash *hash)
{
    uint8_t mixed[3 * BLOCK_BYTES];
    uint8_t last = hash->checksum[BLOCK_BYTES - 1];
    for (int i = 0; i < BLOCK_BYTES; i++) {
        mixed[i] = hash->state[i];
        mixed[BLOCK_BYTES + i] = hash->block[i];
        mixed[2 * BLOCK_BYTES + i] = hash->state[i] ^ hash->block[i];
        last = hash->checksum[i] ^= pi_substitution[hash->block[i] ^ last];
    }
    uint8_t carried = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < sizeof mixed; i++)
            carried = mixed[i] ^= pi_substitution[carried];
        carried = (uint8_t)(carried + round);
    }
    memcpy(hash->state, mixed, BLOCK_BYTES);
    hash->filled = 0;
}

static void hash_take(struct hash *hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hash->block[hash->filled++] = ((const uint8_t *)bytes)[i];
        if (hash->filled == BLOCK_BYTES)
            hash_block(hash);
    }
}

static void hash_end(struct hash *hash)
{
    uint8_t padding = (uint8_t)(BLOCK_BYTES - hash->filled);
    for (int i = padding; i > 0; i--)
        hash_take(hash, &padding, 1);
    uint8_t checksum[BLOCK_BYTES];
    memcpy(checksum, hash->checksum, sizeof checksum);
    hash_take(hash, checksum, sizeof checksum);
}

/* A hash that has taken the key: the first of the two of HMAC, or the second one. A block of MD2 is 16 bytes long,
 * and so is the key. */
static struct hash hash_with_key(uint8_t mask)
{
    static const uint8_t key[BLOCK_BYTES] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52,
                                             0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f};
    struct hash hash = {0};
    for (size_t i = 0; i < sizeof key; i++) {
        uint8_t masked = key[i] ^ mask;
        hash_take(&hash, &masked, 1);
    }
    return hash;
}

static void take_devices(struct hash *hash)
{
    for (int i = 0; i < driver.device_count; i++) {
        CUuuid uuid;
        int place[3];
        cuDeviceGetUuid(&uuid, i);
        cuDeviceGetAttribute(&place[0], CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, i);
        cuDeviceGetAttribute(&place[1], CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i);
        cuDeviceGetAttribute(&place[2], CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, i);
        hash_take(hash, &uuid, sizeof uuid);
        hash_take(hash, place, sizeof place);
    }
}

void integrity_answer(const struct integrity_question *question, uint64_t answer[2])
{
    if (question->version % 10 < 2) {
        answer[0] = question->version % 10 == 0 ? 0x3341181c03cb675c : 0x1841181c03cb675c;
        answer[1] = 0x8ed383aa1f4cd1e8;
        return;
    }
    uint32_t numbers[4] = {(uint32_t)driver_version(), question->version, (uint32_t)getpid(),
                           (uint32_t)(uintptr_t)pthread_self()};
    const void *addresses[3] = {question->runtime_table, question->integrity_table,
                                question->function};
    struct hash inner = hash_with_key(0x36);
    hash_take(&inner, numbers, sizeof numbers);
    hash_take(&inner, addresses, sizeof addresses);
    hash_take(&inner, &question->unix_seconds, sizeof question->unix_seconds);
    take_devices(&inner);
    hash_end(&inner);
    struct hash outer = hash_with_key(0x5c);
    hash_take(&outer, inner.state, sizeof inner.state);
    hash_end(&outer);
    memcpy(answer, outer.state, sizeof outer.state);
}
