/* message_test.c - messages signed with the connection's key are read, all others refused before their JSON is. */
#include "sandboxd/helpers/jupyter/message.h"

#include "shared/base/memory.h"
#include "tests/unit/check.h"

static const char KEY[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
static const char OTHER_KEY[] = "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static struct message_made make(const char *type, json_t *content)
{
    struct message_made made;
    json_t *parent = json_pack("{s:s}", "msg_id", "the request");
    message_make(type, "session", parent, content, KEY, &made);
    json_decref(parent);
    json_decref(content);
    return made;
}

/* As a kernel sends it: a topic or an identity first. */
static size_t as_parts(const struct message_made *made, struct message_part *parts)
{
    parts[0] = (struct message_part){"topic", 5};
    for (size_t i = 0; i < MESSAGE_HEAD_PARTS; i++)
        parts[i + 1] = (struct message_part){made->parts[i], strlen(made->parts[i])};
    return MESSAGE_HEAD_PARTS + 1;
}

static void test_round(void)
{
    struct message_made made = make("status", json_pack("{s:s}", "execution_state", "idle"));
    struct message_part parts[MESSAGE_HEAD_PARTS + 1];
    struct message message = {.type = ""};
    struct error err = {0};
    size_t count = as_parts(&made, parts);
    CHECK(strlen(made.id) == 32);
    CHECK(message_parse(parts, count, KEY, &message, &err));
    CHECK_TEXT(message.type, "status");
    CHECK_TEXT(message.parent, "the request");
    CHECK_TEXT(json_string_value(json_object_get(message.content, "execution_state")), "idle");
    message_done(&message);
    CHECK(!message_parse(parts, count, OTHER_KEY, &message, &err) && err.kind == ERROR_FORBIDDEN);
    for (size_t cut = 0; cut < count; cut++)
        CHECK(!message_parse(parts, cut, KEY, &message, &err) && err.kind == ERROR_INVALID);
    message_made_done(&made);
}

/* Any byte of any signed part, and of the signature. */
static void test_tampered(void)
{
    struct message_made made = make("stream", json_pack("{s:s}", "text", "x"));
    struct message_part parts[MESSAGE_HEAD_PARTS + 1];
    size_t count = as_parts(&made, parts), tried = 0;
    for (size_t i = 1; i < MESSAGE_HEAD_PARTS; i++)
        for (size_t at = 0; made.parts[i][at]; at++, tried++) {
            struct message message = {.type = ""};
            struct error err = {0};
            made.parts[i][at] ^= 1;
            CHECK(!message_parse(parts, count, KEY, &message, &err) && err.kind == ERROR_FORBIDDEN);
            made.parts[i][at] ^= 1;
        }
    CHECK(tried > 50);
    message_made_done(&made);
}

static json_t *read_object(const char *text, size_t size, enum error_kind *kind)
{
    struct error err = {0};
    json_t *object = message_read_object(text, size, &err);
    *kind = err.kind;
    return object;
}

static void check_value(const char *text, const char *want)
{
    enum error_kind kind;
    json_t *object = read_object(text, strlen(text), &kind);
    char *got = object ? json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    CHECK_TEXT(got, want);
    free(got);
    json_decref(object);
}

static void test_strange_text(void)
{
    check_value("{\"a\":\"\\ud800\"}", "{\"a\":\"\\uFFFD\"}");
    check_value("{\"a\":\"\\udc00x\\ud83d\\ude00\"}", "{\"a\":\"\\uFFFDx\\uD83D\\uDE00\"}");
    check_value("{\"a\":\"\\ud800\\ud800\\udc00\"}", "{\"a\":\"\\uFFFD\\uD800\\uDC00\"}");
    check_value("{\"a\":\"\\\\ud800\"}", "{\"a\":\"\\\\ud800\"}");
    check_value("{\"a\":\"\xff\"}", "{\"a\":\"\\uFFFD\"}");
    check_value("{\"a\":\"\\u0000\"}", "{\"a\":\"\\u0000\"}");
    check_value("{\"a\":1180591620717411303424}", "{\"a\":1.1805916207174113e21}");
}

static void test_refused(void)
{
    static const char *const BAD[] = {"",
                                      "[]",
                                      "1",
                                      "{",
                                      "{\"a\":NaN}",
                                      "{\"a\":\"",
                                      "{\"a\":\"\\u",
                                      "{\"a\":\"\\ud80",
                                      "{} {}",
                                      "{\"a\\u0000\":1}",
                                      "{\"a\":1e999}"};
    enum error_kind kind;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        CHECK(read_object(BAD[i], strlen(BAD[i]), &kind) == NULL);
        CHECK(kind == ERROR_INVALID);
    }
}

static char *many(const char *first, const char *one, size_t count)
{
    size_t length = strlen(first), step = strlen(one);
    char *text = memory_new(length + count * step + 1);
    memcpy(text, first, length);
    for (size_t i = 0; i < count; i++)
        memcpy(text + length + i * step, one, step);
    return text;
}

static void test_bounds(void)
{
    enum error_kind kind;
    AUTO_FREE char *deep = many("{\"a\":", "[", MESSAGE_DEPTH_MAX + 1);
    CHECK(read_object(deep, strlen(deep), &kind) == NULL && kind == ERROR_TOO_LARGE);
    AUTO_FREE char *wide = many("{\"a\":[", "[],", MESSAGE_VALUES_MAX);
    CHECK(read_object(wide, strlen(wide), &kind) == NULL && kind == ERROR_TOO_LARGE);
    AUTO_FREE char *text = many("{\"a\":\"", ",[{", MESSAGE_VALUES_MAX); /* in a string they are nothing */
    CHECK(read_object(text, strlen(text), &kind) == NULL && kind == ERROR_INVALID);
}

int main(void)
{
    test_round();
    test_tampered();
    test_strange_text();
    test_refused();
    test_bounds();
    return check_done();
}
