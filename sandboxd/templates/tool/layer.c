#include "sandboxd/templates/tool/layer.h"

#include "sandboxd/templates/tool/layer_entry.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char WHITEOUT[] = ".wh.";
static const char META[] = ".wh..wh.";
static const char OPAQUE[] = ".wh..wh..opq";

/* --- whiteouts: they take away what lies in the layers below --- */

static bool remove_lower(struct tree *tree, int parent, const char *name, struct error *err)
{
    struct stat status;
    if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || tree_fail(err, "look at", name);
    return inodes_has(&tree->touched, status.st_ino) || tree_remove(tree, parent, name, err);
}

static bool empty_lower(struct tree *tree, int folder, struct error *err)
{
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = again < 0 ? NULL : fdopendir(again);
    if (entries == NULL)
        return tree_fail(err, "read the folder of", OPAQUE);
    bool removed = true;
    for (const struct dirent *entry = readdir(entries); entry && removed; entry = readdir(entries)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            removed = remove_lower(tree, dirfd(entries), entry->d_name, err);
    }
    closedir(entries);
    return removed;
}

static bool apply_whiteout(struct tree *tree, const char *path, struct error *err)
{
    struct error why = {0};
    const char *hidden = tree_base(path) + sizeof WHITEOUT - 1;
    bool is_opaque = strcmp(tree_base(path), OPAQUE) == 0;
    if (hidden[0] == '\0' || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0)
        return error_set(err, ERROR_INVALID, "it is a whiteout of \"%s\"", hidden);
    if (!tree_count_entry(tree, err)) /* it costs time */
        return false;
    int parent = tree_find_parent(tree, path, &why);
    if (parent < 0)
        return why.kind == ERROR_NOT_FOUND || error_set(err, why.kind, "%s", why.message);
    return is_opaque ? empty_lower(tree, parent, err) : remove_lower(tree, parent, hidden, err);
}

enum whiteout { WHITEOUT_NONE, WHITEOUT_SKIP, WHITEOUT_APPLY, WHITEOUT_WRONG };

/* aufs kept its own things under .wh..wh.*; a folder cannot be called .wh.x. */
static enum whiteout whiteout_of(const char *path)
{
    for (const char *part = path;; part++) {
        size_t length = strcspn(part, "/");
        bool is_last = part[length] == '\0';
        if (text_starts_with(part, META) && !(is_last && strcmp(part, OPAQUE) == 0))
            return WHITEOUT_SKIP;
        if (text_starts_with(part, WHITEOUT))
            return is_last ? WHITEOUT_APPLY : WHITEOUT_WRONG;
        if (is_last)
            return WHITEOUT_NONE;
        part += length;
    }
}

/* --- entries --- */

static bool apply_entry(struct tree *tree, struct archive *tar, struct archive_entry *entry, const char *name,
                        struct error *err)
{
    char path[TREE_PATH_BYTES];
    if (!tree_path(name, path, err))
        return false;
    switch (whiteout_of(path)) {
    case WHITEOUT_SKIP:
        return true;
    case WHITEOUT_APPLY:
        return apply_whiteout(tree, path, err);
    case WHITEOUT_WRONG:
        return error_set(err, ERROR_INVALID, "it lies in a folder with the name of a whiteout");
    case WHITEOUT_NONE:
        break;
    }
    return layer_entry_make(tree, tar, entry, path, err);
}

bool layer_apply(struct tree *tree, struct archive *tar, struct error *err)
{
    tree_next_layer(tree);
    for (;;) {
        struct archive_entry *entry = NULL;
        int status = archive_read_next_header(tar, &entry);
        if (status == ARCHIVE_EOF)
            return true;
        const char *name = status >= ARCHIVE_WARN ? archive_entry_pathname(entry) : NULL;
        if (status < ARCHIVE_WARN)
            return error_set(err, ERROR_INVALID, "it is no whole tar: %.120s",
                             archive_error_string(tar) ? archive_error_string(tar) : "damaged");
        if (name == NULL)
            return error_set(err, ERROR_INVALID, "an entry has no name that can be read");
        if (!apply_entry(tree, tar, entry, name, err))
            return error_prefix(err, "entry \"%.100s\"", name);
    }
}
