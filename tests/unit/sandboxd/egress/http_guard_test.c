/* Requests that go through byte for byte, however they are cut; and every trick that would name another host. */
#include "sandboxd/egress/http_guard.h"

#include "tests/unit/check.h"

static char asked[512];

static bool is_allowed(void *cookie UNUSED, const char *name)
{
    strcat(strcat(asked, name), " ");
    return strcmp(name, "good.test") == 0 || strcmp(name, "also.test") == 0;
}

/* Reads it in pieces of `step`; true when all was let through. */
static bool read_in(const char *request, size_t size, size_t step, struct text *out, struct error *err)
{
    AUTO(http_guard) *guard = http_guard_new(80, is_allowed, NULL);
    asked[0] = '\0';
    for (size_t at = 0; at < size; at += step) {
        if (!http_guard_read(guard, request + at, size - at < step ? size - at : step, out, err))
            return false;
    }
    return true;
}

static void check_passes(const char *request)
{
    size_t size = strlen(request);
    for (size_t step = 1; step <= size; step = step < 8 ? step + 1 : step * 3) {
        AUTO_TEXT out = {0};
        struct error err = {0};
        CHECK(read_in(request, size, step, &out, &err));
        if (out.length != size || memcmp(out.data, request, size) != 0)
            (void)fprintf(stderr, "step %zu: %s %.*s\n", step, err.message, (int)out.length, out.data ? out.data : "");
        CHECK(out.length == size && memcmp(out.data, request, size) == 0);
    }
}

/* `passed`: how much of the beginning may have gone to the server. */
static void check_refused(const char *request, size_t size, size_t passed)
{
    for (size_t step = 1; step <= size; step = step < 8 ? step + 1 : step * 3) {
        AUTO_TEXT out = {0};
        struct error err = {0};
        if (read_in(request, size, step, &out, &err) || out.length > passed)
            (void)fprintf(stderr, "step %zu let through: %.*s\n", step, (int)size, request);
        CHECK(err.kind != ERROR_NONE && err.message[0] != '\0');
        CHECK(out.length <= passed);
    }
}

#define REFUSED(text)            check_refused(text, sizeof(text) - 1, 0)
#define REFUSED_AFTER(good, bad) check_refused(good bad, sizeof(good bad) - 1, sizeof(good) - 1)
#define GET                      "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"
#define CHUNKED                  "POST /x HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n"

static void test_passes(void)
{
    check_passes(GET);
    check_passes("GET /a?b HTTP/1.0\r\nHost: GOOD.test.:80\r\nUser-Agent: x y\tz\r\nAccept: */*\r\n\r\n");
    check_passes(
        "POST / HTTP/1.1\r\nhost:good.test\r\nContent-Length: 11\r\n\r\nhello\r\n\r\n\n\nGET /2 HTTP/1.1\r\nHost: "
        "also.test\r\n\r\n");
    check_passes(CHUNKED "5\r\nhello\r\nA;x=y\r\n\r\n\r\n\n\n\r\rab\r\n0\r\n\r\n" GET GET);
    check_passes("OPTIONS * HTTP/1.1\r\nHost: good.test\r\n\r\n");
    check_passes("GET http://good.TEST/x HTTP/1.1\r\nHost: good.test\r\n\r\n");
    check_passes("GET http://good.test:80/x HTTP/1.1\r\nHost: good.test\r\n\r\n");
    CHECK_TEXT(asked, "good.test ");
}

static void test_hosts(void)
{
    REFUSED("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\n\r\n");
    REFUSED("GET / HTTP/1.0\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost:\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test\r\nhOsT: good.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: user@good.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test@evil.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test:8080\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test:80:80\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test evil.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test, evil.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: 203.0.113.7\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test\0.evil.test\r\n\r\n");
    REFUSED("GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n");
    REFUSED("GET http://good.test@evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n");
    REFUSED("GET http://evil.test?good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n");
    REFUSED("GET https://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n");
    REFUSED("GET //evil.test\\ HTTP/1.1\r\nHost : good.test\r\n\r\n");
}

static void test_other_protocols(void)
{
    REFUSED("CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test\r\nUpgrade: h2c\r\n\r\n");
    REFUSED("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    REFUSED("GET / HTTP/2.0\r\nHost: good.test\r\n\r\n");
    REFUSED("GET /\r\n\r\n");
    REFUSED("GET / H\r\n\r\n" GET); /* the parser takes it for something that goes on */
    REFUSED("GET / HTTP/1.1 x\r\nHost: good.test\r\n\r\n");
    REFUSED("\r\n\r\nGET / HTTP/1.1\r\nHost: good.test\r\n\r\n");
    REFUSED("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    REFUSED("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n");
}

static void test_smuggling(void)
{
    REFUSED("GET / HTTP/1.1\r\nHost : good.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test\r\n folded: x\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test\r\nX: a\rHost: evil.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\r\nHost: good.test\r\nX: a\nHost: evil.test\r\n\r\n");
    REFUSED("GET / HTTP/1.1\nHost: good.test\n\n\r\n\r\n");
    REFUSED("POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    REFUSED("POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd");
    REFUSED("POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: +3\r\n\r\nabc");
    REFUSED("POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3, 3\r\n\r\nabc");
    REFUSED("POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n");
    REFUSED("POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n");
    REFUSED("POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: identity\r\n\r\n");
    REFUSED("POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n");
    REFUSED("POST / HTTP/1.0\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    REFUSED("POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding:\x0b"
            "chunked\r\n\r\n0\r\n\r\n");
#define EVIL "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    REFUSED_AFTER(GET, EVIL);
    REFUSED_AFTER(GET GET, EVIL);
    REFUSED_AFTER(CHUNKED "3\r\nabc\r\n0\r\n\r\n", EVIL);
    REFUSED_AFTER("POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 5\r\n\r\nhello", EVIL);
    REFUSED_AFTER("GET / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 0\r\n\r\n", EVIL);
    REFUSED_AFTER(CHUNKED "3", "\nabc\r\n0\r\n\r\n");
    REFUSED_AFTER(CHUNKED "3;x", "\ny\r\nabc\r\n0\r\n\r\n");
    REFUSED_AFTER(CHUNKED "3\r\nabc", "XX0\r\n\r\n" EVIL);
    REFUSED_AFTER(CHUNKED "3\r\nabc", "de0\r\n\r\n");
    REFUSED_AFTER(CHUNKED "", "xyz\r\n");
    REFUSED_AFTER(CHUNKED "0\r\n", "Host: evil.test\r\n\r\n");
    REFUSED_AFTER(CHUNKED "", "-1\r\n");
    REFUSED_AFTER(CHUNKED "ffffffffffffffff", "f\r\n");
}

static void test_sizes(void)
{
    static char big[HTTP_GUARD_HEAD_BYTES + 64] = "GET /";
    AUTO_TEXT out = {0};
    struct error err = {0};
    memset(big + 5, 'a', sizeof big - 5);
    CHECK(!read_in(big, sizeof big, 4096, &out, &err) && err.kind == ERROR_TOO_LARGE && out.length == 0);
    CHECK(!read_in(GET "x", sizeof GET, 7, &out, &err) ||
          out.length == sizeof GET - 1); /* a head not yet whole waits */
    AUTO(http_guard) *guard = http_guard_new(80, is_allowed, NULL);
    CHECK(!http_guard_has_begun(guard) && http_guard_read(guard, "GET /", 5, &out, &err));
    CHECK(!http_guard_has_begun(guard));
    CHECK(http_guard_read(guard, GET + 5, sizeof GET - 6, &out, &err) && http_guard_has_begun(guard));
}

int main(void)
{
    test_passes();
    test_hosts();
    test_other_protocols();
    test_smuggling();
    test_sizes();
    return check_done();
}
