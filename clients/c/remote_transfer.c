/* remote_transfer.c - the bytes of files and archives, up and down. */
#include "clients/c/remote_files_internal.h"

#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t PIECE_BYTES = UINT64_C(64) << 20; /* what a broken connection costs at most */

/* ---- down ---- */

bool remote_files_read(struct remote_files *files, const char *path,
                       bool (*write)(void *cookie, const void *data, size_t size, struct error *err), void *cookie,
                       struct error *err)
{
    uint64_t offset = 0;
    char etag[sizeof((struct remote_http *)0)->etag] = "";
    for (unsigned tries = 0;;) {
        struct remote_http http = {.method = "GET", .write = write, .cookie = cookie};
        if (offset > 0) {
            char line[160];
            snprintf(line, sizeof line, "Range: bytes=%" PRIu64 "-", offset);
            http.headers = curl_slist_append(http.headers, line);
            snprintf(line, sizeof line, "If-Match: %s", etag);
            http.headers = curl_slist_append(http.headers, line);
        }
        struct error why = {0};
        bool good = remote_files_request(files, "files", path, "", &http, &why);
        text_done(&http.reply);
        if (good)
            return true;
        if (offset > 0 && why.kind == ERROR_RANGE) /* all had come before it broke */
            return true;
        if (why.kind == ERROR_TIMEOUT && http.received > 0) /* perhaps it was `write` that took its time */
            why.kind = ERROR_NODE_UNREACHABLE;
        if (why.kind == ERROR_PRECONDITION)
            return error_set(err, ERROR_CONFLICT, "%s changed while it was read", path);
        *err = why;
        if (http.received > 0)
            tries = 0;
        offset += http.received;
        if (offset > 0 && !etag[0])
            memcpy(etag, http.etag, sizeof etag);
        if ((offset > 0 && !etag[0]) || !remote_files_may_retry(files, &tries, &why, err))
            return false;
    }
}

bool remote_files_pack(struct remote_files *files, const char *path,
                       bool (*write)(void *cookie, const void *data, size_t size, struct error *err), void *cookie,
                       struct error *err)
{
    struct remote_http http = {.method = "GET", .write = write, .cookie = cookie};
    bool good = remote_files_request(files, "archive", path, "format=tar", &http, err);
    text_done(&http.reply);
    return good;
}

bool remote_files_unpack(struct remote_files *files, const char *path,
                         ssize_t (*read)(void *cookie, void *to, size_t size, struct error *err), void *cookie,
                         struct error *err)
{
    struct remote_http http = {.method = "PUT", .read = read, .read_size = UINT64_MAX, .cookie = cookie};
    bool good = remote_files_request(files, "archive", path, "", &http, err);
    text_done(&http.reply);
    return good;
}

/* ---- up ---- */

/* A part of what is sent. */
struct source {
    int fd;
    uint64_t offset, end; /* end UINT64_MAX: read(2) to its end */
};

static ssize_t read_source(void *cookie, void *to, size_t size, struct error *err)
{
    struct source *source = cookie;
    bool is_stream = source->end == UINT64_MAX;
    if (!is_stream && size > source->end - source->offset)
        size = (size_t)(source->end - source->offset);
    ssize_t got;
    do
        got = is_stream ? read(source->fd, to, size) : pread(source->fd, to, size, (off_t)source->offset);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return error_set_errno(err, ERROR_INTERNAL, "reading what is sent") - 1;
    if (got == 0 && size > 0 && !is_stream)
        return error_set(err, ERROR_CONFLICT, "what is sent became shorter meanwhile") - 1;
    source->offset += (uint64_t)got;
    return got;
}

static struct curl_slist *conditions(const struct remote_files_put *put)
{
    struct curl_slist *headers = NULL;
    if (put->if_match) {
        AUTO_FREE char *line = memory_printf("If-Match: %s", put->if_match);
        headers = curl_slist_append(headers, line);
    }
    return put->if_none ? curl_slist_append(headers, "If-None-Match: *") : headers;
}

static bool read_entry(const struct remote_http *http, struct remote_entry *entry, struct error *err)
{
    if (!entry)
        return true;
    json_t *reply = json_loadb(http->reply.data ? http->reply.data : "", http->reply.length, 0, NULL);
    bool good = remote_entry_read(entry, reply, err);
    json_decref(reply);
    return good;
}

/* All at once. A stream is sent once: what was read of it is gone. */
static bool write_whole(struct remote_files *files, const char *path, const char *query,
                        const struct remote_files_put *put, uint64_t size, struct remote_entry *entry,
                        struct error *err)
{
    for (unsigned tries = 0;;) {
        struct source source = {.fd = put->fd, .end = size};
        struct remote_http http = {
            .method = "PUT", .read = read_source, .read_size = size, .cookie = &source, .headers = conditions(put)};
        struct error why = {0};
        bool good = remote_files_request(files, "files", path, query, &http, &why) && read_entry(&http, entry, &why);
        text_done(&http.reply);
        if (good)
            return true;
        *err = why;
        bool is_unread = size != UINT64_MAX || source.offset == 0;
        if (!is_unread || !remote_files_may_retry(files, &tries, &why, err))
            return false;
    }
}

/* One piece; *received is how far the server says it has got, *is_whole that this was the last. */
static bool write_piece(struct remote_files *files, const char *path, const char *query,
                        const struct remote_files_put *put, struct source *source, uint64_t total, uint64_t *received,
                        bool *is_whole, struct remote_entry *entry, struct error *err)
{
    char range[96];
    snprintf(range, sizeof range, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, source->offset,
             source->end - 1, total);
    struct remote_http http = {.method = "PUT",
                               .read = read_source,
                               .read_size = source->end - source->offset,
                               .cookie = source,
                               .headers = curl_slist_append(conditions(put), range)};
    bool good = remote_files_request(files, "files", path, query, &http, err);
    if (good && http.status == 202) {
        json_t *reply = json_loadb(http.reply.data ? http.reply.data : "", http.reply.length, 0, NULL);
        *received = (uint64_t)json_integer_value(json_object_get(reply, "received"));
        json_decref(reply);
    } else if (good) {
        *is_whole = true;
        good = read_entry(&http, entry, err);
    }
    text_done(&http.reply);
    return good;
}

/* Asks how far it has got, after a piece broke off. */
static bool ask_received(struct remote_files *files, const char *path, const char *query, uint64_t total,
                         uint64_t *received, struct error *err)
{
    char range[64];
    snprintf(range, sizeof range, "Content-Range: bytes */%" PRIu64, total);
    struct remote_http http = {.method = "PUT", .headers = curl_slist_append(NULL, range)};
    bool good = remote_files_request(files, "files", path, query, &http, err);
    if (good) {
        json_t *reply = json_loadb(http.reply.data ? http.reply.data : "", http.reply.length, 0, NULL);
        *received = (uint64_t)json_integer_value(json_object_get(reply, "received"));
        json_decref(reply);
    }
    text_done(&http.reply);
    return good;
}

static bool write_pieces(struct remote_files *files, const char *path, const char *query,
                         const struct remote_files_put *put, uint64_t total, struct remote_entry *entry,
                         struct error *err)
{
    uint64_t received = 0;
    bool is_whole = false;
    for (unsigned tries = 0; !is_whole;) {
        uint64_t before = received;
        /* All bytes may be there and the file not: the last piece was cut off at its end. Its last byte again. */
        struct source source = {.fd = put->fd, .offset = received < total ? received : total - 1};
        source.end = source.offset + PIECE_BYTES < total ? source.offset + PIECE_BYTES : total;
        struct error why = {0};
        bool good = write_piece(files, path, query, put, &source, total, &received, &is_whole, entry, &why);
        while (!good) {
            *err = why;
            if (!remote_files_may_retry(files, &tries, &why, err))
                return false;
            why = (struct error){0};
            good = ask_received(files, path, query, total, &received, &why);
        }
        if (received > total)
            return error_set(err, ERROR_INTERNAL, "the server has more of %s than was sent", path);
        tries = received > before ? 0 : tries;
    }
    return true;
}

/* What came of a file that will not be whole is in the sandbox's way. */
static void drop_part(struct remote_files *files, const char *path, const char *id)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    AUTO_FREE char *part = memory_printf("%.*s.%s.%s.part", (int)(name - path), path, name, id);
    struct error ignored = {0};
    files->is_clearing = true;
    (void)!remote_files_remove(files, part, false, &ignored);
    files->is_clearing = false;
}

bool remote_files_write(struct remote_files *files, const char *path, const struct remote_files_put *put,
                        struct remote_entry *entry, struct error *err)
{
    struct stat status;
    if (fstat(put->fd, &status) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "what is sent");
    struct text query = {0};
    text_append_string(&query, "parents=1");
    if (put->mode >= 0)
        text_append_format(&query, "&mode=%04o", (unsigned)put->mode & 07777U);
    if (put->mtime_ns >= 0)
        text_append_format(&query, "&mtime_ns=%" PRId64, put->mtime_ns);
    bool is_file = S_ISREG(status.st_mode);
    uint64_t size = is_file ? (uint64_t)status.st_size : UINT64_MAX;
    bool good;
    if (is_file && size > PIECE_BYTES) {
        char id[RANDOM_ID_BYTES];
        random_id(id, "up");
        text_append_format(&query, "&upload=%s", id);
        good = write_pieces(files, path, query.data, put, size, entry, err);
        if (!good)
            drop_part(files, path, id);
    } else {
        good = write_whole(files, path, query.data, put, size, entry, err);
    }
    text_done(&query);
    return good;
}
