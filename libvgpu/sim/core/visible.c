#include "visible.h"

#include <stdlib.h>
#include <string.h>

static bool lists(const char *list, const char *uuid)
{
    size_t length = strlen(uuid);
    for (const char *at = strstr(list, uuid); at; at = strstr(at + 1, uuid))
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

static const struct sim_device_identity *identity_at(struct sim_machine *machine, uint32_t index)
{
    return &sim_machine_device(machine, index)->header->identity;
}

bool visible_is_instance_of(struct sim_machine *machine, uint32_t index, uint32_t gpu)
{
    return identity_at(machine, index)->gpu == gpu + 1 && sim_mig_is_there(machine, index);
}

bool visible_on_machine(struct sim_machine *machine, uint32_t index)
{
    const struct sim_device_identity *identity = identity_at(machine, index);
    const char *list = getenv("VGPU_SIM_VISIBLE");
    if (!sim_mig_is_there(machine, index))
        return false;
    if (!list || lists(list, identity->uuid))
        return true;
    if (identity->gpu)
        return lists(list, identity_at(machine, identity->gpu - 1)->uuid);
    for (uint32_t i = 0; i < sim_machine_device_count(machine); i++)
        if (visible_is_instance_of(machine, i, index) && lists(list, identity_at(machine, i)->uuid))
            return true;
    return false;
}
