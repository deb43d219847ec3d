/* sockets.c - see sockets.h. Landlock knows rules that allow, and none that except: so each folder at the top is
 * allowed but those. Moving between folders (REFER) stays as it was, but into one that allows more. */
#include "sandboxd/init/sockets.h"

#include "shared/base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ABI_WITH_REFER = 2 };

static const uint64_t MAKE_SOCKET = 1ULL << 9, REFER = 1ULL << 13; /* older headers lack the second */

/* `name` is a folder of /. */
static bool holds_volume(const struct li_become *to, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < to->volume_count; i++) {
        const char *path = to->volumes[i].path + strspn(to->volumes[i].path, "/");
        if (strncmp(path, name, length) == 0 && (path[length] == '/' || path[length] == '\0'))
            return true;
    }
    return false;
}

static bool allow(int ruleset, int folder, uint64_t access, struct error *err)
{
    const struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = folder};
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0U) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "landlock: add a rule");
}

static bool allow_entry(int ruleset, int top, const struct dirent *entry, const struct li_become *to, struct error *err)
{
    bool is_one = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (!is_one || holds_volume(to, entry->d_name))
        return true;
    AUTO_FD int folder = openat(top, entry->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return folder < 0 || allow(ruleset, folder, MAKE_SOCKET, err); /* a link, or no folder */
}

static bool allow_others(int ruleset, const struct li_become *to, struct error *err)
{
    DIR *top = opendir("/");
    if (top == NULL)
        return error_set_errno(err, ERROR_INTERNAL, "landlock: open /");
    bool ok = allow(ruleset, dirfd(top), REFER, err);
    for (const struct dirent *entry = readdir(top); entry && ok; entry = readdir(top))
        ok = allow_entry(ruleset, dirfd(top), entry, to, err);
    closedir(top);
    return ok;
}

bool sockets_keep_out_of_volumes(const struct li_become *to, struct error *err)
{
    const uint64_t handled = MAKE_SOCKET | REFER; /* the head of struct landlock_ruleset_attr, of all versions */
    if (to->volume_count == 0 ||
        syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION) < ABI_WITH_REFER)
        return true;
    AUTO_FD int ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0U);
    if (ruleset < 0)
        return error_set_errno(err, ERROR_INTERNAL, "landlock: make a ruleset");
    if (!allow_others(ruleset, to, err))
        return false;
    return syscall(SYS_landlock_restrict_self, ruleset, 0U) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "landlock: keep sockets out of volumes");
}
