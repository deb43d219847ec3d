/* files.c - the table of routes, and what each reads from its query. */
#include "sandboxd/dialects/native/files/files.h"

#include "sandboxd/dialects/fields.h"
#include "sandboxd/dialects/native/files/files_answer.h"
#include "sandboxd/dialects/native/files/files_archive.h"
#include "sandboxd/dialects/native/files/files_change.h"
#include "sandboxd/dialects/native/files/files_get.h"
#include "sandboxd/dialects/native/files/files_list.h"
#include "sandboxd/dialects/native/files/files_many.h"
#include "sandboxd/dialects/native/files/files_request.h"
#include "sandboxd/dialects/native/files/files_upload.h"
#include "sandboxd/dialects/native/files/files_watch.h"

#include <string.h>

enum {
    FOUND_DEFAULT = 1000, /* of a glob or grep */
    LIMIT_MAX = 100000000,
    DEPTH_MAX = 64,
    CHANGE_BODY_BYTES = 8 << 20, /* an edit's texts, escaped */
    BATCH_BODY_BYTES = 2 << 20
};
#define BODY_BYTES ((size_t)16 << 30)

/* ---- GET /files ---- */

static void reply_entry(struct http_request *request, const struct files_found *found,
                        const struct files_record *done UNUSED)
{
    files_answer_entry(request, 200, found);
}

static bool read_flag(const struct http_request *request, const char *name, enum files_flag flag,
                      struct files_request *asked, struct error *err)
{
    bool is_set = false;
    if (!fields_query_switch(request, name, &is_set, err))
        return false;
    if (is_set)
        asked->flags |= (uint32_t)flag;
    return true;
}

static bool read_number(const struct http_request *request, const char *name, uint32_t highest, uint32_t *value,
                        struct error *err)
{
    uint64_t number = *value;
    if (!fields_query_number(request, name, 1, highest, &number, err))
        return false;
    *value = (uint32_t)number;
    return true;
}

static bool read_plain(const struct http_request *request, struct files_request *asked, struct error *err)
{
    static const char *const NAMES[] = {"stat", "list", "line", "lines", NULL}; /* the first two as 0 */
    asked->operation = FILES_OPEN;
    asked->flags = FILES_FOLLOW;
    asked->offset = 1;
    asked->size = INT64_MAX;
    if (http_request_query(request, "line") || http_request_query(request, "lines"))
        asked->flags |= FILES_LINES;
    if (!http_request_query_only(request, NAMES, err) ||
        !fields_query_number(request, "line", 1, INT64_MAX, &asked->offset, err) ||
        !fields_query_number(request, "lines", 1, INT64_MAX, &asked->size, err))
        return false;
    if ((asked->flags & FILES_LINES) && http_request_header(request, "range"))
        return error_set(err, ERROR_INVALID, "lines and Range exclude each other");
    return true;
}

static bool read_stat(const struct http_request *request, struct files_request *asked, struct error *err)
{
    static const char *const NAMES[] = {"stat", "follow", NULL};
    asked->operation = FILES_STAT;
    return http_request_query_only(request, NAMES, err) && read_flag(request, "follow", FILES_FOLLOW, asked, err);
}

static bool read_list(const struct http_request *request, struct files_request *asked, struct error *err)
{
    static const char *const NAMES[] = {"list", "depth", "limit", NULL};
    asked->operation = FILES_LIST;
    asked->depth = 1;
    return http_request_query_only(request, NAMES, err) &&
           read_number(request, "depth", DEPTH_MAX, &asked->depth, err) &&
           read_number(request, "limit", LIMIT_MAX, &asked->limit, err);
}

static bool read_pattern(const struct http_request *request, const char *name, const char **pattern, struct error *err)
{
    const char *text = http_request_query(request, name);
    size_t length = text ? strlen(text) : 0;
    if (!text || length == 0 || length > FRONT_FILES_TEXT_MAX)
        return error_set(err, ERROR_INVALID, "%s: a pattern of 1 to %d bytes", name, FRONT_FILES_TEXT_MAX);
    *pattern = text;
    return true;
}

static bool read_glob(const struct http_request *request, struct files_request *asked, struct error *err)
{
    static const char *const NAMES[] = {"glob", "by_name", "no_folders", "limit", NULL};
    asked->operation = FILES_GLOB;
    asked->limit = FOUND_DEFAULT;
    return http_request_query_only(request, NAMES, err) && read_pattern(request, "glob", &asked->pattern, err) &&
           read_flag(request, "by_name", FILES_BY_NAME, asked, err) &&
           read_flag(request, "no_folders", FILES_NO_FOLDERS, asked, err) &&
           read_number(request, "limit", LIMIT_MAX, &asked->limit, err);
}

static bool read_grep(const struct http_request *request, struct files_request *asked, struct error *err)
{
    static const char *const NAMES[] = {"grep", "glob", "ignore_case", "fixed", "limit", NULL};
    asked->operation = FILES_GREP;
    asked->limit = FOUND_DEFAULT;
    if (!http_request_query_only(request, NAMES, err) || !read_pattern(request, "grep", &asked->pattern, err) ||
        (http_request_query(request, "glob") && !read_pattern(request, "glob", &asked->glob, err)))
        return false;
    return read_flag(request, "ignore_case", FILES_IGNORE_CASE, asked, err) &&
           read_flag(request, "fixed", FILES_FIXED, asked, err) &&
           read_number(request, "limit", LIMIT_MAX, &asked->limit, err);
}

/* Which of the five a GET is; two at once are told by the parameter that the first does not know. */
static bool read_get(const struct http_request *request, struct files_request *asked, struct error *err)
{
    bool stat = false, list = false;
    if (!fields_query_switch(request, "stat", &stat, err) || !fields_query_switch(request, "list", &list, err))
        return false;
    if (stat)
        return read_stat(request, asked, err);
    if (list)
        return read_list(request, asked, err);
    if (http_request_query(request, "grep"))
        return read_grep(request, asked, err);
    if (http_request_query(request, "glob"))
        return read_glob(request, asked, err);
    return read_plain(request, asked, err);
}

static void handle_get(struct http_request *request)
{
    AUTO_FREE char *path = NULL;
    struct files_request asked;
    struct error err = {0};
    if (!files_request_begin(request, SCOPE_FS_RO, &path, &asked))
        return;
    if (!read_get(request, &asked, &err))
        http_reply_error(request, &err);
    else if (asked.operation == FILES_OPEN)
        files_get_start(request, &asked);
    else if (asked.operation == FILES_STAT)
        files_answer_start(request, &asked, -1, NULL, reply_entry);
    else
        files_list_start(request, &asked);
}

/* ---- /archive ---- */

/* A tar may hold links and names that lead anywhere: only for whom all is open. */
static bool begin_archive(struct http_request *request, enum scope_verb verb, char **path, struct files_request *asked)
{
    if (!files_request_begin(request, verb, path, asked))
        return false;
    if (asked->root[0] == '\0')
        return true;
    struct error err = {0};
    error_set(&err, ERROR_CAPABILITY_DENIED, "an archive needs %s of the whole sandbox; the token names a folder",
              verb == SCOPE_FS_RW ? "fs:rw" : "fs:ro");
    files_request_record_denial(request, *path, &err);
    http_reply_error(request, &err);
    return false;
}

static bool read_format(const struct http_request *request, struct files_request *asked, struct error *err)
{
    static const char *const NAMES[] = {"format", NULL};
    const char *format = http_request_query(request, "format");
    if (!http_request_query_only(request, NAMES, err))
        return false;
    if (format && strcmp(format, "tar") != 0 && strcmp(format, "tgz") != 0)
        return error_set(err, ERROR_INVALID, "format: tar or tgz");
    if (!format || strcmp(format, "tgz") == 0)
        asked->flags |= FILES_GZIP;
    return true;
}

static void handle_archive_get(struct http_request *request)
{
    AUTO_FREE char *path = NULL;
    struct files_request asked;
    struct error err = {0};
    if (!begin_archive(request, SCOPE_FS_RO, &path, &asked))
        return;
    if (read_format(request, &asked, &err))
        files_archive_get(request, &asked);
    else
        http_reply_error(request, &err);
}

static void handle_archive_put(struct http_request *request)
{
    static const char *const NAMES[] = {NULL};
    AUTO_FREE char *path = NULL;
    struct files_request asked;
    struct error err = {0};
    if (!begin_archive(request, SCOPE_FS_RW, &path, &asked))
        return;
    if (http_request_query_only(request, NAMES, &err))
        files_archive_put(request, &asked);
    else
        http_reply_error(request, &err);
}

/* ---- /watch ---- */

static void handle_watch(struct http_request *request)
{
    static const char *const NAMES[] = {"recursive", NULL};
    AUTO_FREE char *path = NULL;
    struct files_request asked;
    struct error err = {0};
    if (!files_request_begin(request, SCOPE_FS_RO, &path, &asked))
        return;
    asked.operation = FILES_WATCH;
    if (http_request_query_only(request, NAMES, &err) && read_flag(request, "recursive", FILES_RECURSIVE, &asked, &err))
        files_watch_start(request, &asked);
    else
        http_reply_error(request, &err);
}

#define CAPABILITY (HTTP_BEARER | HTTP_PATH)

static const struct http_route ROUTES[] = {
    {"GET", "/s/{sandbox}/files/{path...}", CAPABILITY, "fs:ro", 0, handle_get},
    {"PUT", "/s/{sandbox}/files/{path...}", CAPABILITY | HTTP_POURS, "fs:rw", BODY_BYTES, files_change_put},
    {"DELETE", "/s/{sandbox}/files/{path...}", CAPABILITY, "fs:rw", 0, files_change_delete},
    {"POST", "/s/{sandbox}/files/{path...}", CAPABILITY, "fs:rw", CHANGE_BODY_BYTES, files_change_post},
    {"POST", "/s/{sandbox}/batch", CAPABILITY, "fs:ro", BATCH_BODY_BYTES, files_many_post},
    {"GET", "/s/{sandbox}/archive/{path...}", CAPABILITY, "fs:ro", 0, handle_archive_get},
    {"PUT", "/s/{sandbox}/archive/{path...}", CAPABILITY | HTTP_POURS, "fs:rw", BODY_BYTES, handle_archive_put},
    {"POST", "/s/{sandbox}/upload/{path...}", CAPABILITY | HTTP_POURS, "fs:rw", BODY_BYTES, files_upload_post},
    {"GET", "/s/{sandbox}/watch/{path...}", CAPABILITY, "fs:ro", 0, handle_watch},
};

const struct http_route *files_routes(size_t *count)
{
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
