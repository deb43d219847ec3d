/* execd_files_common_test.c - permissions and facts as OpenSandbox's clients write and read them. */
#include "sandboxd/dialects/execd/execd_files_common.h"

#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <string.h>

static void check_mode(const char *json, bool is_sound, uint32_t flags, uint32_t mode)
{
    json_t *object = json_loads(json, JSON_DECODE_ANY, NULL);
    struct files_request asked = {0};
    struct error err = {0};
    CHECK(execd_permission_read(object, &asked, &err) == is_sound);
    CHECK(is_sound ? asked.flags == (flags | FILES_KNOWN_USERS) && asked.mode == mode : err.kind == ERROR_INVALID);
    json_decref(object);
}

static void test_modes(void)
{
    check_mode("{}", true, 0, 0);
    check_mode("{\"mode\":null,\"owner\":null,\"group\":null,\"more\":1}", true, 0, 0);
    check_mode("{\"mode\":0}", true, 0, 0);
    check_mode("{\"mode\":755}", true, FILES_MODE, 0755);
    check_mode("{\"mode\":7}", true, FILES_MODE, 07);
    check_mode("{\"mode\":7777}", true, FILES_MODE, 07777);
    check_mode("{\"mode\":1000}", true, FILES_MODE, 01000);
    static const char *const WRONG[] = {"{\"mode\":8}",
                                        "{\"mode\":1888}",
                                        "{\"mode\":7778}",
                                        "{\"mode\":10000}",
                                        "{\"mode\":-755}",
                                        "{\"mode\":\"755\"}",
                                        "{\"mode\":755.0}",
                                        "{\"mode\":true}",
                                        "{\"owner\":1}",
                                        "{\"group\":[]}",
                                        "[]",
                                        "null",
                                        "{\"mode\":493000}",
                                        "7"};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        check_mode(WRONG[i], false, 0, 0);
}

static void test_names(void)
{
    struct files_request asked = {0};
    struct error err = {0};
    json_t *object = json_pack("{s:s,s:s}", "owner", "ada", "group", "");
    CHECK(execd_permission_read(object, &asked, &err));
    CHECK_TEXT(asked.owner, "ada");
    CHECK(asked.group == NULL);
    char *name = memory_new(FRONT_FILES_USER_MAX + 2);
    memset(name, 'a', FRONT_FILES_USER_MAX + 1);
    json_object_set_new(object, "group", json_string(name));
    CHECK(!execd_permission_read(object, &asked, &err) && err.kind == ERROR_INVALID);
    free(name);
    json_decref(object);
}

static void test_facts(void)
{
    struct files_record entry = {.kind = FILES_ENTRY,
                                 .type = FILES_REGULAR,
                                 .mode = 04755,
                                 .uid = 5,
                                 .gid = 6,
                                 .version = {.size = 3, .mtime_ns = 1732241400123456789, .ctime_ns = -1},
                                 .owner = {"a\"b", 3}};
    AUTO_TEXT text = {0};
    execd_file_append(&text, &entry, "/", (struct files_bytes){"caf\xe9", 4});
    CHECK_TEXT(text.data, "{\"path\":\"/caf\xef\xbf\xbd\",\"type\":\"file\",\"size\":3,\"mode\":755,"
                          "\"modified_at\":\"2024-11-22T02:10:00.123Z\",\"created_at\":\"1970-01-01T00:00:00.000Z\","
                          "\"owner\":\"a\\\"b\",\"group\":\"6\"}");
    static const enum files_type TYPES[] = {FILES_FOLDER, FILES_SYMLINK, FILES_FIFO, FILES_SOCKET, FILES_BLOCK_DEVICE};
    static const char *const SHOWN[] = {"directory", "symlink", "other", "other", "other"};
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        entry.type = TYPES[i];
        text.length = 0;
        execd_file_append(&text, &entry, "/a/b", (struct files_bytes){"", 0});
        json_t *shown = json_loads(text.data, 0, NULL);
        CHECK_TEXT(json_string_value(json_object_get(shown, "type")), SHOWN[i]);
        CHECK_TEXT(json_string_value(json_object_get(shown, "path")), "/a/b");
        json_decref(shown);
    }
}

int main(void)
{
    test_modes();
    test_names();
    test_facts();
    return check_done();
}
