/* kernel_outcome_test.c - events added up as a notebook would show them, within bounds. */
#include "sandboxd/dialects/native/kernels/kernel_outcome.h"

#include "shared/base/memory.h"
#include "tests/unit/check.h"

static void add(struct kernel_outcome *outcome, const char *type, const char *body)
{
    json_t *object = json_loads(body, 0, NULL);
    CHECK(object != NULL);
    kernel_outcome_add(
        outcome, &(struct kernel_event){.kind = KERNEL_EVENT_TOLD, .type = type, .body = object, .cost = strlen(body)});
}

static json_t *finish(struct kernel_outcome *outcome)
{
    json_t *told = kernel_outcome_finish(outcome, json_pack("{s:s}", "status", "ok"));
    kernel_outcome_done(outcome);
    return told;
}

static void test_all_kinds(void)
{
    struct kernel_outcome outcome = {0};
    add(&outcome, "started", "{\"run\":\"r\",\"execution_count\":1}");
    add(&outcome, "stdout", "{\"text\":\"a\"}");
    add(&outcome, "stderr", "{\"text\":\"e\"}");
    add(&outcome, "stdout", "{\"text\":\"b\"}");
    add(&outcome, "display", "{\"data\":{\"text/plain\":\"1\"},\"metadata\":{},\"display_id\":\"d\"}");
    add(&outcome, "display", "{\"data\":{\"text/plain\":\"2\"},\"metadata\":{},\"display_id\":\"d\",\"update\":true}");
    add(&outcome, "result", "{\"data\":{\"text/plain\":\"42\"},\"metadata\":{},\"execution_count\":1}");
    json_t *told = finish(&outcome);
    CHECK_TEXT(json_string_value(json_object_get(told, "stdout")), "ab");
    CHECK_TEXT(json_string_value(json_object_get(told, "stderr")), "e");
    CHECK_TEXT(json_string_value(json_object_get(told, "run")), "r");
    CHECK_TEXT(json_string_value(json_object_get(told, "status")), "ok");
    const json_t *displays = json_object_get(told, "displays");
    CHECK(json_array_size(displays) == 1); /* the second is the first, changed */
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(json_array_get(displays, 0), "data"), "text/plain")),
               "2");
    CHECK(json_is_object(json_object_get(told, "result")) && json_is_null(json_object_get(told, "error")));
    CHECK(json_is_false(json_object_get(told, "truncated")));
    json_decref(told);
}

static void test_clear(void)
{
    struct kernel_outcome outcome = {0};
    add(&outcome, "stdout", "{\"text\":\"gone\"}");
    add(&outcome, "display", "{\"data\":{},\"metadata\":{}}");
    add(&outcome, "clear", "{\"wait\":false}");
    add(&outcome, "stdout", "{\"text\":\"there\"}");
    json_t *told = finish(&outcome);
    CHECK_TEXT(json_string_value(json_object_get(told, "stdout")), "there");
    CHECK(json_array_size(json_object_get(told, "displays")) == 0);
    json_decref(told);
}

static void test_bounds(void)
{
    struct kernel_outcome outcome = {0};
    enum { PART = 300000 };
    AUTO_FREE char *part = memory_new(PART + 1);
    for (int i = 0; i < PART; i += 3)
        memcpy(part + i, "\xe2\x82\xac", 3); /* a character is not cut in two */
    AUTO_FREE char *text = memory_printf("{\"text\":\"%s\"}", part);
    AUTO_FREE char *shown = memory_printf("{\"data\":{\"a\":\"%s\"},\"metadata\":{}}", part);
    for (int i = 0; i < 5; i++)
        add(&outcome, "stdout", text);
    for (int i = 0; i < 60; i++)
        add(&outcome, "display", shown);
    add(&outcome, "error", "{\"name\":\"E\"}"); /* has room of its own */
    json_t *told = finish(&outcome);
    CHECK(json_is_object(json_object_get(told, "error")));
    size_t length = json_string_length(json_object_get(told, "stdout"));
    CHECK(length <= KERNEL_OUTCOME_TEXT_MAX && length > KERNEL_OUTCOME_TEXT_MAX - 3 && length % 3 == 0);
    size_t displays = json_array_size(json_object_get(told, "displays"));
    CHECK(displays == KERNEL_OUTCOME_DISPLAY_MAX / strlen(shown));
    CHECK(json_is_true(json_object_get(told, "truncated")));
    json_decref(told);
}

int main(void)
{
    test_all_kinds();
    test_clear();
    test_bounds();
    return check_done();
}
