/* negotiator_requests_fuzz.c - a whole negotiator on a memory store, and requests of all kinds with hostile bodies;
 * what they leave behind stays for the next ones. No request may end in 500, and every reply is JSON. Input, up to
 * eight times with a NUL between: a line "WHO METHOD TARGET" (who: admin, user, viewer, holder of the last token,
 * nobody) and the body. "@" in them stands for the last sandbox's id, "$" for its token. On the node's route the body
 * is sealed as its node would. */
#include "shared/base/log.h"
#include "tests/unit/negotiator/dialects/stage.h"

#include <ctype.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's names */
int __lsan_is_turned_off(void);                               /* NOLINT */

enum { INPUTS_A_STAGE = 500, REQUESTS_MAX = 8, PATIENCE_MS = 60, LINE_MAX_BYTES = 512, BODY_MAX_BYTES = 65536 };

static char last_id[RANDOM_ID_BYTES] = "sbx_aaaaaaaaaaaaaaaaaaaa", last_token[4200] = "none";
static int connection = -1;

/* What a request leaves in the ledger is meant to stay. */
int __lsan_is_turned_off(void)
{
    return 1;
}

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* ---- the stage ---- */

static void come_alive(void)
{
    struct error err = {0};
    json_decref(node_beat(json_array(), json_array(), &err));
    require(err.kind == ERROR_NONE && check_failures == 0);
}

static void begin(void)
{
    static unsigned inputs;
    if (inputs++ % INPUTS_A_STAGE != 0)
        return;
    if (inputs > 1) {
        if (connection >= 0)
            close(TAKE_FD(connection));
        stage_close();
        pthread_mutex_destroy(&stage.mutex);
        memset(&stage, 0, sizeof stage);
    } else {
        log_set_level((enum log_level)(LOG_ERROR + 1)); /* nothing */
    }
    stage_open();
    come_alive();
}

/* ---- one request ---- */

struct asked {
    const char *key; /* NULL: none */
    char method[16];
    struct text target, body;
};

static void append_filled(struct text *to, const char *from, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (from[i] == '@')
            text_append_string(to, last_id);
        else if (from[i] == '$')
            text_append_string(to, last_token);
        else
            text_append(to, from + i, 1);
    }
}

/* As n1 says it, but from where the stage's node is: nothing else is called by what is made up here. */
static void seal(struct asked *asked)
{
    struct error err = {0};
    json_t *message = json_loadb(asked->body.data, asked->body.length, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(message)) {
        json_decref(message);
        return;
    }
    AUTO_FREE char *url = memory_printf("http://127.0.0.1:%u", http_server_port(stage.node));
    if (json_object_get(message, "url"))
        json_object_set_new(message, "url", json_string(url));
    struct link_head head = {.node = "n1", .incarnation = stage.incarnation};
    pthread_mutex_lock(&stage.mutex);
    head.number = ++stage.number;
    pthread_mutex_unlock(&stage.mutex);
    AUTO_FREE uint8_t *bytes = NULL;
    size_t size = 0;
    if (link_seal(stage.from_node.bytes, &head, message, &bytes, &size, &err)) {
        asked->body.length = 0;
        text_append(&asked->body, bytes, size);
    }
    json_decref(message);
}

static bool ask(const struct asked *asked)
{
    AUTO_TEXT text = {0};
    text_append_format(&text, "%s %s HTTP/1.1\r\nHost: x\r\n", asked->method, asked->target.data);
    if (asked->key)
        text_append_format(&text, "Authorization: Bearer %s\r\n", asked->key);
    text_append_format(&text, "Content-Length: %zu\r\n\r\n", asked->body.length);
    text_append(&text, asked->body.data, asked->body.length);
    if (connection < 0) {
        struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
        connection = http_connect();
        require(setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    }
    return send(connection, text.data, text.length, MSG_NOSIGNAL) == (ssize_t)text.length;
}

/* ---- its reply ---- */

/* Where the body ends, of a reply whose head ends at `body`; 0: not yet. */
static size_t end_of(const struct text *seen, size_t body)
{
    const char *length = strcasestr(seen->data, "\r\ncontent-length: ");
    if (length && length < seen->data + body)
        return body + strtoul(length + strlen("\r\ncontent-length: "), NULL, 10);
    if (!strcasestr(seen->data, "\r\ntransfer-encoding: chunked"))
        return body;
    const char *end = strstr(seen->data + body, "0\r\n\r\n");
    return end ? (size_t)(end - seen->data) + 5 : 0;
}

/* False: it does not come now; the connection is of no use any more. */
static bool read_reply(struct text *seen, size_t *body)
{
    char part[16384];
    for (;;) {
        const char *end = seen->data ? strstr(seen->data, "\r\n\r\n") : NULL;
        *body = end ? (size_t)(end - seen->data) + 4 : 0;
        size_t whole = end ? end_of(seen, *body) : 0;
        if (whole != 0 && seen->length >= whole)
            return true;
        ssize_t got = recv(connection, part, sizeof part, 0);
        if (got <= 0 || seen->length > (4 << 20))
            return false;
        text_append(seen, part, (size_t)got);
    }
}

static void keep(const json_t *reply)
{
    const char *id = json_string_value(json_object_get(json_object_get(reply, "sandbox"), "id"));
    const char *token = json_string_value(json_object_get(reply, "token"));
    const char *foreign = json_string_value(json_object_get(reply, "id")); /* of OpenSandbox's dialect */
    id = id ? id : foreign && text_starts_with(foreign, "sbx_") ? foreign : NULL;
    if (id && strlen(id) < sizeof last_id)
        strcpy(last_id, id);
    if (token && strlen(token) < sizeof last_token)
        strcpy(last_token, token);
}

static void check_reply(const struct text *seen, size_t body)
{
    int status = atoi(seen->data + strlen("HTTP/1.1 "));
    require(status >= 200 && status <= 599);
    if (getenv("FUZZ_TELL"))
        (void)fprintf(stderr, "%.*s\n", (int)seen->length, seen->data);
    if (status == 500)
        (void)fprintf(stderr, "%s\n", seen->data);
    require(status != 500);
    if (seen->length == body || !strcasestr(seen->data, "content-type: application/json"))
        return;
    json_t *json = json_loadb(seen->data + body, seen->length - body, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    require(json != NULL || strcasestr(seen->data, "transfer-encoding") != NULL);
    require(status < 400 || json_object_get(json, "error") ||
            (json_object_get(json, "code") && json_object_get(json, "message")));
    keep(json);
    json_decref(json);
}

/* ---- the input ---- */

static const char *key_of(char who)
{
    return who == 'a'   ? stage.admin
           : who == 'u' ? stage.ada
           : who == 'v' ? stage.viewer
           : who == 'h' ? last_token
                        : NULL;
}

static bool read_input(struct asked *asked, const char *data, size_t size)
{
    const char *end = size ? memchr(data, '\n', size) : NULL;
    size_t length = end ? (size_t)(end - data) : 0;
    if (!end || length > LINE_MAX_BYTES || size > BODY_MAX_BYTES)
        return false;
    AUTO_FREE char *line = memory_copy(data, length);
    char *rest = NULL;
    const char *who = strtok_r(line, " ", &rest), *method = strtok_r(NULL, " ", &rest),
               *target = strtok_r(NULL, " ", &rest);
    if (!target || target[0] != '/' || !text_copy(asked->method, sizeof asked->method, method))
        return false;
    for (const char *at = target; *at; at++)
        if (!isgraph((unsigned char)*at))
            return false;
    for (const char *at = asked->method; *at; at++)
        if (!isupper((unsigned char)*at))
            return false;
    asked->key = key_of(who[0]);
    append_filled(&asked->target, target, strlen(target));
    text_append(&asked->body, NULL, 0);
    append_filled(&asked->body, end + 1, size - length - 1);
    return true;
}

static void serve(struct asked *asked)
{
    AUTO_TEXT seen = {0};
    size_t body = 0;
    if (strcmp(asked->target.data, "/node/v1/message") == 0)
        seal(asked);
    if (ask(asked) && read_reply(&seen, &body) && strcmp(asked->method, "HEAD") != 0)
        check_reply(&seen, body);
    else
        close(TAKE_FD(connection));
    if (connection >= 0 && strcasestr(seen.data, "connection: close"))
        close(TAKE_FD(connection));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data;
    begin();
    for (unsigned i = 0; i < REQUESTS_MAX && size > 0; i++) {
        struct asked asked = {.key = NULL};
        const char *end = memchr(at, '\0', size);
        size_t length = end ? (size_t)(end - at) : size;
        if (read_input(&asked, at, length))
            serve(&asked);
        text_done(&asked.target);
        text_done(&asked.body);
        at += length + (end != NULL);
        size -= length + (end != NULL);
    }
    return 0;
}
