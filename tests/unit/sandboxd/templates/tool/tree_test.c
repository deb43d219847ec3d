/* The tree: names that leave it are refused, links in it mean what they mean to who has it as /, whatever lies around.
 */
#include "sandboxd/templates/tool/tree.h"

#include "sandboxd/templates/tool/inodes.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char above[] = "/tmp/parley-tree-XXXXXX";

static void test_paths(void)
{
    static const char *const GOOD[][2] = {{"a", "a"}, {"./a", "a"},   {"a/", "a"},    {"a//b/./c", "a/b/c"}, {".", ""},
                                          {"./", ""}, {"..a", "..a"}, {"a..", "a.."}, {"...", "..."}};
    static const char *const BAD[] = {"", "/", "/a", "..", "../a", "a/..", "a/../b", "./..", "a//..//b"};
    struct error err = {0};
    char path[TREE_PATH_BYTES] = "untouched";
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        CHECK(tree_path(GOOD[i][0], path, &err));
        CHECK_TEXT(path, GOOD[i][1]);
    }
    snprintf(path, sizeof path, "untouched");
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(!tree_path(BAD[i], path, &err) && err.kind == ERROR_INVALID);
    CHECK_TEXT(path, "untouched");
    char longest[5000];
    memset(longest, 'x', sizeof longest);
    longest[255] = '\0';
    CHECK(tree_path(longest, path, &err));
    longest[255] = 'x';
    longest[256] = '\0';
    CHECK(!tree_path(longest, path, &err));
    for (size_t i = 0; i < sizeof longest; i++)
        longest[i] = i % 200 == 199 ? '/' : 'x';
    longest[4999] = '\0';
    CHECK(!tree_path(longest, path, &err));
    longest[4095] = '\0';
    CHECK(tree_path(longest, path, &err) && strlen(path) <= TREE_PATH_BYTES - 1);
    CHECK_TEXT(tree_base("a/b/c"), "c");
    CHECK_TEXT(tree_base("c"), "c");
}

static void make_file(int at, const char *name)
{
    AUTO_FD int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
}

static bool is_there(const char *path)
{
    AUTO_FREE char *whole = memory_printf("%s/%s", above, path);
    struct stat status;
    return lstat(whole, &status) == 0;
}

static int open_tree_root(struct tree *tree)
{
    static const struct tree_limits LIMITS = {.bytes = 100, .entries = 6};
    AUTO_FREE char *path = memory_printf("%s/root", above);
    CHECK(mkdir(path, 0755) == 0);
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tree_init(tree, root, &LIMITS);
    return root;
}

static void test_parents(struct tree *tree)
{
    struct error err = {0};
    CHECK(tree_find_parent(tree, "a/b/c", &err) < 0 && err.kind == ERROR_NOT_FOUND);
    int parent = tree_parent(tree, "a/b/c", &err);
    CHECK(parent >= 0);
    make_file(parent, "c");
    CHECK(is_there("root/a/b/c") && tree->entries == 2);
    CHECK(tree_find_parent(tree, "a/b/d", &err) == parent); /* kept */
    CHECK(tree_parent(tree, "a/b/c/x", &err) < 0 && err.kind == ERROR_INVALID);
    AUTO_FREE char *outside = memory_printf("%s/outside", above);
    CHECK(mkdir(outside, 0777) == 0);
    CHECK(symlinkat(outside, tree->root, "out") == 0 && symlinkat("../../outside", tree->root, "up") == 0 &&
          symlinkat("/a", tree->root, "in") == 0 && symlinkat("loop", tree->root, "loop") == 0);
    parent = tree_parent(tree, "in/b/e", &err);
    CHECK(parent >= 0);
    make_file(parent, "e");
    CHECK(is_there("root/a/b/e"));
    /* They lead nowhere in the tree, and out of it never. */
    CHECK(tree_parent(tree, "out/x", &err) < 0 && err.kind == ERROR_INVALID);
    CHECK(tree_parent(tree, "up/x", &err) < 0 && err.kind == ERROR_INVALID);
    CHECK(tree_parent(tree, "loop/x", &err) < 0 && err.kind == ERROR_INVALID);
    CHECK(!is_there("outside/x"));
}

static void test_remove(struct tree *tree)
{
    struct error err = {0};
    AUTO_FREE char *kept = memory_printf("%s/outside/kept", above);
    CHECK(mkdir(kept, 0700) == 0);
    int parent = tree_parent(tree, "out", &err);
    CHECK(tree_remove(tree, parent, "out", &err) && tree_remove(tree, parent, "never", &err));
    CHECK(!is_there("root/out") && is_there("outside/kept")); /* the link, not what it leads to */
    parent = tree_parent(tree, "a/b", &err);
    CHECK(tree_remove(tree, parent, "b", &err));
    CHECK(!is_there("root/a/b") && is_there("root/a"));
    /* A parent that was kept and is gone is not used again. */
    CHECK(tree_parent(tree, "a/b/c", &err) >= 0 && is_there("root/a/b"));
}

static void test_counts(struct tree *tree)
{
    struct error err = {0};
    while (tree->entries < 6)
        CHECK(tree_count_entry(tree, &err));
    CHECK(!tree_count_entry(tree, &err) && err.kind == ERROR_TOO_LARGE);
    CHECK(tree_count_bytes(tree, 100, &err) && tree_count_bytes(tree, 0, &err));
    CHECK(!tree_count_bytes(tree, 1, &err) && err.kind == ERROR_TOO_LARGE);
    CHECK(!tree_count_bytes(tree, UINT64_MAX, &err) && tree->bytes == 100);
}

static void test_inodes(void)
{
    struct inodes set = {0};
    CHECK(!inodes_has(&set, 1));
    for (uint64_t i = 1; i < 20000; i += 3)
        inodes_add(&set, i);
    for (uint64_t i = 0; i < 20000; i++)
        CHECK(inodes_has(&set, i) == (i % 3 == 1));
    inodes_add(&set, 1);
    CHECK(set.count == 6667);
    inodes_done(&set);
    CHECK(!inodes_has(&set, 1));
}

int main(void)
{
    AUTO_TREE tree;
    if (mkdtemp(above) == NULL)
        return 1;
    AUTO_FD int root = open_tree_root(&tree);
    test_paths();
    test_parents(&tree);
    test_remove(&tree);
    test_counts(&tree);
    test_inodes();
    CHECK(fd_remove_tree(above, NULL));
    return check_done();
}
