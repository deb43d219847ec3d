/* kernel_request_test.c - what the bodies of the routes of contexts may be. */
#include "sandboxd/dialects/native/kernels/kernel_request.h"

#include "tests/unit/check.h"

static bool create(const char *text, struct kernel_create *to, struct error *err)
{
    json_t *body = json_loads(text, 0, NULL);
    *err = (struct error){0};
    *to = (struct kernel_create){0};
    CHECK(body != NULL);
    bool is_read = kernel_request_create(to, body, err);
    CHECK(is_read == (to->command != NULL) && (is_read || err->kind == ERROR_INVALID));
    json_decref(body);
    return is_read;
}

static void test_create(void)
{
    struct kernel_create to;
    struct error err;
    CHECK(create("{}", &to, &err) && to.id == NULL && to.timeout_ms == 0);
    command_free(to.command);
    CHECK(create("{\"cwd\":\"/tmp\",\"env\":{\"A\":\"1\"},\"timeout\":0.0001}", &to, &err) && to.timeout_ms == 1);
    CHECK_TEXT(to.command->cwd, "/tmp");
    CHECK_TEXT(to.command->variables[0], "A=1");
    command_free(to.command);
    static const char *const WRONG[] = {"{\"language\":1}",
                                        "{\"id\":\"\"}",
                                        "{\"name\":\"a b\"}",
                                        "{\"id\":\"a\",\"name\":\"a\"}",
                                        "{\"id\":1}",
                                        "{\"cwd\":\"x\"}",
                                        "{\"env\":[]}",
                                        "{\"env\":{\"A\":1}}",
                                        "{\"env\":{\"A-B\":\"\"}}",
                                        "{\"timeout\":0}",
                                        "{\"timeout\":601}",
                                        "{\"durable\":true}",
                                        "{\"durable\":1,\"language\":\"bash\"}",
                                        "{\"durable\":true,\"language\":\"python\"}",
                                        "{\"user\":\"root\"}"};
    CHECK(create("{\"durable\":true,\"language\":\"sh\"}", &to, &err) && to.is_durable);
    command_free(to.command);
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        CHECK(!create(WRONG[i], &to, &err));
}

static bool run(const char *text, struct kernel_ordered *to, size_t *size, struct error *err)
{
    json_t *body = json_loads(text, 0, NULL);
    *err = (struct error){0};
    bool is_read = kernel_request_run(to, body, err);
    *size = is_read ? to->code.size : 0; /* the code itself is the body's */
    json_decref(body);
    return is_read;
}

static void test_run(void)
{
    struct kernel_ordered to;
    struct error err;
    size_t size;
    CHECK(run("{\"code\":\"x\"}", &to, &size, &err) && size == 1 && to.framing == KERNEL_NDJSON && !to.framing_chosen);
    CHECK(run("{\"code\":\"\",\"silent\":true,\"timeout\":2,\"stream\":\"sse\"}", &to, &size, &err));
    CHECK(to.code.silent && to.code.timeout_ms == 2000 && to.framing == KERNEL_SSE && to.framing_chosen);
    CHECK(!to.code.at_once && !to.code.merges && !to.code.restarts && to.code.cwd == NULL);
    CHECK(run("{\"code\":\"\",\"queue\":false,\"stderr\":\"stdout\",\"restart\":true,\"cwd\":\"/tmp\"}", &to, &size,
              &err));
    CHECK(to.code.at_once && to.code.merges && to.code.restarts && to.code.cwd != NULL);
    CHECK(run("{\"code\":\"\",\"queue\":true,\"stderr\":\"stderr\"}", &to, &size, &err));
    CHECK(!to.code.at_once && !to.code.merges);
    static const char *const WRONG[] = {"{}",
                                        "{\"code\":\"\",\"cwd\":\"tmp\"}",
                                        "{\"code\":\"\",\"cwd\":1}",
                                        "{\"code\":\"\",\"stderr\":\"null\"}",
                                        "{\"code\":\"\",\"queue\":0}",
                                        "{\"code\":\"\",\"restart\":\"yes\"}",
                                        "{\"code\":1}",
                                        "{\"code\":\"\",\"silent\":1}",
                                        "{\"code\":\"\",\"timeout\":-1}",
                                        "{\"code\":\"\",\"timeout\":86401}",
                                        "{\"code\":\"\",\"stream\":\"xml\"}",
                                        "{\"code\":\"\",\"stream\":1}",
                                        "{\"code\":\"\",\"id\":\"a\"}"};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        CHECK(!run(WRONG[i], &to, &size, &err) && err.kind == ERROR_INVALID);
}

int main(void)
{
    test_create();
    test_run();
    return check_done();
}
