#include "visible.h"

#include <stdlib.h>
#include <string.h>

bool visible_on_machine(const char *uuid)
{
    const char *list = getenv("VGPU_SIM_VISIBLE");
    if (!list)
        return true;
    size_t length = strlen(uuid);
    for (const char *at = strstr(list, uuid); at; at = strstr(at + 1, uuid))
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}
