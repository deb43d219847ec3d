/* execd_download.c - see execd_download.h. */
#include "sandboxd/dialects/execd/execd_download.h"

#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/execd/execd_files_common.h"
#include "sandboxd/dialects/execd/execd_path.h"
#include "sandboxd/dialects/execd/execd_range.h"
#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/files/conditions.h"
#include "sandboxd/dialects/native/files/files_get.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <string.h>

#define BYTES "application/octet-stream"

/* ---- the name ---- */

static bool is_token(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c != 0 && strchr("-._~", c));
}

/* Printable ASCII but what quotes would end at; a percent sign could be taken for an escape. */
static bool is_plain(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || (unsigned char)*name > 0x7e || strchr("\"\\%", *name))
            return false;
    return true;
}

/* attachment; filename="..."; another name percent-encoded, in RFC 8187's way too (RFC 6266, 4.3). */
static void put_disposition(struct http_request *request)
{
    struct error ignored = {0};
    AUTO_FREE char *path = execd_path(request, http_request_query(request, "path"), &ignored);
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : "";
    AUTO_TEXT encoded = {0}, value = {0};
    for (const char *at = name; *at; at++)
        text_append_format(&encoded, is_token((unsigned char)*at) ? "%c" : "%%%02X", (unsigned char)*at);
    if (is_plain(name))
        text_append_format(&value, "attachment; filename=\"%s\"", name);
    else
        text_append_format(&value, "attachment; filename=\"%s\"; filename*=UTF-8''%s", encoded.data, encoded.data);
    http_reply_header(request, "Content-Disposition", value.data);
}

/* ---- bytes ---- */

static void reply_beyond(struct http_request *request, uint64_t size)
{
    static const char WHY[] = "the range begins behind the file's end\n";
    char range[40];
    (void)snprintf(range, sizeof range, "bytes */%" PRIu64, size);
    http_reply_header(request, "Content-Range", range);
    http_reply_bytes(request, 416, "text/plain; charset=utf-8", WHY, sizeof WHY - 1);
}

/* Takes the file. */
static void reply_file(struct http_request *request, const struct files_version *version, int file)
{
    uint64_t offset = 0, size = version->size;
    enum execd_range range = execd_range_read(http_request_header(request, "range"), version->size, &offset, &size);
    if (range == EXECD_RANGE_MALFORMED || range == EXECD_RANGE_BEYOND) {
        close(file);
        if (range == EXECD_RANGE_BEYOND)
            reply_beyond(request, version->size);
        else
            execd_reply_error(request, 416, "UNKNOWN", "Range: bytes=FIRST-LAST, bytes=FIRST- or bytes=-COUNT");
        return;
    }
    put_disposition(request);
    if (range == EXECD_RANGE_PART) {
        char part[80];
        (void)snprintf(part, sizeof part, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, offset, offset + size - 1,
                       version->size);
        http_reply_header(request, "Content-Range", part);
        http_reply_file(request, 206, BYTES, file, offset, size);
        return;
    }
    char date[CONDITIONS_DATE_BYTES];
    conditions_date(date, version->mtime_ns);
    http_reply_header(request, "Accept-Ranges", "bytes");
    http_reply_header(request, "Last-Modified", date);
    http_reply_file(request, 200, BYTES, file, 0, version->size);
}

/* A folder in a file's place, for one. */
static const struct files_get_manner WHOLE = {
    .file = reply_file, .stream = put_disposition, .type = BYTES, .failed = execd_files_fail};

/* ---- lines ---- */

/* Of these no descriptor comes: they are always streamed. */
static void drop_file(struct http_request *request, const struct files_version *version UNUSED, int file)
{
    close(file);
    execd_reply_error(request, 500, "RUNTIME_ERROR", "the file helper gave a file for lines");
}

static void add_no_headers(struct http_request *request UNUSED)
{
}

static const struct files_get_manner LINES = {
    .file = drop_file, .stream = add_no_headers, .type = "text/plain", .failed = execd_files_fail};

static bool read_lines(const struct http_request *request, struct files_request *asked, struct error *err)
{
    const char *offset = http_request_query(request, "offset"), *limit = http_request_query(request, "limit");
    if (!offset && !limit)
        return true;
    asked->flags |= FILES_LINES;
    asked->offset = 1;
    asked->size = INT64_MAX;
    if (http_request_header(request, "range"))
        return error_set(err, ERROR_INVALID, "offset and limit count lines: not together with Range");
    return fields_query_number(request, "offset", 1, INT64_MAX, &asked->offset, err) &&
           fields_query_number(request, "limit", 1, INT64_MAX, &asked->size, err);
}

/* ---- the request ---- */

void execd_download(struct http_request *request)
{
    struct execd_place place = {0};
    struct files_request asked;
    struct error err = {0};
    if (execd_files_begin(request, SCOPE_FS_RO, &place, &asked)) {
        asked.operation = FILES_OPEN;
        asked.flags = FILES_FOLLOW;
        if (read_lines(request, &asked, &err))
            files_get_start_as(request, &asked, asked.flags & FILES_LINES ? &LINES : &WHOLE);
        else
            http_reply_error(request, &err);
    }
    execd_place_done(&place);
}
