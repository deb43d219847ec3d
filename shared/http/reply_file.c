/* reply_file.c - files that go out by sendfile(2), beside libh2o: while it has nothing in flight, the connection's
 * socket is ours. Small ones are read and go with what stands before them, in one write. */
#include "shared/base/cleanup.h"
#include "shared/http/http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

/* With a reset, so that nobody takes what went out for the whole. */
static void break_off(struct http_request *request)
{
    if (request->phase == HTTP_STREAMING) {
        http_stream_linger_never(request);
        http_request_cut(request);
    } else {
        http_stream_reset(request);
    }
}

static void on_writable(h2o_socket_t *socket, const char *broken UNUSED)
{
    const struct http_connection *connection = socket->on_close.data;
    struct http_request *request = connection->request;
    if (request != NULL && request->file.step == HTTP_FILE_MOVES)
        http_file_move(request);
}

void http_file_move_soon(struct http_request *request)
{
    request->file.step = HTTP_FILE_MOVES;
    h2o_socket_notify_write(request->connection->socket, on_writable);
}

void http_file_move(struct http_request *request)
{
    struct http_file *file = &request->file;
    if (request->phase == HTTP_GONE)
        return; /* the connection is about to close */
    int socket = h2o_socket_get_fd(request->connection->socket);
    size_t budget = request->worker->server->options.turn_bytes;
    while (file->left > 0 && budget > 0) {
        size_t size = file->left < budget ? (size_t)file->left : budget;
        ssize_t sent = sendfile(socket, file->fd, &file->offset, size);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent <= 0) {
            break_off(request);
            return;
        }
        file->left -= (size_t)sent;
        budget -= (size_t)sent;
        request->sent_bytes += (size_t)sent;
    }
    if (file->left > 0)
        http_file_move_soon(request);
    else
        file->moved(request);
}

void http_file_done(struct http_request *request)
{
    if (request->file.step != HTTP_FILE_NONE)
        close(request->file.fd);
    request->file.step = HTTP_FILE_NONE;
}

void http_file_forget(struct http_request *request)
{
    if (request->file.step == HTTP_FILE_WAITS)
        http_file_done(request);
}

bool http_file_is_long_enough(int file, uint64_t offset, uint64_t size)
{
    struct stat found;
    return fstat(file, &found) == 0 && S_ISREG(found.st_mode) && offset <= (uint64_t)found.st_size &&
           size <= (uint64_t)found.st_size - offset;
}

bool http_file_read(int file, uint64_t offset, char *data, size_t size)
{
    size_t had = 0;
    while (had < size) {
        ssize_t got = pread(file, data + had, size - had, (off_t)(offset + had));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        had += (size_t)got;
    }
    return true;
}

/* False: it is to be sent the other way, which also tells by a reset that it is shorter. */
static bool reply_small(struct http_request *request, int file, uint64_t offset, uint64_t size)
{
    if (size > HTTP_FILE_SMALL_BYTES)
        return false;
    char *data = h2o_mem_alloc_pool(&request->h2o->pool, (size_t)size);
    if (!http_file_read(file, offset, data, (size_t)size))
        return false;
    http_reply_finish(request, data, (size_t)size);
    return true;
}

static void on_head_sent(h2o_generator_t *generator, h2o_req_t *h2o UNUSED)
{
    http_file_move(HTTP_OWNER(struct http_request, generator, generator));
}

static void on_moved(struct http_request *request)
{
    http_file_done(request);
    h2o_send(request->h2o, NULL, 0, H2O_SEND_STATE_FINAL); /* the request may be freed here */
}

void http_reply_file(struct http_request *request, int status, const char *type, int file, uint64_t offset,
                     uint64_t size)
{
    AUTO_FD int taken = file;
    if (request->phase != HTTP_OPEN || request->h2o == NULL)
        return;
    http_reply_prepare(request, status, type);
    bool is_head = strcmp(request->head.method, "HEAD") == 0;
    if (size == 0 || is_head || status == 204 || status == 304) {
        http_reply_finish(request, NULL, size);
        return;
    }
    if (reply_small(request, file, offset, size))
        return;
    request->file = (struct http_file){
        .step = HTTP_FILE_HEAD, .fd = TAKE_FD(taken), .offset = (off_t)offset, .left = size, .moved = on_moved};
    request->h2o->res.content_length = size;
    http_request_end(request);
    request->generator = (h2o_generator_t){.proceed = on_head_sent};
    h2o_start_response(request->h2o, &request->generator);
    h2o_send(request->h2o, NULL, 0, H2O_SEND_STATE_IN_PROGRESS);
    http_pour_head_sent(request);
}
