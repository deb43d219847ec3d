/* glob_test.c - patterns one by one, then over a tree. */
#include "sandboxd/helpers/files/glob_pattern.h"

#include "tests/unit/sandboxd/helpers/files/tree_rig.h"

static bool matches(const char *text, const char *path)
{
    struct error err = {0};
    AUTO(glob_pattern) *pattern = glob_pattern_parse(text, GLOB_EXACT, &err);
    if (pattern == NULL)
        (void)fprintf(stderr, "%s: %s\n", text, err.message);
    CHECK(pattern != NULL);
    return pattern && glob_pattern_matches(pattern, path, false);
}

static void test_names(void)
{
    static const struct {
        const char *pattern, *path;
        bool is_match;
    } CASES[] = {
        {"*.c", "a.c", true},
        {"*.c", "a.h", false},
        {"*.c", ".c", false},
        {".*", ".c", true},
        {"\\.*", ".c", true},
        {"[.]c", ".c", false},
        {"?", ".", false},
        {"*", "a/b", false},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "aXbYbZ", false},
        {"a**c", "abc", true},
        {"?\?", "ab", true},
        {"?", "ab", false},
        {"?", "\xc3\xa4", true},
        {"?", "\xff", true},
        {"?\?", "\xc3\xff", true},
        {"[\xc3\xa0-\xc3\xbf]", "\xc3\xa4", true},
        {"[a-c]x", "bx", true},
        {"[!a-c]x", "bx", false},
        {"[^a-c]x", "dx", true},
        {"[]a]", "]", true},
        {"[a-]", "-", true},
        {"[\\]]", "]", true},
        {"[abc", "[abc", true},
        {"[abc", "a", false},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"{a,b}.c", "b.c", true},
        {"{a,b}.c", "c.c", false},
        {"{a,b{1,2}}", "b2", true},
        {"{a,b{1,2}}", "b", false},
        {"{,x}a", "a", true},
        {"{a}", "{a}", true},
        {"{a", "{a", true},
        {"a}", "a}", true},
        {"[{,}]", ",", true},
        {"{src,test}/*.{c,h}", "test/x.h", true},
        {"**/x", "x", true},
        {"**/x", "a/b/x", true},
        {"**/x", "a/.b/x", false},
        {"**/.b/x", "a/.b/x", true},
        {"a/**/b", "a/b", true},
        {"a/**/b", "a/1/2/3/b", true},
        {"a/**/b", "a/1/2/3/c", false},
        {"a/**", "a/1/2", true},
        {"a/**", "a", false},
        {"**", "a/b/c", true},
        {"**/**/x", "x", true},
        {"a/b", "a", false},
        {"a", "a/b", false},
        {"a/", "a", false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        bool is_match = matches(CASES[i].pattern, CASES[i].path);
        if (is_match != CASES[i].is_match)
            (void)fprintf(stderr, "\"%s\" and \"%s\"\n", CASES[i].pattern, CASES[i].path);
        CHECK(is_match == CASES[i].is_match);
    }
}

static void test_refused(void)
{
    static const char *const BAD[] = {"",       "/a", "a//b",   "./a",
                                      "a/../b", "/",  "{a,/b}", "{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}"};
    struct error err = {0};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        AUTO(glob_pattern) *pattern = glob_pattern_parse(BAD[i], GLOB_EXACT, &err);
        CHECK(pattern == NULL && err.kind == ERROR_INVALID);
    }
    AUTO_FREE char *parts = memory_new(2 * 64 + 1);
    for (size_t i = 0; i < 64; i++)
        memcpy(parts + 2 * i, "a/", 3);
    parts[127] = '\0'; /* 64 parts */
    AUTO(glob_pattern) *pattern = glob_pattern_parse(parts, GLOB_EXACT, &err);
    CHECK(pattern == NULL);
    parts[125] = '\0';
    AUTO(glob_pattern) *fits = glob_pattern_parse(parts, GLOB_EXACT, &err);
    CHECK(fits != NULL && glob_pattern_matches(fits, parts, false));
}

/* Each of these took exponential time if every star, or every list, were tried with every other. */
static void test_cost(void)
{
    char name[256], text[FRONT_FILES_TEXT_MAX + 1];
    memset(name, 'a', 255);
    name[255] = '\0';
    uint64_t before = clock_monotonic_ns();
    for (size_t i = 0; i < 2000; i++)
        memcpy(text + 2 * i, "a*", 3);
    CHECK(!matches("a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", name) && !matches(text, name));
    static const char PARTS[] = "**/a*/**/a*/**/a*/**/a*/**/a*/**/a*/**/b";
    char path[2048];
    for (size_t i = 0; i < 1000; i++)
        memcpy(path + 2 * i, "a/", 3);
    path[1999] = '\0';
    CHECK(!matches(PARTS, path));
    memset(text, '{', FRONT_FILES_TEXT_MAX);
    text[FRONT_FILES_TEXT_MAX] = '\0';
    CHECK(!matches(text, name));
    memset(text, '[', FRONT_FILES_TEXT_MAX);
    CHECK(!matches(text, name));
    for (size_t i = 0; i + 1 < FRONT_FILES_TEXT_MAX; i += 2)
        memcpy(text + i, "{[", 2);
    CHECK(!matches(text, name));
    CHECK(clock_monotonic_ns() - before < 5000000000);
}

static void test_tree(struct rig *rig)
{
    static const char *const FOLDERS[] = {"p", "p/src", "p/src/lib", "p/.git", "p/docs"};
    static const char *const NAMES[] = {"p/src/a.c",  "p/src/lib/b.c", "p/src/lib/B.C",
                                        "p/.git/x.c", "p/docs/c.md",   "p/d.c"};
    for (size_t i = 0; i < 5; i++)
        rig_folder(rig, FOLDERS[i]);
    for (size_t i = 0; i < 6; i++)
        rig_file(rig, NAMES[i], "text");
    CHECK(symlinkat("..", rig->root, "p/src/up") == 0);
    CHECK(symlinkat("a.c", rig->root, "p/src/link.c") == 0);
    static const struct {
        const char *pattern, *paths;
        uint32_t flags;
    } CASES[] = {
        {"**/*.c", "d.c src/a.c src/lib/b.c src/link.c", 0},
        {"**/*.c", "d.c src/a.c src/lib/B.C src/lib/b.c src/link.c", FILES_IGNORE_CASE},
        {"SRC/*.C", "src/a.c src/link.c", FILES_IGNORE_CASE},
        {".*/*", ".git/x.c", 0},
        {"*/", "docs src", 0},
        {"src/up/*", "", 0},
        {"src/**", "src/a.c src/lib src/lib/B.C src/lib/b.c src/link.c src/up", 0},
        {"{docs,src/lib}/*.{md,c}", "docs/c.md src/lib/b.c", 0},
        {"none/*", "", 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct files_request request = {
            .operation = FILES_GLOB, .path = "/p", .pattern = CASES[i].pattern, .flags = CASES[i].flags};
        struct answer answer = rig_ask(rig, &request);
        CHECK_PATHS(&answer, CASES[i].paths);
        CHECK(answer.end.kind == FILES_DONE && answer.end.count == answer.count);
        answer_done(&answer);
    }
    struct files_request request = {.operation = FILES_GLOB, .path = "/p", .pattern = "**/*.c", .limit = 2};
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.count == 2 && answer.end.is_truncated && answer.all[1].record.version.size == 4);
    answer_done(&answer);
    request.pattern = "../x";
    struct files_record end = rig_end(rig, &request);
    check_error(&end, ERROR_INVALID, "part");
}

/* Deeper than folders are kept open, and back up again: behind each `d` comes a file. */
static void test_deep(struct rig *rig)
{
    rig_deep(rig, "d", 1000);
    rig_file(rig, "d/z", "behind");
    rig_file(rig, "d/d/z", "behind");
    struct files_request request = {.operation = FILES_GLOB, .path = "/d", .pattern = "**/{end,z}"};
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.count == 3 && answer.end.skipped == 0);
    CHECK(answer.count == 3 && strlen(answer.all[0].path) == 999 * 2 + 3);
    CHECK_TEXT(answer.all[1].path, "d/z");
    CHECK_TEXT(answer.all[2].path, "z");
    answer_done(&answer);
}

/* Beyond what a path may be, things are counted. */
static void test_too_deep(struct rig *rig)
{
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    rig_deep(rig, name, 20);
    struct files_request request = {.operation = FILES_GLOB, .path = "/", .pattern = "n*/**"};
    struct answer answer = rig_ask(rig, &request);
    CHECK(answer.count == 15 && answer.end.skipped == 1);
    answer_done(&answer);
}

int main(void)
{
    test_names();
    test_refused();
    test_cost();
    struct rig rig;
    rig_open(&rig);
    test_tree(&rig);
    test_deep(&rig);
    test_too_deep(&rig);
    rig_close(&rig);
    return check_done();
}
