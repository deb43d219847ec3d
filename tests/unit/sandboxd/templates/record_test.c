/* The record: what was written comes back; cut, damaged or impossible is refused; names that cannot be. */
#include "sandboxd/templates/record.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <sys/stat.h>

static char folder[] = "/tmp/parley-template-record-XXXXXX";

static struct template_record sample(void)
{
    struct template_record record = {.kind = TEMPLATE_WHOLE,
                                     .uid = 1000,
                                     .gid = 100,
                                     .created_ms = 1,
                                     .size_bytes = 123,
                                     .files = 4,
                                     .name = "python-3.12",
                                     .source = "docker-archive python:3.12",
                                     .workdir = "/app",
                                     .env = "A=1\0B=2",
                                     .entrypoint = "/bin/sh\0-c\0true"};
    snprintf(record.digest, sizeof record.digest, "sha256:%064d", 7);
    return record;
}

static void test_round(void)
{
    struct error err = {0};
    struct template_record record = sample();
    struct template_record again = {0};
    AUTO_FREE char *path = memory_printf("%s/template", folder);
    CHECK(!template_record_read(path, &again, &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(template_write(folder, &record, &err));
    CHECK(template_record_read(path, &again, &err));
    CHECK(memcmp(&record, &again, sizeof record) == 0);
}

static bool refused(const void *bytes, size_t size)
{
    struct error err = {0};
    struct template_record read = {.uid = 77};
    AUTO_FREE char *path = memory_printf("%s/template", folder);
    CHECK(fd_write_file(path, 0600, bytes, size, &err));
    return !template_record_read(path, &read, &err) && err.kind == ERROR_INVALID && strstr(err.message, "damaged") &&
           read.uid == 77;
}

static void test_damage(void)
{
    struct error err = {0};
    struct template_record record = sample();
    CHECK(template_write(folder, &record, &err));
    for (size_t cut = 0; cut < sizeof record; cut += 61)
        CHECK(refused(&record, cut));
    for (size_t at = 0; at < sizeof record; at += 7) {
        struct template_record damaged = record;
        ((uint8_t *)&damaged)[at] ^= 0x20;
        CHECK(refused(&damaged, sizeof damaged));
    }
    char longer[sizeof record + 1] = "";
    memcpy(longer, &record, sizeof record);
    CHECK(refused(longer, sizeof longer));
}

static void unfit(struct template_record record, const char *word)
{
    struct error err = {0};
    bool said = !template_write(folder, &record, &err) && err.kind == ERROR_INVALID && strstr(err.message, word);
    if (!said)
        fprintf(stderr, "%s: %s\n", word, err.message);
    CHECK(said);
}

#define UNFIT(word, ...)                                                                                               \
    do {                                                                                                               \
        struct template_record r = sample();                                                                           \
        __VA_ARGS__;                                                                                                   \
        unfit(r, word);                                                                                                \
    } while (0)

static void test_impossible(void)
{
    UNFIT("kind", r.kind = 0);
    UNFIT("kind", r.kind = 3);
    UNFIT("uid", r.uid = 0);
    UNFIT("uid", r.uid = 65536);
    UNFIT("uid", r.gid = 0);
    UNFIT("created_ms", r.created_ms = -1);
    UNFIT("created_ms", r.reserved = 1);
    UNFIT("name", r.name[0] = '.');
    UNFIT("name", r.name[20] = 'x'); /* behind its end */
    UNFIT("name", memset(r.name, 'a', sizeof r.name));
    UNFIT("digest", r.digest[3] = 'x');
    UNFIT("digest", r.digest[70] = '\0');
    UNFIT("source", r.source[1] = '\n');
    UNFIT("source", memset(r.source, 'a', sizeof r.source));
    UNFIT("source", memcpy(r.source, "\xff", 2));
    UNFIT("env", memcpy(r.env, "=A", 2));
    UNFIT("env", r.env[sizeof r.env - 1] = 'x');
    UNFIT("entrypoint", r.entrypoint[sizeof r.entrypoint - 1] = 'x');
    UNFIT("entrypoint", memset(r.entrypoint, 'x', sizeof r.entrypoint));
    static const char *const PATHS[] = {"",      "app", "/a/../b", "/..",   "/./a",     "//",
                                        "/a//b", "/a/", "/\n",     "/\x7f", "/\xc2\x9b"};
    for (size_t i = 0; i < sizeof PATHS / sizeof PATHS[0]; i++)
        UNFIT("workdir", memset(r.workdir, 0, sizeof r.workdir); strcpy(r.workdir, PATHS[i]));
    struct template_record fine = sample();
    strcpy(fine.workdir, "/");
    memset(fine.workdir + 1, 0, 10);
    CHECK(template_write(folder, &fine, NULL));
}

static void test_names(void)
{
    static const char *const GOOD[] = {
        "a", "base", "python-3.12", "a_b.c-d", "x-0123456789abcde", "abcdefghijabcdefghijabcdefghijabcdefghij"};
    static const char *const BAD[] = {"",          "A",
                                      "1a",        ".a",
                                      "-a",        "a/b",
                                      "..",        "auto",
                                      "snapshot",  "a b",
                                      "a:b",       "x-0123456789abcdef",
                                      "a\xc3\xa4", "abcdefghijabcdefghijabcdefghijabcdefghijk"};
    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++)
        CHECK(template_is_name(GOOD[i]));
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK(!template_is_name(BAD[i]));
    char name[FRONT_LAUNCHER_NAME_BYTES] = "";
    CHECK(template_is_version("a-b-0123456789abcdef", name));
    CHECK_TEXT(name, "a-b");
    CHECK(!template_is_version("a-0123456789abcdeF", name));
    CHECK(!template_is_version("-0123456789abcdef", name));
    CHECK(!template_is_version("0123456789abcdef", name));
    CHECK(!template_is_version("../-0123456789abcdef", name));
    CHECK(!template_is_version("a-0123456789abcdef/..", name));
    CHECK(!template_is_version("a-0123456789abcdef-0123456789abcdef", name)); /* of no name */
    CHECK(!template_is_version("abcdefghijabcdefghijabcdefghijabcdefghijk-0123456789abcdef", name));
    CHECK_TEXT(name, "a-b");
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    test_round();
    test_damage();
    test_impossible();
    test_names();
    CHECK(fd_remove_tree(folder, NULL));
    return check_done();
}
