/** tree.h - the rootfs that is being filled, by a descriptor of it: nothing here ever leaves it. Parents are looked up
 *  by openat2(RESOLVE_IN_ROOT): a link in it means what it means to who has it as /. */
#pragma once

#include "sandboxd/templates/tool/inodes.h"
#include "shared/base/error.h"

#include <stdint.h>
#include <sys/types.h>

#define TREE_PATH_BYTES 4096 /* a path in it, with NUL */
#define TREE_DEPTH_MAX  256
#define TREE_ID_MAX     65535U

struct tree_limits {
    uint64_t bytes, entries; /* of all layers together, whatever is later removed or overwritten */
};

/** Embedded; see tree_init. Private but for root, entries and bytes. */
struct tree {
    int root; /* borrowed */
    uint64_t entries, bytes;
    struct tree_limits limits;
    struct inodes touched; /* by the layer that is being applied */
    char parent[TREE_PATH_BYTES];
    int parent_fd; /* of `parent`, -1: none kept */
};

void tree_init(struct tree *tree, int root, const struct tree_limits *limits);
void tree_done(struct tree *tree);
#define AUTO_TREE __attribute__((cleanup(tree_done))) struct tree

/** A name as archives have it ("./a//b/") as a path of the tree ("a/b", "" is the root). INVALID: empty, absolute, with
 *  "..", longer than Linux allows, deeper than TREE_DEPTH_MAX. */
bool tree_path(const char *name, char path[static TREE_PATH_BYTES], struct error *err) MUST_USE;

/** The last part of a path: points into it. */
const char *tree_base(const char *path) MUST_USE;

/** The folder that the path's last part lies in, made with its parents (0755, root's) when missing. Borrowed, until the
 *  next call. INVALID when something on the way is no folder. */
int tree_parent(struct tree *tree, const char *path, struct error *err) MUST_USE;
/** The same, but made by nobody: -1 with NOT_FOUND. */
int tree_find_parent(struct tree *tree, const char *path, struct error *err) MUST_USE;

/** Removes an entry with all below it, if it is there. `parent` came from tree_parent. */
bool tree_remove(struct tree *tree, int parent, const char *base, struct error *err) MUST_USE;

/** Counts one more entry, or bytes to be written. TOO_LARGE. */
bool tree_count_entry(struct tree *tree, struct error *err) MUST_USE;
bool tree_count_bytes(struct tree *tree, uint64_t bytes, struct error *err) MUST_USE;

/** Notes that this layer made or changed the entry. */
bool tree_touch(struct tree *tree, int parent, const char *base, struct error *err) MUST_USE;
/** Forgets what was touched: another layer begins. */
void tree_next_layer(struct tree *tree);

/** error_set_errno with DISK_FULL for ENOSPC and EDQUOT, NOT_FOUND for ENOENT, INVALID for what a name or a link in the
 *  tree causes (ENOTDIR, ELOOP, ENAMETOOLONG, EXDEV), else INTERNAL. */
bool tree_fail(struct error *err, const char *what, const char *path);
