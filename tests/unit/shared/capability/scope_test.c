/* The scope algebra: what parses, what it is written as, what covers what. */
#include "shared/capability/scope.h"

#include "shared/base/text.h"
#include "tests/unit/check.h"

static struct scope_set parsed(const char *text)
{
    struct scope_set set = {.count = 0};
    struct error err = {0};
    if (!scope_parse(&set, text, strlen(text), SCOPE_UNKNOWN_REFUSED, &err)) {
        fprintf(stderr, "scope_test: \"%s\": %s\n", text, err.message);
        check_failures++;
    }
    return set;
}

static void check_written(const char *text, const char *want)
{
    struct scope_set set = parsed(text);
    char written[SCOPE_TEXT_BYTES];
    scope_format(&set, written);
    CHECK_TEXT(written, want);
}

static void test_written_as_read(void)
{
    static const char *const SAME[] = {"",
                                       "fs:rw",
                                       "fs:ro",
                                       "shell",
                                       "shell:ro",
                                       "process",
                                       "code",
                                       "port",
                                       "snapshot",
                                       "network",
                                       "port@1",
                                       "port@65535",
                                       "fs:ro@/",
                                       "fs:rw@/a/b.c/..d",
                                       "shell fs:rw port@80 code",
                                       "fs:ro@/a%20b/%C3%A9%25%22%5C",
                                       "fs:ro@/a!$&'()*+,;=:@b~_-",
                                       "process process"};
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++)
        check_written(SAME[i], SAME[i]);
    check_written("fs:ro@/%61%2fb%c3%a9", "fs:ro@/a/b%C3%A9");
    CHECK_TEXT(parsed("fs:ro@/a%20b").atoms[0].resource, "/a b");
}

static void test_unknown_atoms(void)
{
    static const char *const UNKNOWN[] = {
        "fs",       "FS:rw",         "fs:rx",           "root",       "shell:rw",   "process@1",  "shell@/a",
        "code@x",   "snapshot@x",    "network@x",       "port@",      "port@0",     "port@65536", "port@080",
        "port@+80", "port@8 0x",     "fs:ro@",          "fs:ro@a",    "fs:ro@//",   "fs:ro@/a/",  "fs:ro@/a//b",
        "fs:ro@/.", "fs:ro@/a/../b", "fs:ro@/a/%2e%2E", "fs:ro@/%00", "fs:ro@/%0a", "fs:ro@/%7f", "fs:ro@/%4",
        "fs:ro@/%", "fs:ro@/%zz",    "fs:ro@/a\"",      "fs:ro@/a\\", "fs:ro@/a#",  "fs:ro@/a?",  "fs:ro@/[a]",
        "@",        "@/a",           "fs:rw@/a%2f"};
    for (size_t i = 0; i < sizeof UNKNOWN / sizeof *UNKNOWN; i++) {
        struct scope_set set = {.count = 7};
        struct error err = {0};
        CHECK(!scope_parse(&set, UNKNOWN[i], strlen(UNKNOWN[i]), SCOPE_UNKNOWN_REFUSED, &err));
        CHECK(err.kind == ERROR_INVALID && set.count == 7);
        char text[300];
        snprintf(text, sizeof text, "code %s port", strchr(UNKNOWN[i], ' ') ? "x" : UNKNOWN[i]);
        CHECK(scope_parse(&set, text, strlen(text), SCOPE_UNKNOWN_DROPPED, &err));
        CHECK(set.count == 2 && set.atoms[0].verb == SCOPE_CODE && set.atoms[1].verb == SCOPE_PORT);
    }
    struct scope_set set;
    struct error err = {0};
    CHECK(!scope_parse(&set, "process root", 12, SCOPE_UNKNOWN_REFUSED, &err));
    CHECK_TEXT(err.message, "unknown scope \"root\"");
}

static void test_malformed(void)
{
    static const char *const MALFORMED[] = {" ",
                                            " code",
                                            "code ",
                                            "code  port",
                                            "code\tport",
                                            "code\nport",
                                            "c\303\251",
                                            "code\177",
                                            "fs:ro@/a process",
                                            "fs:rw fs:ro@/a code",
                                            "shell fs:rw@/"};
    for (size_t i = 0; i < sizeof MALFORMED / sizeof *MALFORMED; i++) {
        struct scope_set set = {.count = 7};
        struct error err = {0};
        CHECK(!scope_parse(&set, MALFORMED[i], strlen(MALFORMED[i]), SCOPE_UNKNOWN_DROPPED, &err));
        CHECK(err.kind == ERROR_INVALID && set.count == 7);
    }
    struct scope_set set;
    CHECK(!scope_parse(&set, "code\0port", 9, SCOPE_UNKNOWN_DROPPED, NULL));
    CHECK(scope_parse(&set, "fs:ro@/a shell:ro port@1 snapshot", 33, SCOPE_UNKNOWN_REFUSED, NULL));
}

static void test_limits(void)
{
    struct scope_set set;
    char text[SCOPE_TEXT_BYTES + 1];
    memset(text, 'a', sizeof text);
    memcpy(text, "fs:ro@/", 7);
    CHECK(scope_parse(&set, text, SCOPE_ATOM_BYTES - 1, SCOPE_UNKNOWN_REFUSED, NULL));
    CHECK(strlen(set.atoms[0].resource) == SCOPE_ATOM_BYTES - 1 - 6);
    CHECK(!scope_parse(&set, text, SCOPE_ATOM_BYTES, SCOPE_UNKNOWN_DROPPED, NULL));
    for (size_t i = 0; i + 5 <= sizeof text; i += 5)
        memcpy(text + i, "code ", 5);
    CHECK(scope_parse(&set, text, 5 * SCOPE_ATOMS_MAX - 1, SCOPE_UNKNOWN_REFUSED, NULL) &&
          set.count == SCOPE_ATOMS_MAX);
    CHECK(!scope_parse(&set, text, 5 * SCOPE_ATOMS_MAX + 4, SCOPE_UNKNOWN_REFUSED, NULL));
    for (size_t i = 0; i + 2 <= sizeof text; i += 2)
        memcpy(text + i, "x ", 2);
    CHECK(scope_parse(&set, text, SCOPE_TEXT_BYTES - 1, SCOPE_UNKNOWN_DROPPED, NULL) && set.count == 0);
    CHECK(!scope_parse(&set, text, SCOPE_TEXT_BYTES + 1, SCOPE_UNKNOWN_DROPPED, NULL));

    struct scope_set wide = {
        .count = SCOPE_ATOMS_MAX}; /* not from scope_parse: what does not fit is left out, all else whole */
    for (size_t i = 0; i < SCOPE_ATOMS_MAX; i++) {
        wide.atoms[i].verb = SCOPE_FS_RO;
        memset(wide.atoms[i].resource, '"', SCOPE_ATOM_BYTES - 1);
        wide.atoms[i].resource[0] = '/';
    }
    char written[SCOPE_TEXT_BYTES];
    scope_format(&wide, written);
    CHECK(strlen(written) == 1 * (6 + 1 + 254 * 3));
}

static void test_covers(void)
{
    static const struct {
        const char *outer, *inner;
        bool covers;
    } ROWS[] = {
        {"fs:rw", "fs:ro", true},
        {"fs:ro", "fs:rw", false},
        {"shell", "shell:ro", true},
        {"shell:ro", "shell", false},
        {"process", "code", true},
        {"code", "process", false},
        {"shell", "process", false},
        {"process", "shell", false},
        {"process", "shell:ro", false},
        {"port", "port@80", true},
        {"port@80", "port", false},
        {"port@80", "port@80", true},
        {"port@80", "port@8", false},
        {"port@80", "port@8080", false},
        {"fs:rw", "fs:ro@/a", true},
        {"fs:ro@/a", "fs:ro", false},
        {"fs:rw@/a", "fs:ro@/a", true},
        {"fs:rw@/a", "fs:ro@/a/b", true},
        {"fs:rw@/a", "fs:ro@/ab", false},
        {"fs:rw@/a/b", "fs:ro@/a", false},
        {"fs:ro@/a", "fs:rw@/a", false},
        {"fs:ro@/", "fs:ro@/a", true},
        {"fs:ro@/", "fs:ro", false},
        {"fs:ro@/a", "fs:ro@/", false},
        {"fs:rw shell", "", true},
        {"", "", true},
        {"", "code", false},
        {"fs:rw shell process", "shell:ro code", true},
        {"fs:rw shell", "shell code", false},
        {"fs:ro@/a fs:ro@/b", "fs:ro@/b/c", true},
        {"snapshot", "snapshot", true},
        {"fs:rw", "snapshot", false},
        {"network", "network", true},
        {"fs:rw shell process code port snapshot", "network", false},
        {"network", "port", false},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct scope_set outer = parsed(ROWS[i].outer), inner = parsed(ROWS[i].inner);
        if (scope_set_covers(&outer, &inner) != ROWS[i].covers) {
            fprintf(stderr, "scope_test: {%s} covers {%s}: not %d\n", ROWS[i].outer, ROWS[i].inner, ROWS[i].covers);
            check_failures++;
        }
    }
}

/* Over all pairs and triples of a sample: covering is reflexive and transitive, and what an intersection gives is
 * covered by both sides. */
static void test_laws(void)
{
    static const char *const SAMPLE[] = {"",
                                         "fs:rw",
                                         "fs:ro",
                                         "fs:rw@/a",
                                         "fs:ro@/a/b",
                                         "fs:ro@/",
                                         "shell",
                                         "shell:ro",
                                         "process",
                                         "code",
                                         "port",
                                         "port@80",
                                         "snapshot",
                                         "fs:ro port@80",
                                         "process shell fs:rw",
                                         "code shell:ro fs:ro",
                                         "fs:ro@/a port"};
    const size_t count = sizeof SAMPLE / sizeof *SAMPLE;
    struct scope_set sets[sizeof SAMPLE / sizeof *SAMPLE];
    for (size_t i = 0; i < count; i++)
        sets[i] = parsed(SAMPLE[i]);
    for (size_t a = 0; a < count; a++) {
        CHECK(scope_set_covers(&sets[a], &sets[a]));
        for (size_t b = 0; b < count; b++) {
            struct scope_set met;
            scope_intersect(&met, &sets[a], &sets[b]);
            CHECK(scope_set_covers(&sets[a], &met) && scope_set_covers(&sets[b], &met));
            scope_meet(&met, &sets[a], &sets[b]);
            CHECK(scope_set_covers(&sets[a], &met) && scope_set_covers(&sets[b], &met));
            for (size_t c = 0; c < count; c++)
                CHECK(scope_set_covers(&met, &sets[c]) ==
                      (scope_set_covers(&sets[a], &sets[c]) && scope_set_covers(&sets[b], &sets[c])));
            for (size_t c = 0; c < count; c++)
                CHECK(!scope_set_covers(&sets[a], &sets[b]) || !scope_set_covers(&sets[b], &sets[c]) ||
                      scope_set_covers(&sets[a], &sets[c]));
        }
    }
}

static void test_intersect(void)
{
    struct scope_set set = parsed("fs:ro process port@80 snapshot"), policy = parsed("fs:rw code port shell");
    char text[SCOPE_TEXT_BYTES];
    scope_intersect(&set, &set, &policy);
    scope_format(&set, text);
    CHECK_TEXT(text, "fs:ro port@80");
    scope_intersect(&policy, &set, &policy);
    scope_format(&policy, text);
    CHECK_TEXT(text, "fs:ro port@80");
}

static void test_meet(void)
{
    static const char *const ROWS[][3] = {{"fs:rw shell process", "fs:ro shell:ro code", "fs:ro shell:ro code"},
                                          {"fs:rw@/a", "fs:ro", "fs:ro@/a"},
                                          {"fs:rw@/a port", "fs:rw@/a/b port@80", "fs:rw@/a/b port@80"},
                                          {"fs:rw@/a", "fs:rw@/b port", ""},
                                          {"process code", "fs:ro process", "process code"},
                                          {"fs:ro fs:rw@/a", "fs:rw", "fs:ro fs:rw@/a"},
                                          {"snapshot", "fs:rw shell process port", ""}};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct scope_set a = parsed(ROWS[i][0]), b = parsed(ROWS[i][1]);
        char text[SCOPE_TEXT_BYTES];
        scope_meet(&a, &a, &b);
        scope_format(&a, text);
        CHECK_TEXT(text, ROWS[i][2]);
    }
}

static void test_by_default(void)
{
    struct scope_set set = parsed("fs:ro network process network");
    char text[SCOPE_TEXT_BYTES];
    scope_by_default(&set, &set);
    scope_format(&set, text);
    CHECK_TEXT(text, "fs:ro process");
}

static void test_allows(void)
{
    struct scope_set set = parsed("fs:ro@/a port@80 shell:ro"), all = parsed("fs:rw process"), none = parsed("");
    CHECK(scope_allows(&set, "") && scope_allows(&none, ""));
    CHECK(scope_allows(&set, "fs:ro") && !scope_allows(&set, "fs:rw") && scope_allows(&all, "fs:ro"));
    CHECK(scope_allows(&set, "fs:ro@/a/b") && !scope_allows(&set, "fs:ro@/b"));
    CHECK(scope_allows(&set, "port") && scope_allows(&set, "port@80") && !scope_allows(&set, "port@81"));
    CHECK(scope_allows(&set, "shell:ro") && !scope_allows(&set, "shell") && !scope_allows(&set, "process") &&
          scope_allows(&all, "code"));
    CHECK(!scope_allows(&all, "fs") && !scope_allows(&all, "nothing") && !scope_allows(&all, "process fs:rw"));
    CHECK(!scope_allows(&all, "process ") && !scope_allows(&none, "process"));
}

static void check_folder(const char *scopes, enum scope_verb verb, const char *path, const char *want)
{
    struct scope_set set = parsed(scopes);
    const char *got = scope_folder(&set, verb, path);
    if (!text_equal(got, want)) {
        fprintf(stderr, "scope_test: %s at %s: got %s, want %s\n", scopes, path, got ? got : "none",
                want ? want : "none");
        check_failures++;
    }
}

static void test_folders(void)
{
    check_folder("fs:ro", SCOPE_FS_RO, "/a", "");
    check_folder("fs:rw", SCOPE_FS_RO, "/", "");
    check_folder("fs:ro", SCOPE_FS_RW, "/a", NULL);
    check_folder("process shell", SCOPE_FS_RO, "/a", NULL);
    check_folder("", SCOPE_FS_RO, "/a", NULL);
    check_folder("fs:ro@/", SCOPE_FS_RO, "/a/b", "");
    check_folder("fs:ro@/a", SCOPE_FS_RO, "/a", "/a");
    check_folder("fs:ro@/a", SCOPE_FS_RO, "/a/b/c", "/a");
    check_folder("fs:ro@/a", SCOPE_FS_RO, "/ab", NULL);
    check_folder("fs:ro@/a", SCOPE_FS_RO, "/", NULL);
    check_folder("fs:ro@/a", SCOPE_FS_RW, "/a/b", NULL);
    check_folder("fs:rw@/a", SCOPE_FS_RO, "/a/b", "/a");
    check_folder("fs:ro@/a/b fs:ro@/a fs:ro@/a/b/c", SCOPE_FS_RO, "/a/b/c/d", "/a");
    check_folder("fs:ro@/a fs:rw@/a/b", SCOPE_FS_RW, "/a/b/c", "/a/b");
    check_folder("fs:ro@/a fs:rw@/a/b", SCOPE_FS_RO, "/a/b/c", "/a");
    check_folder("fs:ro@/a fs:rw@/a/b", SCOPE_FS_RW, "/a/c", NULL);
    check_folder("fs:ro@/a%20b", SCOPE_FS_RO, "/a b/\377", "/a b");
    check_folder("fs:ro@/a fs:ro", SCOPE_FS_RO, "/a/b", "");
}

int main(void)
{
    test_written_as_read();
    test_unknown_atoms();
    test_malformed();
    test_limits();
    test_covers();
    test_laws();
    test_intersect();
    test_meet();
    test_allows();
    test_by_default();
    test_folders();
    return check_done();
}
