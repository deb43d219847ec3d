#include "sandboxd/templates/tool/inodes.h"

#include "shared/base/memory.h"

static size_t place_of(const struct inodes *set, uint64_t inode)
{
    size_t at = (size_t)(inode * 0x9e3779b97f4a7c15ULL) & (set->capacity - 1);
    while (set->slots[at] != 0 && set->slots[at] != inode)
        at = (at + 1) & (set->capacity - 1);
    return at;
}

static void grow(struct inodes *set)
{
    struct inodes larger = {.capacity = set->capacity ? set->capacity * 2 : 1024};
    larger.slots = memory_array(larger.capacity, sizeof *larger.slots);
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->slots[i] != 0)
            inodes_add(&larger, set->slots[i]);
    }
    free(set->slots);
    *set = larger;
}

void inodes_add(struct inodes *set, uint64_t inode)
{
    if (set->count * 2 >= set->capacity)
        grow(set);
    size_t at = place_of(set, inode);
    set->count += set->slots[at] == 0;
    set->slots[at] = inode;
}

bool inodes_has(const struct inodes *set, uint64_t inode)
{
    return set->capacity > 0 && set->slots[place_of(set, inode)] == inode && inode != 0;
}

void inodes_done(struct inodes *set)
{
    free(set->slots);
    *set = (struct inodes){0};
}
