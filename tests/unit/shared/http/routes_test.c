/* routes_test.c - the table: order of preference, refused tables, decoding; and the strict reader of heads. */
#include "shared/http/routes.h"

#include "tests/unit/check.h"

static void handle(struct http_request *request)
{
    (void)request;
}

static const struct http_route TABLE[] = {
    {"GET", "/", 0, NULL, 0, handle},
    {"GET", "/a/{x}", 0, NULL, 0, handle},
    {"GET", "/a/fixed", 0, NULL, 0, handle},
    {"POST", "/a/{y...}", 0, NULL, 5, handle},
    {"*", "/a/{z}/deep", 0, NULL, 0, handle},
    {"GET", "/s/{sandbox}", HTTP_PATH, "", 0, handle},
    {"GET", "/s/{sandbox}/files/{path...}", HTTP_PATH, "fs", 7, handle},
    {"GET", "/s/{sandbox}/plain", HTTP_BEARER, "fs", 0, handle},
    {"PUT", "/s/{sandbox}/files/{path...}", HTTP_PATH | HTTP_POURS, "fs", 99, handle}, /* holds no body */
};

static struct http_routes *routes;

/* "row:name=value,..." or the error's code. */
static const char *find(const char *method, const char *path)
{
    static char text[256];
    struct http_match match = {0};
    char allow[HTTP_ALLOW_BYTES];
    struct error err = {0};
    if (!http_routes_find(routes, method, path, &match, allow, &err)) {
        snprintf(text, sizeof text, "%s %s", error_code(err.kind), allow);
    } else {
        int used = snprintf(text, sizeof text, "%d%s", (int)(match.route - TABLE), match.is_by_token ? "t" : "");
        for (size_t i = 0; i < match.parameter_count; i++)
            used += snprintf(text + used, sizeof text - (size_t)used, " %s=%s", match.parameters[i].name,
                             match.parameters[i].value);
    }
    http_match_done(&match);
    return text;
}

static void test_find(void)
{
    CHECK_TEXT(find("GET", "/"), "0");
    CHECK_TEXT(find("HEAD", "/"), "0");
    CHECK_TEXT(find("GET", "/a/fixed"), "2");
    CHECK_TEXT(find("GET", "/a/other"), "1 x=other");
    CHECK_TEXT(find("GET", "/a/fixe%64"), "1 x=fixed"); /* literals match as they are */
    CHECK_TEXT(find("POST", "/a/fixed"), "3 y=fixed");
    CHECK_TEXT(find("POST", "/a/b/c/d/"), "3 y=b/c/d");
    CHECK_TEXT(find("POST", "/a/"), "3 y=");
    CHECK_TEXT(find("POST", "/a/b%2Fc"), "3 y=b/c");
    CHECK_TEXT(find("GET", "/a/b%2Fc"), "INVALID_REQUEST ");
    CHECK_TEXT(find("BREW", "/a/b/deep"), "4 z=b");
    CHECK_TEXT(find("GET", "/a/"), "METHOD_NOT_ALLOWED POST");
    CHECK_TEXT(find("PUT", "/a/fixed"), "METHOD_NOT_ALLOWED GET, HEAD, POST");
    CHECK_TEXT(find("GET", "/a"), "NOT_FOUND ");
    CHECK_TEXT(find("GET", "/b/c"), "NOT_FOUND ");
    CHECK_TEXT(find("GET", "//"), "NOT_FOUND ");
    CHECK_TEXT(find("GET", "/s/x"), "5 sandbox=x");
    CHECK_TEXT(find("GET", "/c/tok"), "5t token=tok");
    CHECK_TEXT(find("GET", "/c/tok/files/a/b"), "6t token=tok path=a/b");
    CHECK_TEXT(find("GET", "/c/tok/plain"), "NOT_FOUND ");
    CHECK_TEXT(find("GET", "/c//files/a"), "NOT_FOUND ");
    char deep[512] = "/a/x";
    for (int i = 0; i < 100; i++)
        strcat(deep, "/y");
    CHECK(strncmp(find("POST", deep), "3 y=x/y/y", 9) == 0);
    CHECK_TEXT(find("GET", deep), "METHOD_NOT_ALLOWED POST");
    CHECK(http_routes_body_max(routes) == 7);
}

static const char *rest_of(const char *path)
{
    return find("GET", path);
}

/* The rest of a path is a file's name: any bytes, and one spelling. */
static void test_rest(void)
{
    CHECK_TEXT(rest_of("/s/x/files/"), "6 sandbox=x path=");
    CHECK_TEXT(rest_of("/s/x/files/a/"), "6 sandbox=x path=a");
    CHECK_TEXT(rest_of("/s/x/files/a%2Fb%2f"), "6 sandbox=x path=a/b");
    CHECK_TEXT(rest_of("/s/x/files/%FF%80/%01%0a%C3"), "6 sandbox=x path=\xFF\x80/\x01\n\xC3");
    CHECK_TEXT(rest_of("/s/x/files/\xC3\xA9\xFE"), "6 sandbox=x path=\xC3\xA9\xFE");
    CHECK_TEXT(rest_of("/s/x/files/a+b%2B%25%252F"), "6 sandbox=x path=a+b+%%2F");
    CHECK_TEXT(rest_of("/s/x/files/.../.a/a./..a/%2e%2e%2e"), "6 sandbox=x path=.../.a/a./..a/...");
    CHECK_TEXT(rest_of("/c/tok/files/%ff"), "6t token=tok path=\xFF");
    static const char *const REFUSED[] = {
        "/s/x/files//",      "/s/x/files//a",         "/s/x/files/a//b",   "/s/x/files/a//", "/s/x/files/%2F",
        "/s/x/files/%2Fa",   "/s/x/files/a%2F/b",     "/s/x/files/a/%2Fb", "/s/x/files/.",   "/s/x/files/..",
        "/s/x/files/%2e",    "/s/x/files/a/%2E%2e/b", "/s/x/files/a%2F..", "/s/x/files/./",  "/s/x/files/a%2f.%2F",
        "/s/x/files/..%2Fa", "/s/x/files/a%00b",      "/s/x/files/%",      "/s/x/files/a%2"};
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        if (strcmp(rest_of(REFUSED[i]), "INVALID_REQUEST ") != 0)
            fprintf(stderr, "taken: %s\n", REFUSED[i]);
        CHECK_TEXT(rest_of(REFUSED[i]), "INVALID_REQUEST ");
    }
    /* Other parameters are text. */
    CHECK_TEXT(rest_of("/s/%FF/files/a"), "INVALID_REQUEST ");
    CHECK_TEXT(rest_of("/a/%C3"), "INVALID_REQUEST ");
    CHECK_TEXT(rest_of("/s/a%2Fb/files/a"), "INVALID_REQUEST ");
    struct error err;
    CHECK(http_path_check("/files/%FF", &err));
    CHECK(!http_path_check("/files/%00", &err) && !http_path_check("/files/a%2F..", &err) &&
          !http_path_check("/files/%zz", &err) && !http_path_check("/files/%2e%2E/a", &err));
}

static void refuse(struct http_route row)
{
    struct http_route rows[] = {TABLE[1], row};
    struct error err = {0};
    struct http_routes *made = http_routes_new(rows, 2, &err);
    if (made != NULL)
        fprintf(stderr, "taken: %s %s\n", row.method, row.path);
    CHECK(made == NULL && err.kind == ERROR_INVALID && strstr(err.message, row.path) != NULL);
    http_routes_free(made);
}

static void test_tables(void)
{
    refuse((struct http_route){"GET", "/a/{other}", 0, NULL, 0, handle});
    refuse((struct http_route){"GET", "a", 0, NULL, 0, handle});
    refuse((struct http_route){"GET", "/{x...}/b", 0, NULL, 0, handle});
    refuse((struct http_route){"GET", "/{}", 0, NULL, 0, handle});
    refuse((struct http_route){"GET", "/b%20c", 0, NULL, 0, handle});
    refuse((struct http_route){"GET", "/b", 0, "user", 0, handle});
    refuse((struct http_route){"GET", "/b", HTTP_POURS, "user", 0, handle});
}

static bool parse(const char *text, struct error *err)
{
    struct http_head head = {0};
    size_t scanned = 0;
    size_t length = http_head_length(text, strlen(text), &scanned);
    CHECK(length == strlen(text));
    bool ok = http_head_parse(&head, text, length, err);
    http_head_done(&head);
    return ok;
}

static void test_head(void)
{
    const char *text = "PUT /a%20b?q=1 HTTP/1.1\r\nHost: h\r\nX-Odd:\t v w \t\r\nEmpty:\r\nContent-Length: 12\r\n\r\n";
    struct http_head head = {0};
    struct error err = {0};
    size_t scanned = 0, length = 0, fed = 0;
    while (length == 0 && fed < strlen(text)) /* byte by byte */
        length = http_head_length(text, ++fed, &scanned);
    CHECK(length == strlen(text));
    CHECK(http_head_parse(&head, text, length, &err));
    CHECK_TEXT(head.method, "PUT");
    CHECK_TEXT(head.path, "/a%20b");
    CHECK_TEXT(head.query, "q=1");
    CHECK_TEXT(http_head_field(&head, "x-odd"), "v w");
    CHECK_TEXT(http_head_field(&head, "empty"), "");
    CHECK(http_head_field(&head, "none") == NULL);
    CHECK(head.content_length == 12 && head.is_1_1 && !head.is_chunked);
    http_head_done(&head);
    CHECK(parse("GET / HTTP/1.0\r\n\r\n", &err));
    CHECK(!parse("GET / HTTP/1.1\r\n\r\n", &err));
    CHECK(!parse("GET / HTTP/1.1\r\nHost: h\r\n: v\r\n\r\n", &err));
    CHECK(!parse("GET / HTTP/1.1\r\nHost: h\r\nnone\r\n\r\n", &err));
    CHECK(!parse("G(T / HTTP/1.1\r\nHost: h\r\n\r\n", &err));
    CHECK(!parse("GET / HTTP/1.1 \r\nHost: h\r\n\r\n", &err));
    CHECK(!parse("GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n", &err));
    CHECK(!parse("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", &err));
}

static void test_query(void)
{
    char query[] = "a=1&b=%2B+c&&empty=&flag&%C3%A9=x";
    struct http_pair pairs[HTTP_QUERY_MAX];
    size_t count = 0;
    struct error err = {0};
    CHECK(http_query_parse(query, false, pairs, &count, &err));
    CHECK(count == 5);
    CHECK_TEXT(pairs[1].value, "+ c");
    CHECK_TEXT(pairs[3].name, "flag");
    CHECK_TEXT(pairs[3].value, "");
    CHECK_TEXT(pairs[4].name, "\u00e9");
    char twice[] = "a=1&%61=2";
    count = 77;
    CHECK(!http_query_parse(twice, false, pairs, &count, &err) && count == 77);
    char again[] = "a=1&a=2&b=3&a=4", tokens[] = "a=1&token=x&a=2&token=x";
    static struct http_pair repeated[HTTP_QUERY_REPEATS_MAX];
    CHECK(http_query_parse(again, true, repeated, &count, &err) && count == 4);
    CHECK_TEXT(repeated[3].value, "4");
    CHECK(!http_query_parse(tokens, true, repeated, &count, &err));
    static char too_many[(HTTP_QUERY_REPEATS_MAX + 1) * 4 + 1];
    for (size_t i = 0; i <= HTTP_QUERY_REPEATS_MAX; i++)
        memcpy(too_many + i * 4, "p=1&", 4);
    CHECK(!http_query_parse(too_many, true, repeated, &count, &err));
    char many[400] = "a0";
    for (int i = 1; i < 66; i++)
        sprintf(many + strlen(many), "&a%d", i);
    CHECK(!http_query_parse(many, false, pairs, &count, &err));
    CHECK(http_query_parse(NULL, false, pairs, &count, &err) && count == 0);
}

int main(void)
{
    struct error err = {0};
    routes = http_routes_new(TABLE, sizeof TABLE / sizeof TABLE[0], &err);
    if (routes == NULL) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    test_find();
    test_rest();
    http_routes_free(routes);
    test_tables();
    test_head();
    test_query();
    return check_done();
}
