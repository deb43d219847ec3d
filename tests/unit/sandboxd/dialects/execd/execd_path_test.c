/* execd_path_test.c - what paths of OpenSandbox's clients name. */
#include "sandboxd/dialects/execd/execd_path.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

static bool find(const void *cookie, const char *name, char *to, size_t size)
{
    const char *const *pairs = cookie;
    for (; *pairs; pairs += 2)
        if (strcmp(pairs[0], name) == 0)
            return text_copy(to, size, pairs[1]);
    return false;
}

static const char *const VARIABLES[] = {"HOME", "/home/me", "A", "a/b", "ROOT", "/", "UP", "..", "EMPTY", "", NULL};

static void test_paths(void)
{
    static const char *const PAIRS[][2] = {{"/", "/"},
                                           {"/a/b", "/a/b"},
                                           {"//a///b/", "/a/b"},
                                           {"/a/./b/../c", "/a/c"},
                                           {"/../../etc", "/etc"},
                                           {"x/y", "/start/x/y"},
                                           {"../x", "/x"},
                                           {".", "/start"},
                                           {"~", "/home/me"},
                                           {"~/x", "/home/me/x"},
                                           {"~other/x", "/start/~other/x"},
                                           {"/x/~", "/x/~"},
                                           {"$HOME/x", "/home/me/x"},
                                           {"${HOME}x", "/home/mex"},
                                           {"$A", "/start/a/b"},
                                           {"/x/${UP}/y", "/y"},
                                           {"/x$EMPTY", "/x"},
                                           {"/cost$", "/cost$"},
                                           {"/cost$.txt", "/cost$.txt"},
                                           {"/cost$5", "/cost$5"},
                                           {"/a${HOME", "/a${HOME"},
                                           {"/\xff\xfe", "/\xff\xfe"},
                                           {"/a b\n", "/a b\n"}};
    for (size_t i = 0; i < sizeof PAIRS / sizeof PAIRS[0]; i++) {
        struct error err = {0};
        AUTO_FREE char *path = execd_path_resolve(PAIRS[i][0], "/start", find, VARIABLES, &err);
        CHECK_TEXT(path ? path : err.message, PAIRS[i][1]);
    }
}

static void test_what_is_none(void)
{
    static char LONG[5000];
    static const char *const WRONG[] = {"", "$NOTHING/x", "/a/$NOTHING", "${EMPTY}", LONG};
    memset(LONG, 'x', sizeof LONG - 1);
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        struct error err = {0};
        AUTO_FREE char *path = execd_path_resolve(WRONG[i], "/start", find, VARIABLES, &err);
        CHECK(path == NULL && err.kind == ERROR_INVALID);
    }
    LONG[4094] = 0; /* with the folder before it, it is too long */
    struct error err = {0};
    AUTO_FREE char *path = execd_path_resolve(LONG, "/start", find, VARIABLES, &err);
    CHECK(path == NULL && err.kind == ERROR_INVALID);
}

int main(void)
{
    test_paths();
    test_what_is_none();
    return check_done();
}
