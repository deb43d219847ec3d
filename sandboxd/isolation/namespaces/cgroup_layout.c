#include "sandboxd/isolation/namespaces/cgroup_layout.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROC_FILE_MAX = 1024 * 1024, STEPS_MAX = 20 };

const char *const CGROUP_CONTROLLER_NAMES[CGROUP_CONTROLLERS] = {"memory", "pids", "cpu"};

/* --- what /proc says --- */

/* One cgroup mount: a line of mountinfo (proc_pid_mountinfo(5)). The texts point into the line. */
struct cgroup_mount {
    const char *root, *at, *type, *options;
};

/* Undoes \040 and its like, in place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++, to++) {
        bool octal = from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' &&
                     from[3] >= '0' && from[3] <= '7';
        *to = octal ? (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0')) : *from;
        from += octal ? 3 : 0;
    }
    *to = '\0';
}

/* Splits the line; false for what is no cgroup mount. */
static bool read_mount(char *line, struct cgroup_mount *mount)
{
    char *second = strstr(line, " - ");
    if (second == NULL)
        return false;
    *second = '\0';
    char *rest = NULL;
    for (int skipped = 0; skipped < 3; skipped++) {
        if (strtok_r(skipped ? NULL : line, " ", &rest) == NULL)
            return false;
    }
    char *root = strtok_r(NULL, " ", &rest);
    char *at = strtok_r(NULL, " ", &rest);
    char *rest_of_type = NULL;
    const char *type = strtok_r(second + 3, " ", &rest_of_type);
    const char *source = strtok_r(NULL, " ", &rest_of_type);
    const char *options = strtok_r(NULL, " ", &rest_of_type);
    if (!root || !at || !type || !source || !options || !text_starts_with(type, "cgroup"))
        return false;
    unescape(root);
    unescape(at);
    *mount = (struct cgroup_mount){.root = root, .at = at, .type = type, .options = options};
    return true;
}

/* Whether `word` is in a list separated by one of `separators`. */
static bool has_word(const char *list, const char *word, const char *separators)
{
    size_t length = strlen(word);
    for (const char *at = list; *at;) {
        size_t here = strcspn(at, separators);
        if (here == length && memcmp(at, word, length) == 0)
            return true;
        at += here + (at[here] != '\0');
    }
    return false;
}

/* The own path in the hierarchy with this controller ("" v2), from /proc/self/cgroup: "4:memory:/path". */
static bool own_path(const char *cgroup_file, const char *controller, char to[static CGROUP_PATH_BYTES])
{
    for (const char *line = cgroup_file; *line;) {
        size_t length = strcspn(line, "\n");
        AUTO_FREE char *copy = memory_copy(line, length);
        char *names = strchr(copy, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (path) {
            *path++ = '\0';
            bool found = controller[0] ? has_word(names + 1, controller, ",") : names[1] == '\0';
            if (found)
                return text_copy(to, CGROUP_PATH_BYTES, path);
        }
        line += length + (line[length] != '\0');
    }
    return false;
}

/* The folder of `path` (as /proc/self/cgroup tells it) under a mount that shows the hierarchy from mount->root on. What
 * lies outside of that is not to be seen: then the mount's top is as near as we get. */
static bool folder_of(const char *root, const struct cgroup_mount *mount, const char *path,
                      char to[static CGROUP_PATH_BYTES])
{
    size_t prefix = strcmp(mount->root, "/") == 0 ? 0 : strlen(mount->root);
    bool below = strncmp(path, mount->root, prefix) == 0 && (path[prefix] == '/' || path[prefix] == '\0') &&
                 !strstr(path, "/..");
    const char *rest = below ? path + prefix : "";
    return text_format(to, CGROUP_PATH_BYTES, "%s%s%s", root, mount->at, strcmp(rest, "/") == 0 ? "" : rest);
}

/* --- the choice --- */

/* What was found of one host, before the choice. */
struct findings {
    char own_unified[CGROUP_PATH_BYTES];
    char own_v1[CGROUP_CONTROLLERS][CGROUP_PATH_BYTES];
};

static bool note_mount(const char *root, const struct cgroup_mount *mount, const char *cgroup_file,
                       struct findings *found, struct cgroup_layout *layout)
{
    char path[CGROUP_PATH_BYTES];
    if (strcmp(mount->type, "cgroup2") == 0)
        return own_path(cgroup_file, "", path) && folder_of(root, mount, path, found->own_unified) &&
               text_format(layout->mount, CGROUP_PATH_BYTES, "%s%s", root, mount->at) &&
               text_copy(layout->options, CGROUP_PATH_BYTES, mount->options);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        const char *name = CGROUP_CONTROLLER_NAMES[i];
        if (has_word(mount->options, name, ",") &&
            (!own_path(cgroup_file, name, path) || !folder_of(root, mount, path, found->own_v1[i])))
            return false;
    }
    return true;
}

static bool read_findings(const char *root, struct findings *found, struct cgroup_layout *layout, struct error *err)
{
    AUTO_FREE char *mounts_path = memory_printf("%s/proc/self/mountinfo", root);
    AUTO_FREE char *cgroup_path = memory_printf("%s/proc/self/cgroup", root);
    AUTO_FREE char *mounts = fd_read_file(mounts_path, PROC_FILE_MAX, NULL, err);
    AUTO_FREE char *cgroup_file = mounts ? fd_read_file(cgroup_path, PROC_FILE_MAX, NULL, err) : NULL;
    if (cgroup_file == NULL)
        return false;
    char *rest = NULL;
    for (char *line = strtok_r(mounts, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        struct cgroup_mount mount;
        if (read_mount(line, &mount) && !note_mount(root, &mount, cgroup_file, found, layout))
            return error_set(err, ERROR_INTERNAL, "the cgroup mount at %.100s cannot be made sense of", mount.at);
    }
    if (found->own_unified[0] == '\0')
        return error_set(err, ERROR_NOT_FOUND,
                         "no cgroup v2 hierarchy is mounted (needed to kill and freeze sandboxes): "
                         "mount -t cgroup2 none /sys/fs/cgroup/unified, or boot with it");
    return true;
}

static char *read_in(const char *folder, const char *file)
{
    AUTO_FREE char *path = memory_printf("%s/%s", folder, file);
    return fd_read_file(path, PROC_FILE_MAX, NULL, NULL);
}

/* Whether `folder` is a parent under which limits can be set: it has all controllers that v1 lacks, and, unless it is
 * the real root (which has no cgroup.type), nobody but us is in it. */
static bool is_usable_parent(const char *folder, const struct findings *found)
{
    AUTO_FREE char *controllers = read_in(folder, "cgroup.controllers");
    AUTO_FREE char *type = read_in(folder, "cgroup.type");
    AUTO_FREE char *members = read_in(folder, "cgroup.procs");
    if (!controllers)
        return false;
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (!found->own_v1[i][0] && !has_word(controllers, CGROUP_CONTROLLER_NAMES[i], " \n"))
            return false;
    }
    if (!type || !members || !members[0])
        return true;
    char self[16];
    return text_format(self, sizeof self, "%d\n", (int)getpid()) && strcmp(members, self) == 0;
}

static bool choose(const char *name, const struct findings *found, struct cgroup_layout *layout, struct error *err)
{
    AUTO_FREE char *controllers = read_in(layout->mount, "cgroup.controllers");
    bool all_v1 = true;
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        const char *wanted = CGROUP_CONTROLLER_NAMES[i];
        bool v1 = found->own_v1[i][0] != '\0';
        all_v1 = all_v1 && v1;
        if (!v1 && !(controllers && has_word(controllers, wanted, " \n")))
            return error_set(
                err, ERROR_NOT_FOUND,
                "the %s controller is neither in cgroup v2 (%s) nor mounted as v1: enable it in the kernel "
                "or in the delegation (systemd: Delegate=yes)",
                wanted, layout->mount);
        if (v1 && !text_format(layout->v1[i], CGROUP_PATH_BYTES, "%s/%s", found->own_v1[i], name))
            return error_set(err, ERROR_TOO_LARGE, "the path of the %s cgroup is too long", wanted);
    }
    const char *parent = found->own_unified;
    if (!all_v1 && !is_usable_parent(parent, found))
        parent = layout->mount;
    if (!all_v1 && !is_usable_parent(parent, found))
        return error_set(
            err, ERROR_NOT_FOUND,
            "no cgroup to limit sandboxes under: other processes are in %s; start sandboxd as a service of "
            "its own (systemd: Delegate=yes)",
            found->own_unified);
    if (!text_copy(layout->parent, CGROUP_PATH_BYTES, parent) ||
        !text_format(layout->unified, CGROUP_PATH_BYTES, "%s/%s", parent, name))
        return error_set(err, ERROR_TOO_LARGE, "the path of the own cgroup is too long");
    return true;
}

/* --- an ordinary user's choice --- */

static bool refuse_undelegated(const char *wanted, const char *folder, struct error *err)
{
    return error_set(
        err, ERROR_FORBIDDEN,
        "%s cgroup %.60s is not yours: systemd-run --user --scope -p Delegate=yes ..., or chown it (README, "
        "Rootless)%s",
        wanted, folder, text_equal(wanted, "v2") ? "" : "; or missing_limits allow");
}

/* By who we are here: root of a user namespace may write what is its user's. */
static bool is_ours(const char *folder)
{
    AUTO_FREE char *procs = memory_printf("%s/cgroup.procs", folder);
    return access(folder, W_OK | X_OK) == 0 && access(procs, W_OK) == 0;
}

static bool choose_controller(int controller, const char *name, bool may_miss, const struct findings *found,
                              struct cgroup_layout *layout, struct error *err)
{
    const char *wanted = CGROUP_CONTROLLER_NAMES[controller];
    const char *v1 = found->own_v1[controller];
    AUTO_FREE char *controllers = read_in(found->own_unified, "cgroup.controllers");
    if (v1[0] && is_ours(v1))
        return text_format(layout->v1[controller], CGROUP_PATH_BYTES, "%s/%s", v1, name) ||
               error_set(err, ERROR_TOO_LARGE, "the path of the %s cgroup is too long", wanted);
    if (!v1[0] && controllers && has_word(controllers, wanted, " \n"))
        return true;
    layout->is_missing[controller] = true;
    return may_miss || refuse_undelegated(wanted, v1[0] ? v1 : found->own_unified, err);
}

/* Where a former launcher has stepped aside to (below) its next one is started; the place is the one above. */
static void leave_daemon(char path[static CGROUP_PATH_BYTES])
{
    static const char LAST[] = "/daemon";
    size_t length = strlen(path);
    if (length < sizeof LAST || strcmp(path + length - (sizeof LAST - 1), LAST) != 0)
        return;
    AUTO_FREE char *above = memory_copy(path, length - (sizeof LAST - 1));
    if (is_ours(above))
        (void)!text_copy(path, CGROUP_PATH_BYTES, above);
}

bool cgroup_layout_find_delegated(const char *root, const char *name, bool may_miss, struct cgroup_layout *layout,
                                  struct error *err)
{
    struct findings found = {0};
    struct cgroup_layout chosen = {.is_delegated = true};
    if (!read_findings(root, &found, &chosen, err))
        return false;
    leave_daemon(found.own_unified);
    if (!is_ours(found.own_unified))
        return refuse_undelegated("v2", found.own_unified, err);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (!choose_controller(i, name, may_miss, &found, &chosen, err))
            return false;
    }
    if (!text_copy(chosen.parent, CGROUP_PATH_BYTES, found.own_unified) ||
        !text_format(chosen.unified, CGROUP_PATH_BYTES, "%s/%s", found.own_unified, name))
        return error_set(err, ERROR_TOO_LARGE, "the path of the own cgroup is too long");
    *layout = chosen;
    return true;
}

bool cgroup_layout_find_own(const char *root, char own[static CGROUP_PATH_BYTES], struct error *err)
{
    struct findings found = {0};
    struct cgroup_layout layout = {0};
    return read_findings(root, &found, &layout, err) && text_copy(own, CGROUP_PATH_BYTES, found.own_unified);
}

/* From now on it counts as our own. */
static bool take_kept(const char *kept, struct findings *found, const struct cgroup_layout *layout, struct error *err)
{
    bool fits = kept[0] == '/' && !strstr(kept, "/..") &&
                text_format(found->own_unified, CGROUP_PATH_BYTES, "%s%s", layout->mount, kept);
    AUTO_FREE char *type = fits ? read_in(found->own_unified, "cgroup.type") : NULL;
    return type || error_set(err, ERROR_NOT_FOUND,
                             "there is no v2 cgroup %.120s for sandboxes: is who keeps it running "
                             "(parley-sandboxd --keep-cgroup)?",
                             kept);
}

bool cgroup_layout_find(const char *root, const char *name, const char *kept, struct cgroup_layout *layout,
                        struct error *err)
{
    struct findings found = {0};
    struct cgroup_layout chosen = {0};
    if (!read_findings(root, &found, &chosen, err) || (kept && !take_kept(kept, &found, &chosen, err)) ||
        !choose(name, &found, &chosen, err))
        return false;
    *layout = chosen;
    return true;
}

bool cgroup_layout_has_v1(const struct cgroup_layout *layout)
{
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (layout->v1[i][0])
            return true;
    }
    return false;
}

/* --- making it --- */

static bool write_in(const char *folder, const char *file, const char *value)
{
    AUTO_FREE char *path = memory_printf("%s/%s", folder, file);
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
}

/* Enables the controllers that are not on v1 for the children of `folder`. */
static bool enable(const struct cgroup_layout *layout, const char *folder)
{
    char wanted[64] = "";
    AUTO_FREE char *now = read_in(folder, "cgroup.subtree_control");
    for (int i = 0; now && i < CGROUP_CONTROLLERS; i++) {
        const char *name = CGROUP_CONTROLLER_NAMES[i];
        size_t length = strlen(wanted);
        if (!layout->v1[i][0] && !layout->is_missing[i] && !has_word(now, name, " \n") &&
            !text_format(wanted + length, sizeof wanted - length, "%s+%s", length ? " " : "", name))
            return false;
    }
    return now && (wanted[0] == '\0' || write_in(folder, "cgroup.subtree_control", wanted));
}

static bool make_folder(const char *path, struct error *err)
{
    if (mkdir(path, 0755) == 0 || errno == EEXIST)
        return true;
    return error_set_errno(err, ERROR_INTERNAL, "make cgroup %s", path);
}

/* A user's scope holds who started us, too: `parley up`, the negotiator. Who comes or goes meanwhile fails enabling. */
static void move_all(const char *from, const char *to)
{
    AUTO_FREE char *members = read_in(from, "cgroup.procs");
    char *rest = NULL;
    for (char *pid = members ? strtok_r(members, "\n", &rest) : NULL; pid; pid = strtok_r(NULL, "\n", &rest))
        (void)write_in(to, "cgroup.procs", pid);
}

/* "No internal processes" (cgroups(7)): the parent cannot hold us and give its controllers to children. */
static bool step_aside(const struct cgroup_layout *layout, struct error *err)
{
    AUTO_FREE char *daemon = memory_printf("%s/daemon", layout->parent);
    if (!make_folder(daemon, err))
        return false;
    if (layout->is_delegated)
        move_all(layout->parent, daemon);
    return write_in(daemon, "cgroup.procs", "0") || error_set_errno(err, ERROR_INTERNAL, "move to cgroup %s", daemon);
}

/* In a user's scope others may be forking meanwhile: then it is tried again. */
static bool enable_parent(const struct cgroup_layout *layout, struct error *err)
{
    for (int tried = 0; !enable(layout, layout->parent); tried++) {
        if (errno != EBUSY || tried == (layout->is_delegated ? STEPS_MAX : 1))
            return error_set_errno(err, ERROR_INTERNAL, "enable controllers in %s", layout->parent);
        if (!step_aside(layout, err))
            return false;
    }
    return true;
}

bool cgroup_layout_make(const struct cgroup_layout *layout, struct error *err)
{
    if (!enable_parent(layout, err))
        return false;
    if (!make_folder(layout->unified, err))
        return false;
    if (!enable(layout, layout->unified))
        return error_set_errno(err, ERROR_INTERNAL, "enable controllers in %s", layout->unified);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (layout->v1[i][0] && !make_folder(layout->v1[i], err))
            return false;
    }
    return true;
}

void cgroup_layout_remove(const struct cgroup_layout *layout)
{
    /* v2 last: a slot that is left in there has its v1 folders yet. */
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (layout->v1[i][0])
            rmdir(layout->v1[i]);
    }
    rmdir(layout->unified);
}

/* The options of the superblock without those that mount(2) takes as flags. A remount would drop what it does not name
 * (kernel/cgroup/cgroup.c, apply_cgroup_root_flags). */
static bool remount_options(const char *options, char *to, size_t size)
{
    AUTO_FREE char *copy = memory_string(options);
    AUTO_TEXT all = {0};
    char *rest = NULL;
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (strcmp(word, "rw") != 0 && strcmp(word, "ro") != 0)
            text_append_format(&all, "%s,", word);
    }
    text_append_string(&all, "favordynmods");
    return text_copy(to, size, all.data);
}

bool cgroup_layout_favor_moves(const struct cgroup_layout *layout, struct error *err)
{
    if (has_word(layout->options, "favordynmods", ","))
        return true;
    char options[CGROUP_PATH_BYTES];
    if (!remount_options(layout->options, options, sizeof options))
        return error_set(err, ERROR_TOO_LARGE, "the options of %s are too long", layout->mount);
    /* Through the new API only the superblock is changed, not the flags of this one mount. */
    AUTO_FD int context = fspick(AT_FDCWD, layout->mount, FSPICK_CLOEXEC);
    char *rest = NULL;
    for (char *word = strtok_r(options, ",", &rest); context >= 0 && word; word = strtok_r(NULL, ",", &rest)) {
        if (fsconfig(context, FSCONFIG_SET_FLAG, word, NULL, 0) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "cgroup2 option %s", word);
    }
    if (context < 0 || fsconfig(context, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "remount %s with favordynmods", layout->mount);
    return true;
}

/* --- for the next launcher --- */

static const char MISSING[] = "missing";

bool cgroup_layout_save(const struct cgroup_layout *layout, const char *file, struct error *err)
{
    char boot[CLOCK_BOOT_ID_BYTES];
    clock_boot_id(boot);
    AUTO_TEXT all = {0};
    text_append_format(&all, "%s\n%s\n%s\n%s\n%s\n", boot, layout->mount, layout->options, layout->parent,
                       layout->unified);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++)
        text_append_format(&all, "%s\n", layout->is_missing[i] ? MISSING : layout->v1[i]);
    return fd_write_file(file, 0600, all.data, all.length, err);
}

/* Takes one line off `*at` into `to`. */
static bool take_line(const char **at, char *to, size_t size)
{
    size_t length = strcspn(*at, "\n");
    if ((*at)[length] != '\n' || length >= size)
        return false;
    memcpy(to, *at, length);
    to[length] = '\0';
    *at += length + 1;
    return true;
}

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

bool cgroup_layout_load(struct cgroup_layout *layout, const char *file)
{
    AUTO_FREE char *all = fd_read_file(file, 8192, NULL, NULL);
    const char *at = all ? all : "";
    char boot[CLOCK_BOOT_ID_BYTES];
    char boot_then[CLOCK_BOOT_ID_BYTES];
    clock_boot_id(boot);
    struct cgroup_layout read = {0};
    bool whole = take_line(&at, boot_then, sizeof boot_then) && take_line(&at, read.mount, CGROUP_PATH_BYTES) &&
                 take_line(&at, read.options, CGROUP_PATH_BYTES) && take_line(&at, read.parent, CGROUP_PATH_BYTES) &&
                 take_line(&at, read.unified, CGROUP_PATH_BYTES);
    for (int i = 0; whole && i < CGROUP_CONTROLLERS; i++) {
        whole = take_line(&at, read.v1[i], CGROUP_PATH_BYTES);
        read.is_missing[i] = whole && strcmp(read.v1[i], MISSING) == 0;
        if (read.is_missing[i])
            read.v1[i][0] = '\0';
        whole = whole && (!read.v1[i][0] || is_folder(read.v1[i]));
    }
    if (!whole || strcmp(boot, boot_then) != 0 || !is_folder(read.unified))
        return false;
    *layout = read;
    return true;
}
