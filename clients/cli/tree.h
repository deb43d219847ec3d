/** tree.h - all names below a folder, here or in a sandbox, in one order; and how they travel as a tar. */
#pragma once

#include "clients/c/remote_files.h"

#include <sys/types.h>

/** Sorted by path, a folder before what is in it; the folder itself is left out. */
struct tree {
    struct remote_entry *entries; /* paths below the folder; no etags of local ones */
    size_t count, room;
    size_t skipped;  /* what is neither file, folder nor link, or could not be read */
    char **excluded; /* paths left out */
    size_t excluded_count, excluded_room;
};

void tree_done(struct tree *tree);
#define AUTO_TREE __attribute__((cleanup(tree_done))) struct tree

/** What lies below a local folder; links are not followed. Names that match one of `excluded` (NULL-ended fnmatch
 * patterns of a path or of its last segment; NULL none) are left out with all below. */
bool tree_read_local(struct tree *tree, const char *folder, const char *const *excluded, struct error *err) MUST_USE;
bool tree_read_remote(struct tree *tree, struct remote_files *files, const char *folder, const char *const *excluded,
                      struct error *err) MUST_USE;

/** Whether something that was left out lies below the folder at `path`. */
bool tree_holds_excluded(const struct tree *tree, const char *path) MUST_USE;

/** Order of paths: "a" < "a/b" < "a.b". */
int tree_compare(const char *a, const char *b) MUST_USE;

/** Bytes of the files among `entries`. */
uint64_t tree_bytes(const struct remote_entry *entries, size_t count) MUST_USE;

/** A link that, where it stands at `path`, leads to something below the folder. */
bool tree_link_stays(const char *path, const char *target) MUST_USE;

/** Sends the entries of a local folder as a tar into one of the sandbox's (made with its parents). */
bool tree_send(struct remote_files *files, const char *local, const char *remote, const struct remote_entry *entries,
               size_t count, struct error *err) MUST_USE;

/** Fetches a folder of the sandbox as a tar into a local one (made). Nothing is written outside it, no device or set-id
 * bit comes along, links that lead out are left away; *skipped counts them. */
bool tree_fetch(struct remote_files *files, const char *remote, const char *local, size_t *skipped,
                struct error *err) MUST_USE;
