/* beneath_test.c - a path walked by hand ends where openat2(2) ends, and outside nowhere: each of many paths is opened
 * both ways, and both must give the same file or fail alike. */
#include "shared/base/beneath.h"

#include "shared/base/fd.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char folder[64];
static int top;

static void make_world(void)
{
    static const char *const FOLDERS[] = {"scope", "scope/in", "scope/in/deep", "outside", "outside/more"};
    static const struct {
        const char *to, *name;
    } LINKS[] = {
        {"in", "scope/fine"},
        {"../outside", "scope/out"},
        {"/etc", "scope/absolute"},
        {"in/../in/file", "scope/up"},
        {"loop", "scope/loop"},
        {"deep/..", "scope/in/here"},
        {"../../outside", "scope/in/far"},
        {"fine/deep", "scope/chain"},
        {"no-such", "scope/nowhere"},
        {"chain/", "scope/slashed"},
        {"in/file/", "scope/file-slashed"},
        {"..", "scope/in/deep/one-up"},
        {".", "scope/self"},
        {"/in/file", "scope/rooted"},
    };
    struct error err;
    CHECK(text_format(folder, sizeof folder, "/tmp/beneath-%d", getpid()));
    CHECK(mkdir(folder, 0755) == 0);
    top = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++)
        CHECK(mkdirat(top, FOLDERS[i], 0755) == 0);
    for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++)
        CHECK(symlinkat(LINKS[i].to, top, LINKS[i].name) == 0);
    static const char *const FILES[] = {"scope/in/file", "outside/secret", "scope/in/deep/leaf"};
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        AUTO_FD int fd = openat(top, FILES[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        CHECK(fd >= 0 && fd_write_all(fd, FILES[i], strlen(FILES[i]), &err));
    }
}

static void remove_world(void)
{
    struct error err;
    close(top);
    CHECK(fd_remove_tree(folder, &err));
}

static const char *const PATHS[] = {
    ".",
    "..",
    "/",
    "",
    "in",
    "in/",
    "in/file",
    "in/file/",
    "in//file",
    "in/./file",
    "in/../in/file",
    "in/../../outside",
    "../outside/secret",
    "fine",
    "fine/",
    "fine/file",
    "out",
    "out/",
    "out/secret",
    "absolute",
    "absolute/passwd",
    "up",
    "loop",
    "loop/x",
    "in/here/file",
    "in/far",
    "in/far/secret",
    "chain",
    "chain/leaf",
    "chain/../file",
    "nowhere",
    "nowhere/x",
    "slashed",
    "slashed/leaf",
    "file-slashed",
    "in/deep/one-up/file",
    "self/self/in/file",
    "rooted",
    "/in/file",
    "in/deep/../../../outside/secret",
    "in/deep/../../..",
    "chain/../../..",
    "chain/../..",
    "in/file/..",
    "no/such",
    "in/deep/../deep/./leaf",
    "out/../scope/in/file",
    "//in///file//",
    "fine/deep/one-up/../in/file",
    "...",
    "in/deep/..",
};

static const uint64_t RESOLVES[] = {
    RESOLVE_BENEATH,
    RESOLVE_IN_ROOT,
    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS,
};

static const unsigned FLAGS[] = {
    O_PATH,
    O_RDONLY,
    O_RDONLY | O_NONBLOCK,
    O_PATH | O_NOFOLLOW,
    O_RDONLY | O_NOFOLLOW,
    O_PATH | O_DIRECTORY,
    O_RDONLY | O_DIRECTORY,
    O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
    O_PATH | O_DIRECTORY | O_NOFOLLOW,
    O_RDWR,
};

static bool is_same(int a, int b)
{
    struct stat of_a, of_b;
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

static void compare(int scope, const char *path, uint64_t resolve, unsigned flags)
{
    const struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
    AUTO_FD int by_kernel = (int)syscall(SYS_openat2, scope, path, &how, sizeof how);
    int kernels = errno;
    AUTO_FD int by_hand = beneath_walk(scope, path, &how);
    int hands = errno;
    bool is_alike = by_kernel >= 0 ? by_hand >= 0 && is_same(by_kernel, by_hand) : by_hand < 0 && kernels == hands;
    if (is_alike && by_kernel >= 0)
        is_alike = ((fcntl(by_kernel, F_GETFL) ^ fcntl(by_hand, F_GETFL)) & (O_ACCMODE | O_NONBLOCK | O_PATH)) == 0 &&
                   (fcntl(by_hand, F_GETFD) & FD_CLOEXEC);
    if (!is_alike)
        fprintf(stderr, "\"%s\" resolve %llx flags %o: kernel %d %s, hand %d %s\n", path, (unsigned long long)resolve,
                flags, by_kernel, by_kernel < 0 ? strerror(kernels) : "", by_hand, by_hand < 0 ? strerror(hands) : "");
    CHECK(is_alike);
}

static void test_both_ways_agree(void)
{
    AUTO_FD int scope = openat(top, "scope", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof PATHS / sizeof *PATHS; i++)
        for (size_t j = 0; j < sizeof RESOLVES / sizeof *RESOLVES; j++)
            for (size_t k = 0; k < sizeof FLAGS / sizeof *FLAGS; k++)
                compare(scope, PATHS[i], RESOLVES[j], FLAGS[k]);
}

static void test_another_file_system_is_not_entered(void)
{
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
    AUTO_FD int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(beneath_walk(root, "proc/version", &how) < 0 && errno == EXDEV);
    AUTO_FD int etc = beneath_walk(root, "etc", &how);
    CHECK(etc >= 0);
}

static void test_a_name_is_made_where_no_link_is(void)
{
    const struct open_how how = {
        .flags = O_WRONLY | O_CREAT, .mode = 0640, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    struct stat status;
    AUTO_FD int made = beneath_walk(top, "scope/in/new", &how);
    CHECK(made >= 0 && fstat(made, &status) == 0 && (status.st_mode & 0777) == 0640);
    CHECK(beneath_walk(top, "scope/nowhere", &how) < 0 && errno == ELOOP);
    CHECK(beneath_walk(top, "scope/fine/new", &how) < 0 && errno == ELOOP);
    const struct open_how loose = {.flags = O_WRONLY | O_CREAT, .mode = 0640, .resolve = RESOLVE_BENEATH};
    CHECK(beneath_walk(top, "scope/in/new", &loose) < 0 && errno == EINVAL);
}

static void test_what_is_too_long_is_refused(void)
{
    char path[PATH_MAX + 2];
    const struct open_how how = {.flags = O_PATH, .resolve = RESOLVE_BENEATH};
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = 0;
    CHECK(beneath_walk(top, path, &how) < 0 && errno == ENAMETOOLONG);
    path[NAME_MAX + 1] = 0;
    CHECK(beneath_walk(top, path, &how) < 0 && errno == ENAMETOOLONG);
    const struct open_how open_to_all = {.flags = O_PATH};
    CHECK(beneath_walk(top, "scope", &open_to_all) < 0 && errno == EINVAL);
}

int main(void)
{
    make_world();
    test_both_ways_agree();
    test_another_file_system_is_not_entered();
    test_a_name_is_made_where_no_link_is();
    test_what_is_too_long_is_refused();
    remove_world();
    return check_done();
}
