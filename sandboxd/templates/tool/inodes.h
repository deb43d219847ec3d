/** inodes.h - a set of inode numbers: what this layer has made, which its own whiteouts do not take away. */
#pragma once

#include "shared/base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Embedded; zeroed it is empty. Private fields. */
struct inodes {
    uint64_t *slots; /* 0: free; inode 0 is none */
    size_t capacity, count;
};

void inodes_add(struct inodes *set, uint64_t inode);
bool inodes_has(const struct inodes *set, uint64_t inode) MUST_USE;
/** Empties it and frees its memory. */
void inodes_done(struct inodes *set);
