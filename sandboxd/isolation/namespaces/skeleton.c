#include "sandboxd/isolation/namespaces/skeleton.h"

#include "sandboxd/init/inherit.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    VERSION = 3 /* in the stamp: a new one makes a new skeleton */,
    FILE_MAX_BYTES = 4 * 1024 * 1024,
    DEPTH_MAX = 6,
    LINK_BYTES = 4096
};

/* --- what it holds --- */

static const char *const LINKS[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}; /* to usr/..., as on the host */

static const struct folder_row {
    const char *path;
    mode_t mode;
    uid_t owner;
} FOLDERS[] = {
    {"usr", 0755, 0},
    {"etc", 0755, 0},
    {"var", 0755, 0},
    {"var/tmp", 01777, 0},
    {"var/lib", 0755, 0},
    {"var/cache", 0755, 0},
    {"var/log", 0755, 0},
    {"run", 01777, 0},
    {"tmp", 01777, 0},
    {"root", 0700, 0},
    {"home", 0755, 0},
    {"opt", 0755, 0},
    {"srv", 0755, 0},
    {"mnt", 0755, 0},
    {"media", 0755, 0},
    {"dev", 0755, 0},
    {"proc", 0555, 0},
    {"sys", 0555, 0},
    {"workspace", 0755, INHERIT_USER_UID},
    {"etc/ssl", 0755, 0},
    {"run/user", 0755, 0},
    {"run/lock", 01777, 0},
};

static const struct file_row {
    const char *path, *text;
} FILES[] = {
    {"etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
                   "user:x:1000:1000:user:/workspace:/bin/bash\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"etc/group", "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n"},
    {"etc/hostname", "sandbox\n"},
    {"etc/resolv.conf", "nameserver 127.0.0.53\n"},
    {"etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
                          "protocols: files\nservices: files\n"},
    {"etc/shells", "/bin/sh\n/bin/bash\n"},
    {"etc/profile", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PATH\n"
                    "umask 022\n[ -n \"$BASH\" ] && PS1='\\u@\\h:\\w\\$ '\n"},
};

/* Copied from the host's /etc where they exist; a * at the end stands for any rest of the name. */
static const char *const COPIES[] = {"ld.so.cache",
                                     "ld.so.conf",
                                     "ld.so.conf.d",
                                     "alternatives",
                                     "localtime",
                                     "timezone",
                                     "os-release",
                                     "debian_version",
                                     "ssl/certs",
                                     "ssl/openssl.cnf",
                                     "ca-certificates.conf",
                                     "python3*",
                                     "mime.types",
                                     "terminfo",
                                     "services",
                                     "protocols",
                                     "inputrc",
                                     "magic",
                                     "magic.mime",
                                     "perl",
                                     "java*",
                                     "fonts",
                                     "gai.conf",
                                     "host.conf",
                                     "environment.d",
                                     "matplotlibrc",
                                     "R",
                                     "julia"};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* --- copying from the host --- */

/* Nothing that the host keeps from its own users, and no private key that lies about. */
static bool is_public(const struct stat *status, const char *data, size_t size)
{
    static const char KEY[] = "PRIVATE KEY-----";
    return (status->st_mode & S_IROTH) && memmem(data, size, KEY, sizeof KEY - 1) == NULL;
}

static bool write_file(int to, const char *name, mode_t mode, const char *data, size_t size, struct error *err)
{
    AUTO_FD int fd = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchmod(fd, mode) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "create %s of the skeleton", name);
    return fd_write_all(fd, data, size, err);
}

static bool copy_file(int from, const char *name, int to, const char *to_name, struct error *err)
{
    AUTO_FD int fd = openat(from, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat status;
    if (fd < 0 && errno == EACCES) /* an ordinary user's launcher: kept from its user, so not public */
        return true;
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open /etc/.../%s", name);
    if (!S_ISREG(status.st_mode) || status.st_size > FILE_MAX_BYTES)
        return true;
    size_t size = (size_t)status.st_size;
    AUTO_FREE char *data = memory_new(size + 1);
    if (!fd_read_exact(fd, data, size, err))
        return error_prefix(err, "/etc/.../%s", name);
    if (!is_public(&status, data, size))
        return true;
    return write_file(to, to_name, status.st_mode & S_IXOTH ? 0755 : 0644, data, size, err);
}

static bool copy_link(int from, const char *name, int to, const char *to_name, struct error *err)
{
    char target[LINK_BYTES];
    ssize_t length = readlinkat(from, name, target, sizeof target - 1);
    if (length < 0)
        return error_set_errno(err, ERROR_INTERNAL, "read link /etc/.../%s", name);
    target[length] = '\0';
    if (symlinkat(target, to, to_name) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "link %s of the skeleton", to_name);
    return true;
}

static bool copy_entry(int from, const char *name, int to, const char *to_name, unsigned depth, struct error *err);

/* Copies what is in the folder `from` (taken over) into `to`. */
static bool copy_entries(int from, int to, unsigned depth, struct error *err)
{
    DIR *folder = fdopendir(from);
    if (folder == NULL) {
        close(from);
        return error_set_errno(err, ERROR_INTERNAL, "read a folder of /etc");
    }
    bool copied = true;
    for (const struct dirent *entry = readdir(folder); entry && copied; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            copied = copy_entry(dirfd(folder), entry->d_name, to, entry->d_name, depth, err);
    }
    closedir(folder);
    return copied;
}

static bool copy_folder(int from, const char *name, int to, const char *to_name, unsigned depth, struct error *err)
{
    AUTO_FD int source = openat(from, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (source < 0 && errno == EACCES)
        return true;
    if (mkdirat(to, to_name, 0755) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make folder %s of the skeleton", to_name);
    AUTO_FD int into = openat(to, to_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (into < 0 || source < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open folder /etc/.../%s", name);
    return copy_entries(TAKE_FD(source), into, depth - 1, err);
}

static bool copy_entry(int from, const char *name, int to, const char *to_name, unsigned depth, struct error *err)
{
    struct stat status;
    if (fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || error_set_errno(err, ERROR_INTERNAL, "look at /etc/.../%s", name);
    if (S_ISLNK(status.st_mode))
        return copy_link(from, name, to, to_name, err);
    if (S_ISREG(status.st_mode))
        return copy_file(from, name, to, to_name, err);
    bool may_enter = S_ISDIR(status.st_mode) && (status.st_mode & S_IXOTH) && depth > 0;
    return !may_enter || copy_folder(from, name, to, to_name, depth, err);
}

static bool matches(const char *pattern, const char *name)
{
    size_t length = strlen(pattern);
    return length && pattern[length - 1] == '*' ? strncmp(pattern, name, length - 1) == 0 : strcmp(pattern, name) == 0;
}

/* One row of COPIES: a plain path, or a pattern within /etc itself. */
static bool copy_row(int host, int etc, const char *row, struct error *err)
{
    if (strchr(row, '*') == NULL)
        return copy_entry(host, row, etc, row, DEPTH_MAX, err);
    int fd = openat(host, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL)
        return error_set_errno(err, ERROR_INTERNAL, "read /etc");
    bool copied = true;
    for (const struct dirent *entry = readdir(folder); entry && copied; entry = readdir(folder)) {
        if (matches(row, entry->d_name))
            copied = copy_entry(host, entry->d_name, etc, entry->d_name, DEPTH_MAX, err);
    }
    closedir(folder);
    return copied;
}

static bool copy_from_host(int root, struct error *err)
{
    AUTO_FD int host = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int etc = openat(root, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (host < 0 || etc < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open /etc");
    for (size_t i = 0; i < COUNT(COPIES); i++) {
        if (!copy_row(host, etc, COPIES[i], err))
            return false;
    }
    return true;
}

/* --- building --- */

static bool build_links(int root, struct error *err)
{
    for (size_t i = 0; i < COUNT(LINKS); i++) {
        char host[32];
        char target[64];
        snprintf(host, sizeof host, "/%s", LINKS[i]);
        ssize_t length = readlink(host, target, sizeof target - 1);
        if (length < 0 && errno == ENOENT)
            continue;
        target[length > 0 ? length : 0] = '\0';
        const char *relative = target[0] == '/' ? target + 1 : target;
        if (length < 0 || !text_starts_with(relative, "usr/"))
            return error_set(err, ERROR_NOT_FOUND,
                             "%s is not a link into /usr on this host; template base needs a merged /usr", host);
        if (symlinkat(relative, root, LINKS[i]) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "link %s of the skeleton", LINKS[i]);
    }
    return true;
}

static bool build(int root, struct error *err)
{
    if (!build_links(root, err))
        return false;
    for (size_t i = 0; i < COUNT(FOLDERS); i++) {
        const struct folder_row *row = &FOLDERS[i];
        if (mkdirat(root, row->path, 0700) < 0 || fchownat(root, row->path, row->owner, row->owner, 0) < 0 ||
            fchmodat(root, row->path, row->mode, 0) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "make folder %s of the skeleton", row->path);
    }
    for (size_t i = 0; i < COUNT(FILES); i++) {
        if (!write_file(root, FILES[i].path, 0644, FILES[i].text, strlen(FILES[i].text), err))
            return false;
    }
    if (symlinkat("/run", root, "var/run") < 0 || symlinkat("/run/lock", root, "var/lock") < 0)
        return error_set_errno(err, ERROR_INTERNAL, "link var/run of the skeleton");
    return copy_from_host(root, err);
}

/* --- which one --- */

/* Changes when what COPIES names on the host does (its own entries; a package changes the folder's time). FNV-1a. */
static void make_stamp(char stamp[static 17])
{
    uint64_t hash = 14695981039346656037ULL;
    for (size_t i = 0; i <= COUNT(COPIES); i++) {
        char path[64];
        snprintf(path, sizeof path, "/etc/%s", i < COUNT(COPIES) ? COPIES[i] : ".");
        struct stat status = {0};
        bool whole_etc =
            i == COUNT(COPIES); /* stands for the patterns: only that names came or went matters, roughly */
        if (stat(path, &status) < 0 || whole_etc)
            status = (struct stat){.st_nlink = whole_etc ? status.st_nlink : 0};
        uint64_t facts[] = {VERSION,
                            status.st_ino,
                            (uint64_t)status.st_size,
                            (uint64_t)status.st_mtim.tv_sec,
                            (uint64_t)status.st_mtim.tv_nsec,
                            status.st_nlink};
        for (size_t byte = 0; byte < sizeof facts; byte++)
            hash = (hash ^ ((const uint8_t *)facts)[byte]) * 1099511628211ULL;
    }
    snprintf(stamp, 17, "%016" PRIx64, hash);
}

/* Removes half-built ones: "<folder>-*.new". Whole ones that nothing is made of any more the templates remove. */
static void remove_half_built(const char *folder)
{
    const char *slash = strrchr(folder, '/');
    AUTO_FREE char *parent = memory_copy(folder, (size_t)(slash - folder));
    AUTO_FREE char *prefix = memory_printf("%s-", slash + 1);
    DIR *entries = opendir(parent);
    for (const struct dirent *entry = entries ? readdir(entries) : NULL; entry; entry = readdir(entries)) {
        if (!text_starts_with(entry->d_name, prefix) || !strstr(entry->d_name, ".new"))
            continue;
        AUTO_FREE char *path = memory_printf("%s/%s", parent, entry->d_name);
        (void)!fd_remove_tree(path, NULL); /* next time then */
    }
    if (entries)
        closedir(entries);
}

static bool build_at(const char *path, struct error *err)
{
    AUTO_FREE char *rootfs = memory_printf("%s/rootfs", path);
    if (!fd_remove_tree(path, err))
        return false;
    if (mkdir(path, 0755) < 0 || chmod(path, 0755) < 0 || mkdir(rootfs, 0755) < 0 || chmod(rootfs, 0755) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make %s", rootfs);
    AUTO_FD int root = open(rootfs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    return build(root, err);
}

bool skeleton_make(const char *folder, struct error *err)
{
    char stamp[17];
    make_stamp(stamp);
    AUTO_FREE char *whole = memory_printf("%s-%s", folder, stamp);
    AUTO_FREE char *building = memory_printf("%s-%s.new", folder, stamp);
    AUTO_FREE char *link = memory_printf("%s.link", folder);
    const char *name = strrchr(whole, '/') + 1;
    mode_t mask = umask(022);
    bool built = access(whole, F_OK) == 0 || build_at(building, err);
    umask(mask);
    if (!built)
        return error_prefix(err, "template base");
    if (access(whole, F_OK) < 0 && rename(building, whole) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "rename to %s", whole);
    if ((unlink(link) < 0 && errno != ENOENT) || symlink(name, link) < 0 || rename(link, folder) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "link %s", folder);
    remove_half_built(folder);
    return true;
}
