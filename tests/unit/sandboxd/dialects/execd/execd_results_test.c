/* execd_results_test.c - bundles as texts, within what a client reads as one line. */
#include "sandboxd/dialects/execd/execd_results.h"

#include "shared/base/cleanup.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

static char *told(json_t *data)
{
    json_t *results = execd_results(data);
    char *text = json_dumps(results, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(results);
    json_decref(data);
    return text;
}

static void test_texts(void)
{
    AUTO_FREE char *plain = told(json_pack("{s:s}", "text/plain", "42"));
    CHECK_TEXT(plain, "{\"text\":\"42\",\"text/plain\":\"42\"}");
    AUTO_FREE char *none = told(json_object());
    CHECK_TEXT(none, "{}");
    AUTO_FREE char *rich =
        told(json_pack("{s:s,s:{s:[i,b]},s:n}", "image/png", "iVB=", "application/json", "a", 1, 1, "x/null"));
    CHECK_TEXT(rich, "{\"application/json\":\"{\\\"a\\\":[1,true]}\",\"image/png\":\"iVB=\",\"x/null\":\"null\"}");
    AUTO_FREE char *own = told(json_pack("{s:s,s:s}", "text", "mine", "text/plain", "42")); /* nobody's key is taken */
    CHECK_TEXT(own, "{\"text\":\"42\",\"text/plain\":\"42\"}");
}

static json_t *long_text(char byte, size_t size)
{
    AUTO_FREE char *text = memory_new(size + 1);
    memset(text, byte, size);
    return json_string(text);
}

static size_t size_of(json_t *data)
{
    AUTO_FREE char *text = told(data);
    return strlen(text);
}

static void test_bounds(void)
{
    const size_t most = EXECD_RESULTS_MAX + 1024;
    CHECK(size_of(json_pack("{s:o}", "text/plain", long_text(1, 3 << 20))) < most);
    CHECK(size_of(json_pack("{s:o}", "text/plain", long_text('"', 3 << 20))) < most);
    CHECK(size_of(json_pack("{s:o,s:s}", "image/png", long_text('A', 4 << 20), "text/plain", "here")) < 200);
    CHECK(size_of(json_pack("{s:o,s:o}", "image/png", long_text('A', 2 << 20), "text/html", long_text('A', 2 << 20))) <
          most);
    CHECK(size_of(json_pack("{s:o}", "image/png", long_text('A', 2 << 20))) > 2 << 20);
    AUTO_FREE char *cut = told(json_pack("{s:o}", "text/plain", long_text('x', 1 << 20)));
    CHECK(strstr(cut, "xx... [cut]") != NULL);
}

static void test_traceback(void)
{
    const char *lines[2] = {NULL, NULL};
    size_t count = 9;
    json_t *error = json_pack("{s:[s,s,s]}", "traceback", "a", "b", "c");
    execd_results_traceback(error, lines, 2, &count);
    CHECK(count == 2);
    CHECK_TEXT(lines[0], "b"); /* the last are what tells most */
    CHECK_TEXT(lines[1], "c");
    json_decref(error);
    execd_results_traceback(NULL, lines, 2, &count);
    CHECK(count == 0);
}

int main(void)
{
    test_texts();
    test_bounds();
    test_traceback();
    return check_done();
}
