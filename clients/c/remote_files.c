#include "clients/c/remote_files.h"

#include "clients/c/remote_files_internal.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>
#include <unistd.h>

enum { TRIES = 8, FIRST_WAIT_MS = 100, LAST_WAIT_MS = 4000 };

struct remote_files *remote_files_open(const struct remote_files_use *use, struct error *err)
{
    CURL *curl = curl_easy_init();
    if (!curl) {
        error_set(err, ERROR_INTERNAL, "libcurl does not start");
        return NULL;
    }
    struct remote_files *files = memory_new(sizeof *files);
    files->use = *use;
    files->curl = curl;
    return files;
}

void remote_files_free(struct remote_files *files)
{
    if (!files)
        return;
    curl_easy_cleanup(files->curl);
    free(files);
}

void remote_entry_done(struct remote_entry *entry)
{
    free(entry->path);
    free(entry->target);
    free(entry->etag);
    *entry = (struct remote_entry){0};
}

/* ---- requests ---- */

/* All but what RFC 3986 leaves unreserved, and the slash. */
static void append_encoded(struct text *text, const char *path)
{
    for (const char *at = path; *at; at++) {
        unsigned char c = (unsigned char)*at;
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                        strchr("-._~/", (int)c) != NULL;
        if (is_plain)
            text_append(text, at, 1);
        else
            text_append_format(text, "%%%02X", c);
    }
}

static char *url_of(const struct remote_files *files, const char *kind, const char *path, const char *query)
{
    struct text url = {0};
    text_append_format(&url, "%s/%s", files->use.grant->http, kind);
    append_encoded(&url, path[0] == '/' ? path : "/");
    if (query && *query)
        text_append_format(&url, "?%s", query);
    return url.data;
}

static void tell(const struct remote_files *files, const char *sentence)
{
    if (files->use.note)
        files->use.note(files->use.cookie, sentence);
}

/* A token that is due is refreshed first; what that fails for is seen when the token is refused. */
static void keep_fresh(const struct remote_files *files)
{
    struct error ignored = {0};
    struct grant *grant = files->use.grant;
    if (clock_wall_ms() >= grant->refresh_ms && !grant_refresh(grant, files->use.place, files->use.request, &ignored))
        tell(files, "the token could not be refreshed");
}

static bool is_spent(const struct error *err)
{
    return err->kind == ERROR_UNAUTHENTICATED || err->kind == ERROR_TOKEN_EXPIRED || err->kind == ERROR_TOKEN_REVOKED;
}

static bool may_pass(const struct error *err)
{
    return err->kind == ERROR_NODE_UNREACHABLE || err->kind == ERROR_STARTING || err->kind == ERROR_NO_CAPACITY;
}

bool remote_files_may_retry(struct remote_files *files, unsigned *tries, const struct error *why, struct error *err)
{
    bool is_stale = why->kind == ERROR_GONE && !files->has_reached; /* the sandbox of a grant that was kept has ended */
    if ((is_spent(why) || is_stale) && !files->has_replaced) {
        files->has_replaced = true;
        AUTO_FREE char *sandbox = memory_string(files->use.grant->sandbox_id);
        if (!grant_replace(files->use.grant, files->use.place, files->use.request, err))
            return false;
        return !files->has_reached || text_equal(sandbox, files->use.grant->sandbox_id) ||
               error_set(err, ERROR_GONE, "the sandbox has ended; the thread has another one now");
    }
    if (!may_pass(why) || *tries >= TRIES)
        return false;
    if (*tries == 0)
        tell(files, "the connection is lost, trying again");
    unsigned wait_ms = (unsigned)FIRST_WAIT_MS << *tries;
    ++*tries;
    usleep((wait_ms > LAST_WAIT_MS ? LAST_WAIT_MS : wait_ms) * 1000);
    return true;
}

static bool is_about_path(enum error_kind kind)
{
    return kind == ERROR_NOT_FOUND || kind == ERROR_FORBIDDEN || kind == ERROR_CONFLICT || kind == ERROR_INVALID ||
           kind == ERROR_PRECONDITION || kind == ERROR_TOO_LARGE;
}

bool remote_files_request(struct remote_files *files, const char *kind, const char *path, const char *query,
                          struct remote_http *http, struct error *err)
{
    keep_fresh(files);
    AUTO_FREE char *url = url_of(files, kind, path, query);
    http->url = url;
    http->credential = files->use.grant->token;
    http->moved = files->is_clearing ? NULL : files->use.moved;
    http->moved_cookie = files->use.cookie;
    bool good = remote_http_perform(files->curl, http, err);
    http->url = NULL;
    if (good || (http->status > 0 && !is_spent(err) && err->kind != ERROR_GONE))
        files->has_reached = true;
    if (good)
        files->has_replaced = false;
    else if (http->status > 299 && is_about_path(err->kind))
        error_prefix(err, ":%.120s", path);
    return good;
}

/* One whose body and reply are small, and that may be sent twice. */
static bool ask(struct remote_files *files, struct remote_http *http, const char *path, const char *query,
                json_t **reply, struct error *err)
{
    struct error why = {0};
    bool good = false;
    struct curl_slist *headers = http->headers;
    for (unsigned tries = 0;;) {
        http->headers = NULL;
        for (struct curl_slist *header = headers; header; header = header->next)
            http->headers = curl_slist_append(http->headers, header->data);
        why = (struct error){0};
        good = remote_files_request(files, "files", path, query, http, &why);
        if (good)
            break;
        *err = why;
        if (!remote_files_may_retry(files, &tries, &why, err))
            break;
    }
    curl_slist_free_all(headers);
    if (good && reply) {
        *reply = http->reply.length ? json_loadb(http->reply.data, http->reply.length, 0, NULL) : NULL;
        if (!*reply && http->reply.length)
            good = error_set(err, ERROR_INTERNAL, "the server's answer is no JSON");
    }
    text_done(&http->reply);
    return good;
}

/* ---- entries ---- */

/* `name`, or exactly `name`_b64; NULL when there is neither, or a NUL in it. */
static char *take_bytes(const json_t *object, const char *name)
{
    AUTO_FREE char *coded_name = memory_printf("%s_b64", name);
    const char *coded = json_string_value(json_object_get(object, coded_name));
    if (!coded) {
        const char *plain = json_string_value(json_object_get(object, name));
        return plain ? memory_string(plain) : NULL;
    }
    size_t size = 0, room = strlen(coded);
    AUTO_FREE char *bytes = memory_new(room + 1);
    if (!text_base64_decode(bytes, room, &size, coded, room) || memchr(bytes, 0, size))
        return NULL;
    bytes[size] = 0;
    return TAKE(bytes);
}

static enum remote_kind kind_of(const char *type)
{
    if (text_equal(type, "file"))
        return REMOTE_FILE;
    if (text_equal(type, "folder"))
        return REMOTE_FOLDER;
    return text_equal(type, "symlink") ? REMOTE_LINK : REMOTE_OTHER;
}

bool remote_entry_read(struct remote_entry *entry, const json_t *object, struct error *err)
{
    const char *mode = json_string_value(json_object_get(object, "mode"));
    struct remote_entry read = {.path = take_bytes(object, "path"),
                                .target = take_bytes(object, "target"),
                                .kind = kind_of(json_string_value(json_object_get(object, "type"))),
                                .mode = mode ? (unsigned)strtoul(mode, NULL, 8) & 07777U : 0,
                                .size = (uint64_t)json_integer_value(json_object_get(object, "size")),
                                .mtime_ns = json_integer_value(json_object_get(object, "mtime_ns"))};
    const char *etag = json_string_value(json_object_get(object, "etag"));
    read.etag = etag ? memory_string(etag) : NULL;
    if (!read.path || (read.kind == REMOTE_LINK && !read.target)) {
        remote_entry_done(&read);
        return error_set(err, ERROR_INTERNAL, "the server told of a file without a name");
    }
    *entry = read;
    return true;
}

bool remote_files_stat(struct remote_files *files, const char *path, bool follow, struct remote_entry *entry,
                       struct error *err)
{
    struct remote_http http = {.method = "GET"};
    json_t *reply = NULL;
    bool good = ask(files, &http, path, follow ? "stat=1&follow=1" : "stat=1", &reply, err) &&
                remote_entry_read(entry, reply, err);
    json_decref(reply);
    return good;
}

/* ---- changes ---- */

bool remote_files_change(struct remote_files *files, const char *path, const char *op, json_t *body,
                         const char *if_match, json_t **reply, struct error *err)
{
    AUTO_FREE char *query = memory_printf("op=%s", op);
    AUTO_FREE char *text = body ? json_dumps(body, JSON_COMPACT) : memory_string("{}");
    AUTO_FREE char *header = memory_printf("If-Match: %s", if_match ? if_match : "");
    struct remote_http http = {.method = "POST",
                               .text = text,
                               .text_size = strlen(text),
                               .headers = if_match ? curl_slist_append(NULL, header) : NULL};
    return ask(files, &http, path, query, reply, err);
}

bool remote_files_remove(struct remote_files *files, const char *path, bool recursive, struct error *err)
{
    struct remote_http http = {.method = "DELETE"};
    return ask(files, &http, path, recursive ? "recursive=1" : "", NULL, err);
}

/* ---- lists ---- */

struct listing {
    struct text line; /* what has come of one */
    bool (*visit)(void *cookie, const struct remote_entry *entry, struct error *err);
    void *cookie;
    bool is_done; /* the last line came */
};

/* A name from there becomes a path here. */
static bool is_below(const char *path)
{
    for (const char *at = path; *at;) {
        size_t length = strcspn(at, "/");
        if (length == 0 || (length == 1 && at[0] == '.') || (length == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += length;
        if (*at == '/' && *++at == 0)
            return false;
    }
    return true;
}

static bool take_line(struct listing *listing, struct error *err)
{
    json_t *object = json_loadb(listing->line.data, listing->line.length, 0, NULL);
    const char *type = json_string_value(json_object_get(object, "type"));
    bool good = true;
    if (text_equal(type, "done")) {
        listing->is_done = true;
    } else if (text_equal(type, "error")) {
        const char *code = json_string_value(json_object_get(object, "code"));
        const char *message = json_string_value(json_object_get(object, "message"));
        good = error_set(err, error_kind_of_code(code ? code : ""), "%s", message ? message : "the list broke off");
    } else {
        AUTO_REMOTE_ENTRY entry = {0};
        good = remote_entry_read(&entry, object, err) &&
               (is_below(entry.path) || error_set(err, ERROR_INTERNAL, "the server told of a path that leads away")) &&
               listing->visit(listing->cookie, &entry, err);
    }
    json_decref(object);
    listing->line.length = 0;
    return good;
}

static bool on_listed(void *cookie, const void *data, size_t size, struct error *err)
{
    struct listing *listing = cookie;
    const char *at = data, *end = at + size;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *to = newline ? newline : end;
        text_append(&listing->line, at, (size_t)(to - at));
        if (listing->line.length > REMOTE_FILES_LINE_MAX)
            return error_set(err, ERROR_INTERNAL, "the server sent an endless line");
        if (!newline)
            return true;
        if (listing->line.length > 0 && !take_line(listing, err))
            return false;
        at = newline + 1;
    }
    return true;
}

bool remote_files_list(struct remote_files *files, const char *path, unsigned depth,
                       bool (*visit)(void *cookie, const struct remote_entry *entry, struct error *err), void *cookie,
                       struct error *err)
{
    AUTO_FREE char *query = memory_printf("list=1&depth=%u", depth);
    struct listing listing = {.visit = visit, .cookie = cookie};
    bool good = false;
    for (unsigned tries = 0;;) {
        struct error why = {0};
        struct remote_http http = {.method = "GET",
                                   .write = on_listed,
                                   .cookie = &listing,
                                   .headers = curl_slist_append(NULL, "Accept: application/x-ndjson")};
        listing.line.length = 0;
        good = remote_files_request(files, "files", path, query, &http, &why);
        bool may_retry = http.received == 0;
        text_done(&http.reply);
        if (good && !listing.is_done)
            good = error_set(&why, ERROR_NODE_UNREACHABLE, "the list of %s broke off", path);
        if (good)
            break;
        *err = why;
        if (!may_retry || !remote_files_may_retry(files, &tries, &why, err))
            break;
    }
    text_done(&listing.line);
    return good;
}
