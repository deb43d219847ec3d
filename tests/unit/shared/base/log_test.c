/* log_test.c - one write a line, levels, cut lines, and no secret in any of them. */
#include "shared/base/log.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <unistd.h>

#define KEY_43 "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_abcde"
#define JWT    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwcm4ifQ.c2lnbmF0dXJl-_.cjE.bWFj"

static void check_redacted(const char *line, const char *want)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", line);
    log_redact(text);
    CHECK_TEXT(text, want);
}

static void test_redact(void)
{
    check_redacted("", "");
    check_redacted("nothing secret here", "nothing secret here");
    check_redacted("key=pk_" KEY_43 " next", "key=pk_*** next");
    check_redacted("pk_" KEY_43, "pk_***");
    check_redacted("\"pk_" KEY_43 "\",\"pk_" KEY_43 "\"", "\"pk_***\",\"pk_***\"");
    check_redacted("--token pj_id.secret.hash end", "--token pj_*** end");
    check_redacted("Bearer " JWT "; x", "Bearer eyJhbGci***; x");
    check_redacted("/c/" JWT "/exec?token=" JWT "&a=1", "/c/eyJhbGci***/exec?token=eyJhbGci***&a=1");
    check_redacted("cut pk_AB", "cut pk_**");
    check_redacted("pk_", "pk_");
    check_redacted("eyJ", "eyJ");
    check_redacted("eyJabcde", "eyJabcde");
    check_redacted("eyJabcde.", "eyJabcde*");
    check_redacted("xpk_" KEY_43, "xpk_***");
    check_redacted("whsec_ab/cd+ef== end", "whsec_*** end");
}

/* What log_write writes to stderr comes back through a pipe; one read is one write of at most PIPE_BUF. */
static size_t logged(char *to, size_t size, int pipe_end)
{
    ssize_t got = read(pipe_end, to, size - 1);
    to[got < 0 ? 0 : got] = '\0';
    return got < 0 ? 0 : (size_t)got;
}

static void test_lines(int from)
{
    char line[8192];
    errno = 1234;
    log_info("launcher", "slot taken slot=%d key=%s", 5, "pk_" KEY_43);
    CHECK(errno == 1234);
    CHECK(logged(line, sizeof line, from) > 0);
    CHECK(strlen(line) > 25 && line[4] == '-' && line[23] == 'Z');
    CHECK_TEXT(line + 24, " info launcher: slot taken slot=5 key=pk_***\n");

    log_debug("launcher", "dropped");
    log_write((enum log_level)9, "launcher", "no level");
    log_set_level(LOG_WARN);
    log_info("launcher", "dropped too");
    log_error("front", "a\nb\x1b[31m\x7f \xC3\xA4 \xC2\x9B \xFF\xE2\x82 end");
    logged(line, sizeof line, from);
    CHECK_TEXT(line + 24, " error front: a?b?[31m? \xC3\xA4 ?? ??? end\n");

    char longest[6000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    log_warn("front", "%s", longest);
    size_t length = logged(line, sizeof line, from);
    CHECK(length == 4096 && line[4095] == '\n' && strncmp(line + 4092, "...", 3) == 0);

    /* A token that is cut is masked all the same. */
    memcpy(longest, "eyJ", 3);
    memset(longest + 3, 'S', 5900);
    log_warn("front", "%s", longest);
    logged(line, sizeof line, from);
    CHECK(strstr(line, "eyJSSSSS***\n") != NULL);
}

static size_t count_lines(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

/* Held lines come in their order, before the thread's next other line, and at the latest when the buffer is full. */
static void test_held(int from)
{
    char lines[8192];
    log_set_level(LOG_INFO);
    log_write_later(LOG_INFO, "http", "not held: first");
    CHECK(logged(lines, sizeof lines, from) > 0 && strstr(lines, " not held: first\n") != NULL);
    log_hold(true);
    log_write_later(LOG_INFO, "http", "second pk_" KEY_43);
    log_write_later(LOG_DEBUG, "http", "dropped");
    log_write_later(LOG_INFO, "http", "third");
    log_info("audit", "fourth");
    size_t length = logged(lines, sizeof lines, from);
    if (count_lines(lines) == 2)
        logged(lines + length, sizeof lines - length, from); /* two writes */
    const char *second = strstr(lines, "second pk_***\n"), *third = strstr(lines, "third\n");
    CHECK(count_lines(lines) == 3 && second != NULL && third > second && strstr(lines, "fourth\n") > third);
    for (int i = 0; i < 100; i++) /* 100 lines of about 50 bytes */
        log_write_later(LOG_INFO, "http", "line %d", i);
    length = logged(lines, 4097, from);
    CHECK(length > 3900 && length <= 4096 && lines[length - 1] == '\n' && strstr(lines, " line 0\n") != NULL);
    log_hold(false);
    CHECK(logged(lines, sizeof lines, from) > 0 && strstr(lines, " line 99\n") != NULL);
    log_write_later(LOG_INFO, "http", "at once");
    CHECK(logged(lines, sizeof lines, from) > 0 && count_lines(lines) == 1);
}

static void check_json(int from, const char *want)
{
    char line[8192];
    logged(line, sizeof line, from);
    const char *rest = strstr(line, "Z\",");
    CHECK(strncmp(line, "{\"time\":\"", 9) == 0 && rest != NULL);
    CHECK_TEXT(rest ? rest + 2 : "", want);
}

/* What a field is stands in the format; a text from outside makes none, and breaks no line. */
static void test_json(int from)
{
    log_set_format(LOG_JSON);
    log_info("front", "%s %s status=%d ms=%.2f big=%llu who=%s", "GET", "/x", 200, 1.5, 12345678901234567890ULL, "007");
    check_json(from, ",\"level\":\"info\",\"area\":\"front\",\"message\":\"GET /x\",\"status\":200,\"ms\":1.50,"
                     "\"big\":\"12345678901234567890\",\"who\":\"007\"}\n");
    log_warn("a\"b", "lost sandbox=%s: it said \"%s\" name=%s", "sbx_1", "x\"} level=error", "y id=2 \x1b[1m\xFF\n{");
    check_json(from, ",\"level\":\"warn\",\"area\":\"a\\\"b\",\"message\":\"lost: it said \\\"x\\\"} level=error\\\"\","
                     "\"sandbox\":\"sbx_1\",\"name\":\"y id=2 \\u001b[1m?\\u000a{\"}\n");
    log_error("front", "a=%d a=%d message=%s url=http://%s:%u/ key=%s", 1, 2, "m", "h", 80, "pk_" KEY_43);
    check_json(from, ",\"level\":\"error\",\"area\":\"front\",\"message\":\"a=2 message=m\",\"a\":1,"
                     "\"url\":\"http://h:80/\",\"key\":\"pk_***\"}\n");
    char longest[9000], line[8192];
    memset(longest, '"', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    log_warn("front", "%s id=%s other=%s", longest, longest, "o");
    size_t length = logged(line, sizeof line, from);
    CHECK(length <= 4096 && count_lines(line) == 1 && strcmp(line + length - 2, "}\n") == 0);
    log_warn("front", "id=%s said %s", "i", longest);
    length = logged(line, sizeof line, from);
    CHECK(length <= 4096 && length > 100);
    CHECK_TEXT(line + (length > 17 ? length - 17 : 0), "\\\"...\",\"id\":\"i\"}\n");
    log_set_format(LOG_TEXT);
}

int main(void)
{
    test_redact();
    int ends[2];
    int old = dup(STDERR_FILENO);
    if (old < 0 || pipe(ends) < 0 || dup2(ends[1], STDERR_FILENO) < 0)
        return 1;
    int before = check_failures;
    test_lines(ends[0]);
    test_held(ends[0]);
    test_json(ends[0]);
    dup2(old, STDERR_FILENO);
    if (check_failures != before) {
        char said[8192];
        close(ends[1]);
        logged(said, sizeof said, ends[0]);
        fprintf(stderr, "%s\n", said);
        return 1;
    }
    close(old);
    close(ends[0]);
    close(ends[1]);
    return check_done();
}
