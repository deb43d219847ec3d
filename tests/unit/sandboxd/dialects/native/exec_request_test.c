/* exec_request_test.c - each field of POST /exec, taken and refused. */
#include "sandboxd/dialects/native/exec_request.h"
#include "tests/unit/check.h"

static bool parse(const char *text, struct exec_request *request, struct error *err)
{
    json_error_t wrong;
    json_t *body = json_loads(text, 0, &wrong);
    *request = (struct exec_request){0};
    *err = (struct error){0};
    bool parsed = body && exec_request_parse(request, body, err);
    json_decref(body);
    return parsed;
}

static void refused(const char *text, const char *word)
{
    struct exec_request request;
    struct error err;
    bool parsed = parse(text, &request, &err);
    if (parsed)
        command_free(request.command);
    if (parsed || err.kind != ERROR_INVALID || !strstr(err.message, word)) {
        fprintf(stderr, "%s: parsed=%d \"%s\", want \"%s\"\n", text, parsed, err.message, word);
        check_failures++;
    }
}

static void test_taken(void)
{
    struct exec_request request;
    struct error err;
    CHECK(parse("{\"cmd\":\"echo hi\",\"cwd\":\"/tmp\",\"env\":{\"A\":\"1\"},\"timeout\":1.5,\"id\":\"a.b-c_1\"}",
                &request, &err));
    const struct command *command = request.command;
    CHECK(request.reply == EXEC_NDJSON && !request.reply_chosen);
    CHECK(command->argument_count == 3);
    CHECK_TEXT(command->arguments[0], "/bin/bash");
    CHECK_TEXT(command->arguments[2], "echo hi");
    CHECK_TEXT(command->variables[0], "A=1");
    CHECK_TEXT(command->cwd, "/tmp");
    CHECK_TEXT(command->id, "a.b-c_1");
    CHECK(command->timeout_ms == 1500 && !command->with_stdin);
    command_free(request.command);
    CHECK(parse("{\"argv\":[\"/bin/cat\",\"-\",\"\"],\"stdin\":\"x\",\"stream\":\"none\"}", &request, &err));
    CHECK(request.command->argument_count == 3 && request.reply == EXEC_ONE_JSON);
    CHECK(request.command->with_stdin && !request.command->stdin_stays_open && request.command->input_size == 1);
    command_free(request.command);
    CHECK(parse("{\"argv\":[\"cat\"],\"stdin\":null,\"stdin_open\":true,\"detach\":true}", &request, &err));
    CHECK(request.command->with_stdin && request.command->stdin_stays_open && request.reply == EXEC_DETACHED);
    command_free(request.command);
}

static void test_refused(void)
{
    refused("{}", "exactly one of cmd and argv");
    refused("{\"cmd\":\"a\",\"argv\":[\"a\"]}", "exactly one of cmd and argv");
    refused("{\"cmd\":\"\"}", "cmd");
    refused("{\"cmd\":7}", "cmd");
    refused("{\"argv\":[]}", "argv");
    refused("{\"argv\":[\"\"]}", "argv");
    refused("{\"argv\":[\"a\",1]}", "argv");
    refused("{\"cmd\":\"a\",\"cwd\":\"tmp\"}", "cwd");
    refused("{\"cmd\":\"a\",\"env\":[]}", "env");
    refused("{\"cmd\":\"a\",\"env\":{\"A\":1}}", "env");
    refused("{\"cmd\":\"a\",\"env\":{\"1A\":\"x\"}}", "env");
    refused("{\"cmd\":\"a\",\"env\":{\"A=B\":\"x\"}}", "env");
    refused("{\"cmd\":\"a\",\"timeout\":0}", "timeout");
    refused("{\"cmd\":\"a\",\"timeout\":86401}", "timeout");
    refused("{\"cmd\":\"a\",\"timeout\":\"1\"}", "timeout");
    refused("{\"cmd\":\"a\",\"stdin\":1}", "stdin");
    refused("{\"cmd\":\"a\",\"detach\":1}", "detach");
    refused("{\"cmd\":\"a\",\"id\":\"../x\"}", "id");
    refused("{\"cmd\":\"a\",\"id\":\"\"}", "id");
    refused("{\"cmd\":\"a\",\"stream\":\"xml\"}", "stream");
    refused("{\"cmd\":\"a\",\"tty\":1}", "tty");
    refused("{\"cmd\":\"a\",\"tty\":true,\"cols\":0}", "cols");
    refused("{\"cmd\":\"a\",\"tty\":true,\"rows\":1001}", "rows");
    refused("{\"cmd\":\"a\",\"cols\":80}", "tty");
    refused("{\"cmd\":\"a\",\"bin\":true}", "unknown field \"bin\"");
    refused("{\"cmd\":\"a\",\"type\":\"start\"}", "unknown field \"type\"");
    refused("{\"cmd\":\"a\",\"user\":\"daemon\"}", "user: \"user\"");
    refused("{\"cmd\":\"a\",\"user\":0}", "user: \"user\"");
    refused("{\"cmd\":\"a\",\"comand\":1}", "unknown field \"comand\"");
}

static void test_terminal(void)
{
    struct exec_request request;
    struct error err;
    CHECK(parse("{\"cmd\":\"a\",\"tty\":true,\"cols\":132}", &request, &err));
    const struct command *command = request.command;
    CHECK(command->terminal && command->with_stdin && command->stdin_stays_open);
    CHECK(command->columns == 132 && command->rows == 24);
    CHECK(command->variable_count ==
          0); /* TERM is a default of every terminal, below the sandbox's own: command_seal */
    command_free(request.command);
    CHECK(parse("{\"cmd\":\"a\",\"tty\":false}", &request, &err));
    CHECK(!request.command->terminal && !request.command->with_stdin && request.command->variable_count == 0);
    command_free(request.command);
}

static void test_hash(void)
{
    struct exec_request a, b, c;
    struct error err;
    CHECK(parse("{\"cmd\":\"x\",\"id\":\"1\"}", &a, &err) && parse("{\"id\":\"2\",\"cmd\":\"x\"}", &b, &err));
    CHECK(parse("{\"cmd\":\"x\",\"env\":{\"A\":\"\"}}", &c, &err));
    uint8_t hashes[3][COMMAND_HASH_BYTES];
    command_hash(a.command, hashes[0]);
    command_hash(b.command, hashes[1]);
    command_hash(c.command, hashes[2]);
    CHECK(memcmp(hashes[0], hashes[1], COMMAND_HASH_BYTES) == 0);
    CHECK(memcmp(hashes[0], hashes[2], COMMAND_HASH_BYTES) != 0);
    command_free(a.command);
    command_free(b.command);
    command_free(c.command);
}

int main(void)
{
    test_taken();
    test_refused();
    test_terminal();
    test_hash();
    return check_done();
}
