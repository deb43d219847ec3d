/* files_request.c - reading a request; nothing is done here. */
#include "sandboxd/dialects/native/files/files_request.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { AUDIT_PATH_BYTES = 2700 }; /* of an encoded path in a record: two fit */

/* ---- paths ---- */

char *files_request_path(const struct http_request *request)
{
    const char *below = http_request_parameter(request, "path");
    return memory_printf("/%s", below ? below : "");
}

bool files_request_check_path(const char *path, const char *name, struct error *err)
{
    bool is_sound = path[0] == '/' && strlen(path) <= FRONT_FILES_PATH_MAX;
    for (const char *at = path; is_sound && path[1] && *at;) {
        size_t length = strcspn(++at, "/");
        bool is_dots = (length == 1 && at[0] == '.') || (length == 2 && at[0] == '.' && at[1] == '.');
        is_sound = length > 0 && !is_dots;
        at += length;
    }
    if (!is_sound)
        return error_set(err, ERROR_INVALID, "%s: an absolute path of at most %d bytes, without empty, . or .. parts",
                         name, FRONT_FILES_PATH_MAX);
    return true;
}

void files_request_append_shown(struct text *to, const char *path)
{
    plane_append_shown(to, path, AUDIT_PATH_BYTES);
}

void files_request_record_denial(const struct http_request *request, const char *path, const struct error *err)
{
    AUTO_TEXT what = {0};
    text_append_string(&what, "path=");
    files_request_append_shown(&what, path);
    struct plane_refusal refusal = {
        .action = "refuse", .reason = capability_refusal_name(CAPABILITY_SCOPE_MISSING), .what = what.data};
    plane_record_refusal(request, &caller_of(request)->claims, &refusal, err);
}

const char *files_request_root(const struct http_request *request, enum scope_verb verb, const char *path,
                               struct error *err)
{
    const struct capability_claims *claims = &caller_of(request)->claims;
    const char *root = scope_folder(&claims->scopes, verb, path);
    if (root)
        return root;
    const char *needed = verb == SCOPE_FS_RW ? "fs:rw" : "fs:ro";
    char granted[SCOPE_TEXT_BYTES];
    scope_format(&claims->scopes, granted);
    AUTO_TEXT shown = {0};
    plane_append_shown(&shown, path, 80);
    error_set(err, ERROR_CAPABILITY_DENIED, "%s is needed at %s; the token grants %.100s", needed, shown.data,
              granted[0] ? granted : "nothing");
    files_request_record_denial(request, path, err);
    return NULL;
}

bool files_request_begin(struct http_request *request, enum scope_verb verb, char **path, struct files_request *asked)
{
    struct error err = {0};
    files_request_headers(request);
    *path = files_request_path(request);
    *asked =
        (struct files_request){.path = *path, .to_root = "", .to_path = "", .pattern = "", .glob = "", .upload = ""};
    if (files_request_check_path(*path, "the path", &err))
        asked->root = files_request_root(request, verb, *path, &err);
    if (asked->root)
        return true;
    http_reply_error(request, &err);
    return false;
}

bool files_request_check_movable(const char *path, const char *root, const char *deed, struct error *err)
{
    if (strcmp(path, "/") == 0)
        return error_set(err, ERROR_FORBIDDEN, "/ cannot be %s", deed);
    if (strcmp(path, root) == 0)
        return error_set(err, ERROR_FORBIDDEN, "the folder that the token names cannot be %s by it", deed);
    return true;
}

/* ---- how many ---- */

struct counting {
    const struct http_request *request;
    unsigned count; /* of its sandbox and route, on this loop, itself among them */
};

static void count_one(void *cookie, struct http_request *request)
{
    struct counting *counting = cookie;
    const struct caller *caller = caller_of(request);
    if (caller && http_request_route(request) == http_request_route(counting->request))
        counting->count += strcmp(caller->claims.sandbox_id, caller_of(counting->request)->claims.sandbox_id) == 0;
}

bool files_request_has_room(const struct http_request *request, unsigned max, const char *what, struct error *err)
{
    struct counting counting = {.request = request};
    http_requests_each(http_request_loop(request), count_one, &counting);
    return counting.count <= max ||
           error_set(err, ERROR_NO_CAPACITY, "%u %s for this sandbox are under way", max, what);
}

/* ---- headers ---- */

void files_request_headers(struct http_request *request)
{
    http_reply_header(request, "X-Content-Type-Options", "nosniff");
    http_reply_header(request, "Content-Security-Policy", "sandbox");
}

struct conditions files_request_conditions(const struct http_request *request)
{
    return (struct conditions){.if_match = http_request_header(request, "if-match"),
                               .if_none_match = http_request_header(request, "if-none-match"),
                               .if_modified_since = http_request_header(request, "if-modified-since"),
                               .if_unmodified_since = http_request_header(request, "if-unmodified-since"),
                               .range = http_request_header(request, "range"),
                               .if_range = http_request_header(request, "if-range")};
}

/* ---- parameters ---- */

bool files_request_mode(const char *text, struct files_request *asked, struct error *err)
{
    size_t length = strspn(text, "01234567");
    uint32_t mode = 0;
    for (size_t i = 0; i < length && i < 5; i++)
        mode = mode * 8 + (uint32_t)(text[i] - '0');
    if (length == 0 || length > 5 || text[length] || mode > 07777)
        return error_set(err, ERROR_INVALID, "mode: octal digits, \"0644\", at most \"7777\"");
    asked->flags |= FILES_MODE;
    asked->mode = mode;
    return true;
}

bool files_request_check_user(const char *name, const char *field, struct error *err)
{
    size_t length = strlen(name);
    return (length > 0 && length <= FRONT_FILES_USER_MAX) ||
           error_set(err, ERROR_INVALID, "%s: a name, or a number in digits, of 1 to %d bytes", field,
                     FRONT_FILES_USER_MAX);
}

/* ---- the record ---- */

static void append_user(struct text *to, const char *key, const char *name)
{
    if (!name || name[0] == 0)
        return;
    text_append_format(to, " %s=", key);
    plane_append_shown(to, name, 3 * FRONT_FILES_USER_MAX + 8);
}

char *files_request_detail(const struct files_request *asked, const char *more)
{
    struct text detail = {0};
    text_append_string(&detail, "path=");
    files_request_append_shown(&detail, asked->path);
    if (asked->to_path[0]) {
        text_append_string(&detail, " to=");
        files_request_append_shown(&detail, asked->to_path);
    }
    if (more)
        text_append_format(&detail, " %s", more);
    append_user(&detail, "owner", asked->owner);
    append_user(&detail, "group", asked->group);
    return detail.data;
}
