/* Bodies of POST /command: what is taken, what is refused and why. */
#include "sandboxd/dialects/execd/execd_request.h"

#include "tests/unit/check.h"

#include <string.h>

static bool parse(const char *json, struct execd_request *request, struct error *err)
{
    json_t *body = json_loads(json, 0, NULL);
    *request = (struct execd_request){0};
    *err = (struct error){0};
    CHECK(body != NULL);
    bool is_good = execd_request_parse(request, body, 1000, err);
    CHECK(is_good == (request->command != NULL));
    json_decref(body);
    return is_good;
}

static void check_refused(const char *json, const char *field)
{
    struct execd_request request;
    struct error err;
    CHECK(!parse(json, &request, &err));
    CHECK(err.kind == ERROR_INVALID && strncmp(err.message, field, strlen(field)) == 0);
}

static void test_taken(void)
{
    struct execd_request request;
    struct error err;
    CHECK(parse("{\"command\":\"echo hi\",\"cwd\":null,\"background\":null,\"timeout\":null,\"uid\":null,\"gid\":null,"
                "\"envs\":null,\"of_tomorrow\":1}",
                &request, &err));
    CHECK(request.command->is_line && request.command->argument_count == 3);
    CHECK(strcmp(request.command->arguments[2], "echo hi") == 0 && !request.command->cwd);
    CHECK(!request.is_background && !request.command->merges && !request.command->as_root);
    CHECK(request.command->timeout_ms == 0 && !request.command->with_stdin);
    command_free(request.command);
    CHECK(parse("{\"command\":\"x\",\"cwd\":\"~/a\",\"background\":true,\"timeout\":1500,\"uid\":0,\"gid\":0,"
                "\"envs\":{\"A\":\"1\"}}",
                &request, &err));
    CHECK(request.is_background && request.command->merges && request.command->as_root);
    CHECK(strcmp(request.command->cwd, "~/a") == 0 && request.command->timeout_ms == 1500);
    CHECK(request.command->variable_count == 1 && strcmp(request.command->variables[0], "A=1") == 0);
    command_free(request.command);
    CHECK(parse("{\"command\":\"x\",\"uid\":1000,\"gid\":1000,\"cwd\":\"\"}", &request, &err));
    CHECK(!request.command->as_root && !request.command->cwd);
    command_free(request.command);
}

static void test_refused(void)
{
    check_refused("{}", "command");
    check_refused("{\"command\":\"\"}", "command");
    check_refused("{\"command\":1}", "command");
    check_refused("{\"command\":null}", "command");
    check_refused("{\"command\":\"x\",\"cwd\":1}", "cwd");
    check_refused("{\"command\":\"x\",\"timeout\":-1}", "timeout");
    check_refused("{\"command\":\"x\",\"timeout\":\"1\"}", "timeout");
    check_refused("{\"command\":\"x\",\"timeout\":1e300}", "timeout");
    check_refused("{\"command\":\"x\",\"background\":1}", "background");
    check_refused("{\"command\":\"x\",\"gid\":1000}", "gid");
    check_refused("{\"command\":\"x\",\"uid\":1000,\"gid\":0}", "gid");
    check_refused("{\"command\":\"x\",\"uid\":1001}", "uid");
    check_refused("{\"command\":\"x\",\"uid\":-1}", "uid");
    check_refused("{\"command\":\"x\",\"uid\":0.5}", "uid");
    check_refused("{\"command\":\"x\",\"envs\":[]}", "envs");
    check_refused("{\"command\":\"x\",\"envs\":{\"A\":1}}", "envs");
    check_refused("{\"command\":\"x\",\"envs\":{\"1A\":\"1\"}}", "envs");
}

static void test_too_long(void)
{
    static char line[131072 + 1];
    struct error err = {0};
    AUTO(command) *command = command_new();
    memset(line, 'x', sizeof line - 1);
    CHECK(!execd_request_set_line(command, line, &err) && err.kind == ERROR_INVALID);
    line[131071] = '\0';
    CHECK(execd_request_set_line(command, line, &err));
}

int main(void)
{
    test_taken();
    test_refused();
    test_too_long();
    return check_done();
}
