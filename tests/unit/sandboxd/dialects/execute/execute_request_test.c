/* The body of POST /execute: which names stay in the work folder, which fields there are, how much sooner a run is
 * ended. */
#include "sandboxd/dialects/execute/execute_request.h"

#include "sandboxd/dialects/execute/execute_result.h"
#include "tests/unit/check.h"

static bool parse(const char *text, struct execute_request *request, struct error *err)
{
    json_t *body = json_loads(text, 0, NULL);
    CHECK(body);
    bool is_read = execute_request_parse(request, "sbx_a", body, err);
    json_decref(body);
    return is_read;
}

static void test_all(void)
{
    struct execute_request request = {0};
    struct error err = {0};
    CHECK(parse("{\"code\":\"1\",\"language\":\"py\",\"files\":{\"./a//\":\"\"},\"timeout_s\":2}", &request, &err));
    CHECK(!request.order && strstr(request.refusal.message, "Invalid file path: ./a//"));
    request = (struct execute_request){0};
    CHECK(parse("{\"code\":\"1+1\",\"language\":\"py\",\"files\":{\"./a/./b\":\"x\"},\"environment\":{\"A\":\"b\"},"
                "\"arguments\":[\"-x\"],\"timeout_s\":null}",
                &request, &err));
    CHECK(request.order && request.order->file_count == 2 && request.timeout_s == EXECUTE_TIMEOUT_DEFAULT_S);
    if (!request.order)
        return;
    CHECK_TEXT(request.order->files[0].path, "main.py");
    CHECK_TEXT(request.order->files[0].data, "1+1");
    CHECK_TEXT(request.order->files[1].path, "a/b");
    CHECK_TEXT(request.order->program->arguments[0], "-x");
    CHECK_TEXT(request.order->program->variables[0], "A=b");
    execution_order_free(request.order);
}

static void test_refused(const char *text, const char *word)
{
    struct execute_request request = {.timeout_s = 7};
    struct error err = {0};
    CHECK(!parse(text, &request, &err));
    CHECK(err.kind == ERROR_INVALID && strstr(err.message, word));
    CHECK(request.timeout_s == 7 && !request.order);
}

static void test_name(const char *path, size_t size, bool is_good)
{
    struct error err = {0};
    struct execution_order *order = execution_order_new("sbx_a", "bash", "", 0, &err);
    CHECK(order);
    CHECK(execution_order_add_file(order, path, size, "x", 1, &err) == is_good);
    CHECK(is_good || (err.kind == ERROR_INVALID && strncmp(err.message, "Invalid file path: ", 19) == 0));
    CHECK(order->file_count == (is_good ? 2 : 1));
    execution_order_free(order);
}

static void test_names(void)
{
    static const char *const BAD[] = {"",       ".",    "..", "/",  "/a",      "../a",     "a/..",
                                      "a/../b", "a//b", "a/", "./", "main.sh", "./main.sh"};
    static const char *const GOOD[] = {"a",   "...", ".a",   "a/b",  "./a",     "a/./b",
                                       "..a", "a..", "\xff", "a\nb", "main.py", "x/main.sh"};
    char longest[300];
    memset(longest, 'a', sizeof longest);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        test_name(BAD[i], strlen(BAD[i]), false);
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++)
        test_name(GOOD[i], strlen(GOOD[i]), true);
    test_name("a\0b", 3, false);
    test_name(longest, 255, true);
    test_name(longest, 256, false);
}

static void test_languages(void)
{
    static const char *const BAD[] = {"",     " ",    "py thon",  "Python",
                                      "ruby", "py\n", " python ", "pythonpythonpythonpythonpython"};
    static const char *const GOOD[] = {"python", "py",   "python3",    "bash", "sh",
                                       "shell",  "node", "javascript", "js",   "nodejs"};
    struct error err = {0};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK(!execution_order_new("sbx_a", BAD[i], "", 0, &err) &&
              strncmp(err.message, "Unsupported language: ", 22) == 0);
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        struct execution_order *order = execution_order_new("sbx_a", GOOD[i], "", 0, &err);
        CHECK(order);
        execution_order_free(order);
    }
}

static void test_margin(void)
{
    CHECK(execute_request_margin(0.1) == 0.05);
    CHECK(execute_request_margin(2) == 0.25);
    CHECK(execute_request_margin(60) == 3);
    CHECK(execute_request_margin(86400) == 5);
}

static void test_paths(void)
{
    char *path = execute_result_path("run_a", "a b/\xc3\xa4?#%\n.txt");
    CHECK_TEXT(path, "executions/run_a/artifacts/a%20b/%C3%A4%3F%23%25%0A.txt");
    free(path);
}

int main(void)
{
    test_all();
    test_refused("{\"language\":\"py\"}", "code");
    test_refused("{\"code\":\"1\"}", "language");
    test_refused("{\"code\":\"1\",\"language\":\"py\",\"cmd\":\"x\"}", "cmd");
    test_refused("{\"code\":\"1\",\"language\":\"py\",\"timeout_s\":0}", "timeout_s");
    test_refused("{\"code\":\"1\",\"language\":\"py\",\"timeout_s\":\"1\"}", "timeout_s");
    test_refused("{\"code\":\"1\",\"language\":\"py\",\"environment\":{\"1\":\"x\"}}", "environment");
    test_refused("{\"code\":\"1\",\"language\":\"py\",\"arguments\":[1]}", "arguments");
    test_refused("{\"code\":\"1\",\"language\":\"py\",\"files\":{\"a\":1}}", "files");
    test_names();
    test_languages();
    test_margin();
    test_paths();
    return check_done();
}
