/* socket_frames_test.c - each frame of a client, taken and refused, and those that are ours. */
#include "sandboxd/dialects/native/socket/socket_frames.h"
#include "tests/unit/check.h"

static bool parse(const char *text, struct socket_frame *frame, struct error *err)
{
    *frame = (struct socket_frame){0};
    *err = (struct error){0};
    return socket_frame_parse(frame, text, strlen(text), err);
}

static void refused(const char *text, const char *word)
{
    AUTO_SOCKET_FRAME frame = {0};
    struct error err;
    bool parsed = parse(text, &frame, &err);
    if (parsed || err.kind != ERROR_INVALID || !strstr(err.message, word)) {
        fprintf(stderr, "%s: parsed=%d \"%s\", want \"%s\"\n", text, parsed, err.message, word);
        check_failures++;
    }
}

static void test_auth(void)
{
    AUTO_SOCKET_FRAME frame = {0};
    struct error err;
    CHECK(parse("{\"type\":\"auth\",\"token\":\"a.b.c\"}", &frame, &err) && frame.type == SOCKET_AUTH);
    CHECK_TEXT(frame.token, "a.b.c");
    refused("{\"type\":\"auth\"}", "token");
    refused("{\"type\":\"auth\",\"token\":\"\"}", "token");
    refused("{\"type\":\"auth\",\"token\":7}", "token");
    refused("{\"type\":\"auth\",\"token\":\"a\",\"more\":1}", "more");
}

static void test_start(void)
{
    AUTO_SOCKET_FRAME shell = {0}, plain = {0};
    struct error err;
    CHECK(parse("{\"type\":\"start\"}", &shell, &err) && shell.type == SOCKET_START);
    const struct command *command = shell.start.command;
    CHECK(command->terminal && command->with_stdin && command->stdin_stays_open);
    CHECK(command->columns == 80 && command->rows == 24 && command->argument_count == 3);
    CHECK_TEXT(command->arguments[0], "/bin/sh");
    CHECK(command->variable_count == 0); /* TERM is a default of every terminal: command_seal */
    CHECK(!shell.start.binary && !shell.start.acks);
    CHECK(parse("{\"type\":\"start\",\"argv\":[\"cat\"],\"tty\":false,\"id\":\"x\",\"bin\":true,\"ack\":true,"
                "\"cwd\":\"/tmp\",\"env\":{\"A\":\"b\"}}",
                &plain, &err));
    command = plain.start.command;
    CHECK(!command->terminal && command->columns == 0 && command->variable_count == 1);
    CHECK(plain.start.binary && plain.start.acks);
    CHECK_TEXT(command->id, "x");
    refused("{\"type\":\"start\",\"cmd\":\"a\",\"argv\":[\"a\"]}", "exclude");
    refused("{\"type\":\"start\",\"tty\":false,\"cols\":3}", "tty");
    refused("{\"type\":\"start\",\"cols\":0}", "cols");
    refused("{\"type\":\"start\",\"rows\":1001}", "rows");
    refused("{\"type\":\"start\",\"tty\":1}", "tty");
    refused("{\"type\":\"start\",\"bin\":\"yes\"}", "bin");
    refused("{\"type\":\"start\",\"detach\":true}", "detach"); /* exec's alone */
    refused("{\"type\":\"start\",\"timeout\":0}", "timeout");
    refused("{\"type\":\"start\",\"timeout\":86401}", "timeout");
    refused("{\"type\":\"start\",\"stdin_open\":1}", "stdin_open");
    refused("{\"type\":\"start\",\"stdin\":\"x\"}", "stdin"); /* exec's alone */
}

static void test_start_with_limits(void)
{
    AUTO_SOCKET_FRAME limited = {0}, closed = {0}, terminal = {0};
    struct error err;
    CHECK(parse("{\"type\":\"start\",\"argv\":[\"a\"],\"tty\":false,\"timeout\":0.25}", &limited, &err));
    CHECK(limited.start.command->timeout_ms == 250);
    CHECK(limited.start.command->with_stdin && limited.start.command->stdin_stays_open);
    CHECK(parse("{\"type\":\"start\",\"argv\":[\"a\"],\"tty\":false,\"stdin_open\":false}", &closed, &err));
    CHECK(!closed.start.command->with_stdin && !closed.start.command->stdin_stays_open);
    CHECK(closed.start.command->timeout_ms == 0);
    CHECK(parse("{\"type\":\"start\",\"stdin_open\":false}", &terminal, &err));
    CHECK(terminal.start.command->with_stdin && terminal.start.command->stdin_stays_open);
}

static void test_own_term_stays(void)
{
    AUTO_SOCKET_FRAME frame = {0};
    struct error err;
    CHECK(parse("{\"type\":\"start\",\"env\":{\"TERM\":\"dumb\"}}", &frame, &err));
    CHECK(frame.start.command->variable_count == 1);
    CHECK_TEXT(frame.start.command->variables[0], "TERM=dumb");
}

static void test_attach(void)
{
    AUTO_SOCKET_FRAME frame = {0}, watch = {0};
    struct error err;
    CHECK(parse("{\"type\":\"attach\",\"id\":\"t-1\",\"stdout_offset\":9007199254740993,\"ack\":true}", &frame, &err));
    CHECK(frame.type == SOCKET_ATTACH && frame.mode == SOCKET_DRIVE && frame.acks && !frame.binary);
    CHECK(frame.offsets[OUTPUT_STDOUT] == 9007199254740993 && frame.offsets[OUTPUT_STDERR] == 0);
    CHECK_TEXT(frame.id, "t-1");
    CHECK(
        parse("{\"type\":\"attach\",\"id\":\"t\",\"mode\":\"watch\",\"bin\":true,\"stderr_offset\":1}", &watch, &err));
    CHECK(watch.mode == SOCKET_WATCH && watch.binary && watch.offsets[OUTPUT_STDERR] == 1);
    refused("{\"type\":\"attach\"}", "id");
    refused("{\"type\":\"attach\",\"id\":\"a/b\"}", "id");
    refused("{\"type\":\"attach\",\"id\":\"a\",\"mode\":\"own\"}", "mode");
    refused("{\"type\":\"attach\",\"id\":\"a\",\"mode\":3}", "mode");
    refused("{\"type\":\"attach\",\"id\":\"a\",\"stdout_offset\":-1}", "stdout_offset");
    refused("{\"type\":\"attach\",\"id\":\"a\",\"stderr_offset\":1.5}", "stderr_offset");
    refused("{\"type\":\"attach\",\"id\":\"a\",\"offset\":1}", "offset");
}

static void test_stdin(void)
{
    AUTO_SOCKET_FRAME text = {0}, bytes = {0}, empty = {0}, nul = {0};
    struct error err;
    CHECK(parse("{\"type\":\"stdin\",\"data\":\"h\\u00e9\\n\"}", &text, &err) && text.type == SOCKET_INPUT);
    CHECK(text.size == 4 && memcmp(text.data, "h\xc3\xa9\n", 4) == 0 && text.offset == SOCKET_OFFSET_NONE);
    CHECK(parse("{\"type\":\"stdin\",\"data_b64\":\"/wA=\",\"offset\":12}", &bytes, &err));
    CHECK(bytes.size == 2 && memcmp(bytes.data, "\xff\0", 2) == 0 && bytes.offset == 12);
    CHECK(parse("{\"type\":\"stdin\",\"data_b64\":\"\"}", &empty, &err) && empty.size == 0);
    CHECK(parse("{\"type\":\"stdin\",\"data\":\"a\\u0000b\"}", &nul, &err) && nul.size == 3);
    CHECK(nul.data && memcmp(nul.data, "a\0b", 3) == 0);
    refused("{\"type\":\"stdin\",\"data_b64\":\"YQ==\\u0000\"}", "data_b64");
    refused("{\"type\":\"stdin\\u0000\",\"data\":\"a\"}", "not valid");
    refused("{\"type\":\"start\",\"cmd\":\"a\\u0000b\"}", "not valid");
    refused("{\"type\":\"stdin\"}", "exactly one");
    refused("{\"type\":\"stdin\",\"data\":\"a\",\"data_b64\":\"YQ==\"}", "exactly one");
    refused("{\"type\":\"stdin\",\"data\":7}", "data");
    refused("{\"type\":\"stdin\",\"data_b64\":\"YQ\"}", "data_b64");
    refused("{\"type\":\"stdin\",\"data_b64\":7}", "data_b64");
    refused("{\"type\":\"stdin\",\"data\":\"a\",\"offset\":\"1\"}", "offset");
}

static void test_small_ones(void)
{
    AUTO_SOCKET_FRAME frame = {0};
    struct error err;
    CHECK(parse("{\"type\":\"eof\"}", &frame, &err) && frame.type == SOCKET_EOF);
    CHECK(parse("{\"type\":\"ping\"}", &frame, &err) && frame.type == SOCKET_PING);
    CHECK(parse("{\"type\":\"resize\",\"cols\":120,\"rows\":40}", &frame, &err));
    CHECK(frame.type == SOCKET_RESIZE && frame.columns == 120 && frame.rows == 40);
    CHECK(parse("{\"type\":\"signal\",\"signal\":\"int\"}", &frame, &err) && frame.signal == 2);
    CHECK(parse("{\"type\":\"signal\",\"signal\":15}", &frame, &err) && frame.signal == 15);
    refused("{\"type\":\"ping\",\"x\":1}", "x");
    refused("{\"type\":\"eof\",\"data\":\"\"}", "data");
    refused("{\"type\":\"resize\",\"cols\":120}", "rows");
    refused("{\"type\":\"signal\",\"signal\":65}", "signal");
    refused("{\"type\":\"signal\"}", "signal");
}

static void test_what_is_none(void)
{
    refused("", "not valid");
    refused("{", "not valid");
    refused("[]", "type");
    refused("{}", "type");
    refused("7", "not valid");
    refused("{\"type\":7}", "type");
    refused("{\"type\":\"auth_ok\"}", "unknown type");
    refused("{\"type\":\"ping\",\"type\":\"ping\"}", "twice");
    refused("{\"type\":\"pi\\u0000ng\"}", "not valid");
}

static void test_ours(void)
{
    AUTO_TEXT started = {0}, ack = {0}, auth_ok = {0}, expiring = {0};
    const uint64_t offsets[OUTPUT_STREAMS] = {5, 0};
    struct process_view view = {.id = "t1", .pid = 9, .terminal = true, .columns = 80, .rows = 24, .stdin_offset = 3};
    socket_print_started(&started, &view, SOCKET_WATCH, offsets);
    CHECK_TEXT(started.data, "{\"type\":\"started\",\"id\":\"t1\",\"pid\":9,\"tty\":true,\"cols\":80,\"rows\":24,"
                             "\"stdin_offset\":3,\"mode\":\"watch\",\"stdout_offset\":5,\"stderr_offset\":0}");
    socket_print_stdin_ack(&ack, UINT64_C(1) << 40);
    CHECK_TEXT(ack.data, "{\"type\":\"stdin_ack\",\"stdin_offset\":1099511627776}");
    socket_print_expiring(&expiring, 30);
    CHECK_TEXT(expiring.data, "{\"type\":\"expiring\",\"in\":30}");
    struct capability_claims claims = {.expires_at = 1767225600};
    struct error err = {0};
    CHECK(scope_parse(&claims.scopes, "shell process", 13, SCOPE_UNKNOWN_REFUSED, &err));
    socket_print_auth_ok(&auth_ok, "req_1", &claims);
    CHECK_TEXT(auth_ok.data, "{\"type\":\"auth_ok\",\"session_id\":\"req_1\",\"scopes\":[\"shell\",\"process\"],"
                             "\"expires_at\":\"2026-01-01T00:00:00.000Z\"}");
}

int main(void)
{
    test_auth();
    test_start();
    test_start_with_limits();
    test_own_term_stays();
    test_attach();
    test_stdin();
    test_small_ones();
    test_what_is_none();
    test_ours();
    return check_done();
}
