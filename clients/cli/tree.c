#include "clients/cli/tree.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void tree_done(struct tree *tree)
{
    for (size_t i = 0; i < tree->count; i++)
        remote_entry_done(&tree->entries[i]);
    for (size_t i = 0; i < tree->excluded_count; i++)
        free(tree->excluded[i]);
    free(tree->excluded);
    free(tree->entries);
    *tree = (struct tree){0};
}

static unsigned char rank(char c)
{
    return c == '/' ? 1 : c == 0 ? 0 : (unsigned char)c;
}

int tree_compare(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return (int)rank(*a) - (int)rank(*b);
}

static int compare_entries(const void *a, const void *b)
{
    return tree_compare(((const struct remote_entry *)a)->path, ((const struct remote_entry *)b)->path);
}

static void sort(struct tree *tree)
{
    if (tree->count > 1)
        qsort(tree->entries, tree->count, sizeof *tree->entries, compare_entries);
}

/* Takes what `entry` owns. */
static void add(struct tree *tree, const struct remote_entry *entry)
{
    if (tree->count == tree->room) {
        tree->room = tree->room ? tree->room * 2 : 64;
        tree->entries = memory_resize(tree->entries, tree->room * sizeof *tree->entries);
    }
    tree->entries[tree->count++] = *entry;
}

static void leave_out(struct tree *tree, const char *path)
{
    if (tree->excluded_count == tree->excluded_room) {
        tree->excluded_room = tree->excluded_room ? tree->excluded_room * 2 : 16;
        tree->excluded = memory_resize(tree->excluded, tree->excluded_room * sizeof *tree->excluded);
    }
    tree->excluded[tree->excluded_count++] = memory_string(path);
}

bool tree_holds_excluded(const struct tree *tree, const char *path)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < tree->excluded_count; i++) {
        if (strncmp(tree->excluded[i], path, length) == 0 && tree->excluded[i][length] == '/')
            return true;
    }
    return false;
}

static bool is_excluded(const char *const *excluded, const char *path)
{
    const char *slash = strrchr(path, '/');
    for (; excluded && *excluded; excluded++) {
        if (fnmatch(*excluded, path, FNM_PATHNAME) == 0 || fnmatch(*excluded, slash ? slash + 1 : path, 0) == 0)
            return true;
    }
    return false;
}

uint64_t tree_bytes(const struct remote_entry *entries, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += entries[i].kind == REMOTE_FILE ? entries[i].size : 0;
    return bytes;
}

bool tree_link_stays(const char *path, const char *target)
{
    long depth = 0;
    if (target[0] == '/' || target[0] == 0)
        return false;
    for (const char *at = path; (at = strchr(at, '/')); at++)
        depth++;
    for (const char *at = target; *at;) {
        size_t length = strcspn(at, "/");
        if (length == 2 && memcmp(at, "..", 2) == 0 && --depth < 0)
            return false;
        if (length > 0 && !(length == 1 && *at == '.') && !(length == 2 && memcmp(at, "..", 2) == 0))
            depth++;
        at += length + (at[length] == '/');
    }
    return true;
}

/* ---- local ---- */

static bool read_folder(struct tree *tree, int folder, const char *below, unsigned depth, const char *const *excluded,
                        struct error *err);

static bool fill_local(struct remote_entry *entry, int folder, const char *name, const struct stat *status)
{
    entry->mode = (unsigned)status->st_mode & 07777U;
    entry->size = (uint64_t)status->st_size;
    entry->mtime_ns = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
    entry->kind = S_ISREG(status->st_mode)   ? REMOTE_FILE
                  : S_ISDIR(status->st_mode) ? REMOTE_FOLDER
                  : S_ISLNK(status->st_mode) ? REMOTE_LINK
                                             : REMOTE_OTHER;
    if (entry->kind != REMOTE_LINK)
        return entry->kind != REMOTE_OTHER;
    char target[PATH_MAX];
    ssize_t length = readlinkat(folder, name, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = 0;
    entry->target = memory_string(target);
    return true;
}

static bool read_name(struct tree *tree, int folder, const char *name, const char *below, unsigned depth,
                      const char *const *excluded, struct error *err)
{
    AUTO_FREE char *path = *below ? memory_printf("%s/%s", below, name) : memory_string(name);
    struct stat status;
    struct remote_entry entry = {0};
    if (is_excluded(excluded, path)) {
        leave_out(tree, path);
        return true;
    }
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !fill_local(&entry, folder, name, &status)) {
        tree->skipped++;
        return true;
    }
    entry.path = memory_string(path);
    add(tree, &entry);
    if (entry.kind != REMOTE_FOLDER)
        return true;
    if (depth == REMOTE_FILES_DEPTH_ALL)
        return error_set(err, ERROR_TOO_LARGE, "%.120s is over %d folders deep", path, REMOTE_FILES_DEPTH_ALL);
    int inner = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inner < 0)
        return error_set_errno(err, ERROR_FORBIDDEN, "%.120s", path);
    return read_folder(tree, inner, path, depth + 1, excluded, err);
}

/* Takes the descriptor. */
static bool read_folder(struct tree *tree, int folder, const char *below, unsigned depth, const char *const *excluded,
                        struct error *err)
{
    DIR *stream = fdopendir(folder);
    if (!stream) {
        close(folder);
        return error_set_errno(err, ERROR_INTERNAL, "%.120s", below);
    }
    bool good = true;
    for (struct dirent *found; good && (found = readdir(stream));) {
        if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0)
            good = read_name(tree, folder, found->d_name, below, depth, excluded, err);
    }
    closedir(stream);
    return good;
}

bool tree_read_local(struct tree *tree, const char *folder, const char *const *excluded, struct error *err)
{
    int opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INVALID, "%s", folder);
    if (!read_folder(tree, opened, "", 1, excluded, err))
        return false;
    sort(tree);
    return true;
}

/* ---- remote ---- */

struct remote_reading {
    struct tree *tree;
    const char *const *excluded;
    char *cut; /* the folder that was left out last, with a slash: so is all below */
};

static bool on_remote(void *cookie, const struct remote_entry *entry, struct error *err)
{
    struct remote_reading *reading = cookie;
    (void)err;
    if (!*entry->path || (reading->cut && text_starts_with(entry->path, reading->cut)))
        return true;
    if (is_excluded(reading->excluded, entry->path)) {
        leave_out(reading->tree, entry->path);
        free(reading->cut);
        reading->cut = entry->kind == REMOTE_FOLDER ? memory_printf("%s/", entry->path) : NULL;
        return true;
    }
    if (entry->kind == REMOTE_OTHER) {
        reading->tree->skipped++;
        return true;
    }
    struct remote_entry kept = *entry;
    kept.path = memory_string(entry->path);
    kept.target = entry->target ? memory_string(entry->target) : NULL;
    kept.etag = NULL;
    add(reading->tree, &kept);
    return true;
}

bool tree_read_remote(struct tree *tree, struct remote_files *files, const char *folder, const char *const *excluded,
                      struct error *err)
{
    struct remote_reading reading = {.tree = tree, .excluded = excluded};
    bool good = remote_files_list(files, folder, REMOTE_FILES_DEPTH_ALL, on_remote, &reading, err);
    free(reading.cut);
    sort(tree);
    return good;
}
