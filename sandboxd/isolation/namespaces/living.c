/* living.c - finds a sandbox of a former launcher by the kernel's own word, before this process has any right. */
#include "sandboxd/isolation/isolation.h"

#include "sandboxd/isolation/namespaces/cgroups.h"
#include "shared/base/memory.h"

#include <string.h>

enum { SLOTS_LOOKED_AT = 4096 };

pid_t isolation_find_living(const char *state_folder)
{
    struct cgroup_layout layout;
    pid_t found = 0;
    AUTO_FREE char *file = memory_printf("%s/sandboxd/cgroups", state_folder);
    if (!cgroup_layout_load(&layout, file))
        return 0;
    AUTO_FREE uint32_t *slots = memory_array(SLOTS_LOOKED_AT, sizeof *slots);
    size_t count = cgroup_slot_list(&layout, slots, SLOTS_LOOKED_AT);
    for (size_t i = 0; i < count && found == 0; i++)
        found = cgroup_slot_init(&layout, slots[i]);
    return found;
}
