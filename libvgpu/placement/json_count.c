/* See json_count.h. */
#include "json_count.h"

int64_t json_count(const char *text, int64_t size, int32_t levels)
{
    int64_t count = 0;
    int64_t level = 0;
    for (int64_t i = 0; i < size; i++) {
        switch (text[i]) {
        case '"': /* to its end, over what is escaped */
            for (i++; i < size && text[i] != '"'; i++) {
                if (text[i] == '\\') {
                    i++;
                }
            }
            break;
        case '[':
        case '{':
            level++;
            count += level <= levels;
            break;
        case ']':
        case '}':
            level--;
            break;
        case ',':
            count += level <= levels;
            break;
        default:
            break;
        }
    }
    return count;
}
