/* How much a JSON text holds is counted to the end of the text and no further. */
#include "input.h"

#include "json_count.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t all = json_count((const char *)data, (int64_t)size, JSON_ALL_LEVELS);
    int64_t flat = json_count((const char *)data, (int64_t)size, 1);
    HOLDS(0 <= flat && flat <= all && all <= (int64_t)size);
    return 0;
}
