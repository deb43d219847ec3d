/* body_guard.c - judges a request when its head is there, and its body while it grows; what is refused is answered
 * here, so that libh2o never collects the body of a stranger. */
#include "shared/base/clock.h"
#include "shared/http/http_internal.h"

#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum { LENGTH_READ_BYTES = 256 * 1024, CHUNKED_READ_BYTES = 64 * 1024 };

static void emit_text(void *to, const char *name, const char *value)
{
    text_append_format(to, "%s: %s\r\n", name, value);
}

static void send_refusal(struct http_request *request, const struct error *err)
{
    const char *type;
    AUTO_FREE char *body = http_reply_error_body(request, err, &type);
    size_t size = strlen(body);
    AUTO_TEXT reply = {0};
    text_append_format(&reply, "HTTP/1.1 %d %s\r\nConnection: close\r\n", request->status,
                       http_reply_reason(request->status));
    text_append_format(&reply, "Content-Type: %s\r\nContent-Length: %zu\r\n", type, size);
    http_reply_each_header(request, emit_text, &reply);
    http_reply_each_error_header(request, request->status, emit_text, &reply);
    text_append_string(&reply, "\r\n");
    if (request->head.method == NULL || strcmp(request->head.method, "HEAD") != 0)
        text_append(&reply, body, size);
    int fd = h2o_socket_get_fd(request->connection->socket);
    /* What does not fit into the empty send buffer of a socket is lost, and the connection closes anyway. */
    ssize_t sent = send(fd, reply.data, reply.length, MSG_NOSIGNAL | MSG_DONTWAIT);
    request->sent_bytes = sent > 0 ? size : 0;
    shutdown(fd, SHUT_WR);
}

void http_guard_refuse(struct http_connection *connection, const struct error *err, int status)
{
    struct http_request *request = connection->request;
    if (request == NULL)
        request = http_request_new(connection);
    request->status = status != 0 ? status : error_http_status(err->kind);
    http_limits_count_refusal(request, err);
    send_refusal(request, err);
    request->phase = HTTP_ENDED;
    connection->request = NULL;
    http_request_free(request);
    http_connection_set_state(connection, HTTP_LINGER);
    if (!h2o_socket_is_reading(connection->socket))
        http_connection_doom(connection);
}

static size_t body_max(const struct http_request *request)
{
    return request->match.route != NULL ? request->match.route->body_max_bytes : 0;
}

static bool check_size(const struct http_request *request, uint64_t size, struct error *err)
{
    if (size <= body_max(request))
        return true;
    if (body_max(request) == 0)
        return error_set(err, ERROR_TOO_LARGE, "this request takes no body");
    return error_set(err, ERROR_TOO_LARGE, "the body is over %zu bytes", body_max(request));
}

/* Counts what the body holds now towards the process's budget. */
static bool charge(struct http_request *request, size_t size, struct error *err)
{
    struct http_server *server = request->worker->server;
    if (size <= request->spooled_bytes)
        return true;
    size_t more = size - request->spooled_bytes;
    size_t before = atomic_fetch_add(&server->spooled_bytes, more);
    request->spooled_bytes += more; /* given back with the request, refused or not */
    if (before + more > server->options.spool_max_bytes)
        return error_set(err, ERROR_NO_CAPACITY, "too many bodies are being received at once");
    return true;
}

size_t http_guard_body_room(const struct http_connection *connection)
{
    const struct http_head *head = &connection->request->head;
    if (head->is_chunked)
        return CHUNKED_READ_BYTES;
    uint64_t missing = connection->head_bytes + head->content_length - connection->socket->input->size;
    return missing < LENGTH_READ_BYTES ? (size_t)missing : LENGTH_READ_BYTES;
}

/* libh2o takes junk behind a chunk's size, lines that end in LF alone, and sizes that wrap: whoever stands before us
 * may then see another end of the body. */
static bool check_chunks(struct http_request *request, const char *data, size_t size, struct error *err)
{
    struct http_chunks *chunks = &request->framing;
    while (size > 0 && chunks->state != HTTP_CHUNK_END) {
        size_t used = chunks->left < size ? (size_t)chunks->left : size;
        if (chunks->state == HTTP_CHUNK_DATA && used > 0)
            chunks->left -= used;
        else if (!http_chunks_read(chunks, data, size, &used, err))
            return false;
        data += used;
        size -= used;
    }
    return true;
}

void http_guard_body(struct http_connection *connection, size_t fresh)
{
    struct http_request *request = connection->request;
    const h2o_buffer_t *input = connection->socket->input;
    struct error broken;
    if (request->head.is_chunked && !request->pours &&
        !check_chunks(request, input->bytes + input->size - fresh, fresh, &broken)) {
        http_guard_refuse(connection, &broken, 0);
        return;
    }
    if (!http_connection_feed(connection) || connection->state != HTTP_BODY || connection->request == NULL)
        return;
    if (!h2o_socket_is_reading(connection->socket))
        return; /* libh2o refuses a broken chunk by itself */
    size_t size = connection->socket->input->size;
    size = size > connection->head_bytes ? size - connection->head_bytes : 0;
    struct error err;
    if (!check_size(connection->request, size, &err) || !charge(connection->request, size, &err))
        http_guard_refuse(connection, &err, 0);
}

bool http_guard_is_slow(const struct http_connection *connection, uint64_t now_ns)
{
    const struct http_server_options *options = &connection->worker->server->options;
    uint64_t waited_ms = (now_ns - connection->since_ns) / 1000000;
    if (waited_ms < options->body_grace_ms || connection->request == NULL)
        return false;
    uint64_t size = connection->socket->input->size;
    size = size > connection->head_bytes ? size - connection->head_bytes : 0;
    return size < waited_ms * options->body_min_rate / 1000;
}

static void judge(struct http_request *request)
{
    if (request->refusal.kind != ERROR_NONE)
        return;
    struct error err = {0};
    uint64_t least = request->head.is_chunked ? 1 : request->head.content_length;
    if (!http_request_authorize(request, &err) || !check_size(request, least, &err))
        request->refusal = err;
}

/* Lets libh2o see a field of another name, which means nothing to it. */
static void hide(char *head, size_t length, const char *field)
{
    const char *end = head + length;
    const ptrdiff_t name_length = (ptrdiff_t)strlen(field);
    for (char *line = head; line != NULL && end - line > name_length;) {
        if (strncasecmp(line, field, (size_t)name_length) == 0 && line[name_length] == ':')
            memcpy(line, "x-kept", 6);
        line = memchr(line, '\n', (size_t)(end - line));
        line += line != NULL;
    }
}

void http_guard_send_continue(struct http_connection *connection)
{
    static const char CONTINUE[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const size_t size = sizeof CONTINUE - 1;
    int fd = h2o_socket_get_fd(connection->socket);
    if (send(fd, CONTINUE, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
        http_connection_doom(connection);
}

/* What came of the body stays with the request, and libh2o is shown a head that announces none. */
static void start_pour(struct http_connection *connection, size_t length)
{
    h2o_buffer_t *input = connection->socket->input;
    struct http_request *request = connection->request;
    size_t came = input->size - length;
    uint64_t wanted = request->head.is_chunked ? UINT64_MAX : request->head.content_length;
    size_t body = came < wanted ? came : (size_t)wanted;
    http_pour_prepare(request, input->bytes + length, body);
    http_connection_set_surplus(connection, input->bytes + length + body, came - body);
    input->size = length;
    hide(input->bytes, length, "content-length");
    hide(input->bytes, length, "transfer-encoding");
    hide(input->bytes, length, "expect");
    connection->head_bytes = length;
    http_connection_set_state(connection, HTTP_BODY);
    http_guard_body(connection, 0);
}

static bool pours(const struct http_request *request)
{
    return request->refusal.kind == ERROR_NONE && (request->match.route->carriers & HTTP_POURS) != 0;
}

static void start_request(struct http_connection *connection, size_t length)
{
    h2o_buffer_t *input = connection->socket->input;
    struct http_request *request = connection->request = http_request_new(connection);
    struct error err;
    if (!http_request_read_head(request, input->bytes, length, &err)) {
        http_guard_refuse(connection, &err, 0);
        return;
    }
    judge(request);
    if (pours(request)) {
        start_pour(connection, length);
        return;
    }
    uint64_t whole = length + request->head.content_length;
    bool is_whole = !request->head.is_chunked && input->size >= whole;
    if (request->refusal.kind != ERROR_NONE && !is_whole) {
        err = request->refusal;
        http_guard_refuse(connection, &err, 0);
        return;
    }
    request->is_judged_early = !is_whole;
    if (is_whole) {
        http_connection_set_surplus(connection, input->bytes + whole, input->size - (size_t)whole);
        input->size = (size_t)whole;
    }
    /* libh2o would answer it itself, but stops reading for that and starts again without telling. */
    if (request->head.expects_continue)
        hide(input->bytes, length, "expect");
    if (request->head.expects_continue && !is_whole)
        http_guard_send_continue(connection);
    connection->head_bytes = length;
    http_connection_set_state(connection, HTTP_BODY);
    http_guard_body(connection, input->size - length);
}

void http_guard_head(struct http_connection *connection)
{
    h2o_socket_t *socket = connection->socket;
    if (!connection->has_bytes) {
        /* RFC 9112, 2.2: an empty line before a request is not an error. */
        while (socket->input->size >= 2 && memcmp(socket->input->bytes, "\r\n", 2) == 0)
            h2o_buffer_consume(&socket->input, 2);
        if (socket->input->size == 0)
            return;
        connection->has_bytes = true;
        http_connection_set_state(connection, HTTP_HEAD);
    }
    size_t length = http_head_length(socket->input->bytes, socket->input->size, &connection->scanned);
    bool is_long = (length > 0 ? length : socket->input->size) > HTTP_HEAD_MAX_BYTES;
    if (is_long) {
        struct error err;
        error_set(&err, ERROR_TOO_LARGE, "the request's head is over %d bytes", HTTP_HEAD_MAX_BYTES);
        http_guard_refuse(connection, &err, 431);
    } else if (length > 0) {
        start_request(connection, length);
    }
}
