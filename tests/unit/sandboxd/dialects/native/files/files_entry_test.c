/* Records of a helper as JSON: names of any bytes, numbers that JSON can hold, fields of each type. */
#include "sandboxd/dialects/native/files/files_entry.h"

#include "tests/unit/check.h"

#include <jansson.h>

static struct files_bytes bytes(const char *text)
{
    return (struct files_bytes){text, strlen(text)};
}

/* The fields in braces, which must be JSON; the caller owns it. */
static json_t *shown(const struct files_record *entry, const char *path)
{
    AUTO_TEXT text = {0};
    text_append_string(&text, "{");
    files_entry_fields(&text, entry, path);
    text_append_string(&text, "}");
    json_t *object = json_loads(text.data, JSON_REJECT_DUPLICATES, NULL);
    if (!object)
        fprintf(stderr, "files_entry_test: no JSON: %s\n", text.data);
    CHECK(object != NULL);
    return object;
}

static const char *text_in(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "(none)";
}

static void test_a_file(void)
{
    struct files_record entry = {.kind = FILES_ENTRY,
                                 .type = FILES_REGULAR,
                                 .mode = 0640,
                                 .uid = 1000,
                                 .gid = 100,
                                 .links = 2,
                                 .version = {.inode = 31, .size = 12, .mtime_ns = 1795337377123456789, .ctime_ns = 5},
                                 .path = bytes("sub/a \"b\"\n")};
    json_t *object = shown(&entry, NULL);
    CHECK_TEXT(text_in(object, "name"), "a \"b\"\n");
    CHECK_TEXT(text_in(object, "path"), "sub/a \"b\"\n");
    CHECK_TEXT(text_in(object, "type"), "file");
    CHECK_TEXT(text_in(object, "mode"), "0640");
    CHECK_TEXT(text_in(object, "mtime"), "2026-11-22T08:49:37.123Z");
    CHECK_TEXT(text_in(object, "etag"), "\"1f-c-18ea51d5176cd715-5\"");
    CHECK(json_integer_value(json_object_get(object, "mtime_ns")) == 1795337377123456789);
    CHECK(json_integer_value(json_object_get(object, "size")) == 12);
    CHECK(!json_object_get(object, "name_b64") && !json_object_get(object, "target"));
    json_decref(object);
    object = shown(&entry, "/workspace/x");
    CHECK_TEXT(text_in(object, "name"), "x");
    CHECK_TEXT(text_in(object, "path"), "/workspace/x");
    json_decref(object);
}

static void test_names_of_any_bytes(void)
{
    struct files_record entry = {.type = FILES_SYMLINK, .path = bytes("d/\xff\xc3\xa4\xc3"), .target = bytes("\xfe")};
    json_t *object = shown(&entry, NULL);
    CHECK_TEXT(text_in(object, "name"), "\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd");
    CHECK_TEXT(text_in(object, "name_b64"), "/8Okww==");
    CHECK_TEXT(text_in(object, "path_b64"), "ZC//w6TD");
    CHECK_TEXT(text_in(object, "target"), "\xef\xbf\xbd");
    CHECK_TEXT(text_in(object, "target_b64"), "/g==");
    CHECK(!json_object_get(object, "etag"));
    json_decref(object);
}

static void test_extremes(void)
{
    struct files_record entry = {.type = FILES_FOLDER,
                                 .mode = 07777,
                                 .uid = UINT32_MAX,
                                 .links = UINT64_MAX,
                                 .version = {.size = UINT64_MAX, .mtime_ns = INT64_MIN}};
    json_t *object = shown(&entry, NULL);
    CHECK(json_integer_value(json_object_get(object, "size")) == INT64_MAX);
    CHECK(json_integer_value(json_object_get(object, "links")) == INT64_MAX);
    CHECK_TEXT(text_in(object, "mtime"), "1970-01-01T00:00:00.000Z");
    CHECK_TEXT(text_in(object, "path"), "");
    CHECK(!json_object_get(object, "name"));
    json_decref(object);
    object = shown(&entry, "/");
    CHECK(!json_object_get(object, "name"));
    json_decref(object);
}

static void test_a_match(void)
{
    struct files_record match = {
        .kind = FILES_MATCH, .path = bytes("a"), .line = 3, .column = 5, .text = bytes("x\x80\x01"), .is_cut = true};
    AUTO_TEXT text = {0};
    files_entry_match(&text, &match);
    CHECK_TEXT(text.data,
               "\"path\":\"a\",\"line\":3,\"column\":5,\"text\":\"x\xef\xbf\xbd\\u0001\",\"text_b64\":\"eIAB\","
               "\"cut\":true");
}

int main(void)
{
    test_a_file();
    test_names_of_any_bytes();
    test_extremes();
    test_a_match();
    return check_done();
}
