/* front_files.c - requests, and the checks of front_files.h that both ends do; records are front_files_records.c. */
#include "sandboxd/front_files/front_files.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { MODE_MAX = 07777, DEPTH_MAX = 64, UPLOAD_MAX = 64 };

enum text_at { ROOT, PATH, TO_ROOT, TO_PATH, PATTERN, GLOB, UPLOAD, OWNER, GROUP, TEXTS };

/* A request's packet: this, then the texts without NULs, in the order of enum text_at. */
struct head {
    uint32_t operation, flags, depth, limit, mode, reserved;
    int64_t mtime_ns;
    uint64_t size, offset, total;
    struct files_version match;
    uint32_t sizes[TEXTS];
    uint32_t reserved_too;
};

#define IF_FLAGS ((uint32_t)FILES_IF_MATCH | FILES_IF_ANY | FILES_IF_NONE)

enum wants { NEVER, OPTIONAL, ALWAYS };

/* What an operation takes beside its path. */
struct rule {
    uint32_t flags;
    enum wants descriptor, to, pattern, glob, upload, users;
};

static const struct rule RULES[] = {
    [FILES_STAT] = {.flags = FILES_FOLLOW},
    [FILES_OPEN] = {.flags = FILES_FOLLOW | FILES_LINES},
    [FILES_LIST] = {.flags = 0},
    [FILES_GLOB] = {.flags = FILES_IGNORE_CASE | FILES_BY_NAME | FILES_NO_FOLDERS, .pattern = ALWAYS},
    [FILES_GREP] = {.flags = FILES_IGNORE_CASE | FILES_FIXED, .pattern = ALWAYS, .glob = OPTIONAL},
    [FILES_MKDIR] = {.flags = FILES_PARENTS | FILES_MODE | FILES_KNOWN_USERS, .users = OPTIONAL},
    [FILES_REMOVE] = {.flags = FILES_RECURSIVE | FILES_NO_FOLDERS | IF_FLAGS},
    [FILES_MOVE] = {.flags = FILES_OVERWRITE | FILES_PARENTS | IF_FLAGS, .to = ALWAYS},
    [FILES_COPY] = {.flags = FILES_OVERWRITE | FILES_PARENTS | FILES_RECURSIVE | IF_FLAGS, .to = ALWAYS},
    [FILES_CHMOD] = {.flags = FILES_MODE | FILES_KNOWN_USERS | IF_FLAGS, .users = OPTIONAL},
    [FILES_EDIT] = {.flags = IF_FLAGS, .descriptor = ALWAYS},
    [FILES_WRITE] = {.flags = FILES_PARENTS | FILES_MODE | FILES_MTIME | FILES_KNOWN_USERS | IF_FLAGS,
                     .descriptor = ALWAYS,
                     .users = OPTIONAL},
    [FILES_PIECE] = {.flags = FILES_PARENTS | FILES_MODE | FILES_MTIME | IF_FLAGS,
                     .descriptor = OPTIONAL,
                     .upload = ALWAYS},
    [FILES_WATCH] = {.flags = FILES_RECURSIVE},
    [FILES_PACK] = {.flags = FILES_GZIP, .descriptor = ALWAYS},
    [FILES_UNPACK] = {.flags = FILES_GZIP | FILES_PARENTS, .descriptor = ALWAYS},
    [FILES_COMMIT] = {.flags = 0},
};

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* No empty, "." or ".." segment, no NUL; "" is a path here. */
bool front_files_path_is_relative(const char *path, size_t size)
{
    if (size > FRONT_FILES_PATH_MAX || memchr(path, 0, size) != NULL)
        return false;
    for (size_t at = 0; size > 0 && at <= size;) {
        const char *slash = memchr(path + at, '/', size - at);
        size_t length = slash ? (size_t)(slash - path) - at : size - at;
        bool is_dots = (length == 1 && path[at] == '.') || (length == 2 && path[at] == '.' && path[at + 1] == '.');
        if (length == 0 || length > FRONT_FILES_NAME_MAX || is_dots)
            return false;
        at += length + 1;
    }
    return true;
}

static bool is_absolute(const char *path)
{
    return path[0] == '/' && front_files_path_is_relative(path + 1, strlen(path + 1)) &&
           strlen(path) <= FRONT_FILES_PATH_MAX;
}

static bool check_path(const char *root, const char *path, struct error *err)
{
    size_t length = text_equal(root, "/") ? 0 : strlen(root);
    if (!is_absolute(path) || (root[0] != 0 && !is_absolute(root)))
        return error_set(err, ERROR_INVALID,
                         "a path must be absolute, at most %d bytes, names at most %d, without empty, . or .. segments",
                         FRONT_FILES_PATH_MAX, FRONT_FILES_NAME_MAX);
    if (strncmp(path, root, length) != 0 || (length > 0 && path[length] != 0 && path[length] != '/'))
        return error_set(err, ERROR_INVALID, "the path is not below the scope's folder");
    return true;
}

static bool check_wanted(enum wants wanted, const char *text, size_t max, const char *what, struct error *err)
{
    if (wanted == NEVER && text[0] != 0)
        return error_set(err, ERROR_INVALID, "this operation has no %s", what);
    if (wanted == ALWAYS && text[0] == 0)
        return error_set(err, ERROR_INVALID, "%s is missing", what);
    return strlen(text) <= max || error_set(err, ERROR_INVALID, "%s: at most %zu bytes", what, max);
}

static bool check_piece(const struct files_request *request, bool has_descriptor, struct error *err)
{
    if (request->operation != FILES_PIECE)
        return true;
    if (!text_is_made_of(request->upload, UPLOAD_MAX, "._-"))
        return error_set(err, ERROR_INVALID, "upload must be 1..%d of A-Za-z0-9._-", UPLOAD_MAX);
    if (request->total == 0 || request->total > INT64_MAX || request->offset > request->total ||
        request->size > request->total - request->offset || has_descriptor != (request->size > 0))
        return error_set(err, ERROR_INVALID, "the piece does not lie within its total");
    return true;
}

static bool check_numbers(const struct files_request *request, const struct rule *rule, struct error *err)
{
    if (request->flags & ~rule->flags)
        return error_set(err, ERROR_INVALID, "operation %d does not take flags %x", (int)request->operation,
                         request->flags & ~rule->flags);
    if ((request->flags & FILES_IF_NONE) && (request->flags & (FILES_IF_MATCH | FILES_IF_ANY)))
        return error_set(err, ERROR_INVALID, "If-Match and If-None-Match exclude each other");
    bool has_user = or_empty(request->owner)[0] != 0 || or_empty(request->group)[0] != 0;
    if (request->mode > MODE_MAX)
        return error_set(err, ERROR_INVALID, "mode must be 0000..7777");
    if (request->operation == FILES_CHMOD && !(request->flags & FILES_MODE) && !has_user)
        return error_set(err, ERROR_INVALID, "mode, owner or group is needed");
    if ((request->flags & FILES_LINES) && (request->offset == 0 || request->size == 0))
        return error_set(err, ERROR_INVALID, "lines are counted from 1");
    if (request->depth > DEPTH_MAX || (request->operation == FILES_LIST && request->depth == 0))
        return error_set(err, ERROR_INVALID, "depth must be 1..%d", DEPTH_MAX);
    return true;
}

static const struct rule *rule_of(uint32_t operation)
{
    return operation >= FILES_STAT && operation <= FILES_COMMIT ? &RULES[operation] : NULL;
}

bool front_files_request_check(const struct files_request *request, bool has_descriptor, struct error *err)
{
    const struct rule *rule = rule_of(request->operation);
    if (rule == NULL)
        return error_set(err, ERROR_INVALID, "unknown operation %d", (int)request->operation);
    const char *root = or_empty(request->root), *path = or_empty(request->path);
    const char *to_root = or_empty(request->to_root), *to_path = or_empty(request->to_path);
    if (request->operation == FILES_COMMIT && (root[0] != 0 || path[0] != 0))
        return error_set(err, ERROR_INVALID, "commit has no path");
    if (request->operation != FILES_COMMIT && !check_path(root, path, err))
        return false;
    if (!check_wanted(rule->to, to_path, FRONT_FILES_PATH_MAX, "to", err) ||
        (rule->to == ALWAYS && !check_path(to_root, to_path, err)) ||
        !check_wanted(rule->to == ALWAYS ? OPTIONAL : NEVER, to_root, FRONT_FILES_PATH_MAX, "to_root", err) ||
        !check_wanted(rule->pattern, or_empty(request->pattern), FRONT_FILES_TEXT_MAX, "pattern", err) ||
        !check_wanted(rule->glob, or_empty(request->glob), FRONT_FILES_TEXT_MAX, "glob", err) ||
        !check_wanted(rule->upload, or_empty(request->upload), UPLOAD_MAX, "upload", err) ||
        !check_wanted(rule->users, or_empty(request->owner), FRONT_FILES_USER_MAX, "owner", err) ||
        !check_wanted(rule->users, or_empty(request->group), FRONT_FILES_USER_MAX, "group", err) ||
        !check_numbers(request, rule, err) || !check_piece(request, has_descriptor, err))
        return false;
    if ((rule->descriptor == NEVER && has_descriptor) || (rule->descriptor == ALWAYS && !has_descriptor))
        return error_set(err, ERROR_INVALID, "operation %d comes with%s a descriptor", (int)request->operation,
                         has_descriptor ? "out" : "");
    return true;
}

bool front_files_request_send(int socket, const struct files_request *request, int descriptor, struct error *err)
{
    if (!front_files_request_check(request, descriptor >= 0, err))
        return false;
    const char *texts[TEXTS] = {request->root, request->path,   request->to_root, request->to_path, request->pattern,
                                request->glob, request->upload, request->owner,   request->group};
    struct head head = {
        .operation = request->operation,
        .flags = request->flags,
        .depth = request->depth,
        .limit = request->limit,
        .mode = request->mode,
        .mtime_ns = request->mtime_ns,
        .size = request->size,
        .offset = request->offset,
        .total = request->total,
        .match = request->match,
    };
    AUTO_TEXT packet = {0};
    text_append(&packet, &head, sizeof head);
    for (int i = 0; i < TEXTS; i++) {
        head.sizes[i] = (uint32_t)strlen(or_empty(texts[i]));
        text_append_string(&packet, or_empty(texts[i]));
    }
    memcpy(packet.data, &head, sizeof head);
    return fd_send_message(socket, packet.data, packet.length, &descriptor, descriptor >= 0 ? 1 : 0, err);
}

/* Each text with a NUL into `to`, which has room for `size` and TEXTS NULs. */
static bool take_texts(const struct head *head, const char *from, size_t size, char *to, const char *texts[TEXTS])
{
    for (int i = 0; i < TEXTS; i++) {
        size_t length = head->sizes[i];
        if (length > size || memchr(from, 0, length) != NULL)
            return false;
        memcpy(to, from, length);
        to[length] = 0;
        texts[i] = to;
        to += length + 1;
        from += length;
        size -= length;
    }
    return size == 0;
}

static bool decode(const char *packet, size_t size, struct files_request *request, void **memory, struct error *err)
{
    struct head head;
    const char *texts[TEXTS];
    if (size < sizeof head)
        return error_set(err, ERROR_INVALID, "a packet of %zu bytes is no request", size);
    memcpy(&head, packet, sizeof head);
    AUTO_FREE char *copy = memory_new(size - sizeof head + TEXTS);
    if (head.reserved != 0 || head.reserved_too != 0 ||
        !take_texts(&head, packet + sizeof head, size - sizeof head, copy, texts))
        return error_set(err, ERROR_INVALID, "the request's texts do not fill its packet");
    if (rule_of(head.operation) == NULL)
        return error_set(err, ERROR_INVALID, "unknown operation %u", head.operation);
    *request = (struct files_request){
        .operation = (enum files_operation)head.operation,
        .flags = head.flags,
        .depth = head.depth,
        .limit = head.limit,
        .mode = head.mode,
        .mtime_ns = head.mtime_ns,
        .size = head.size,
        .offset = head.offset,
        .total = head.total,
        .match = head.match,
        .root = texts[ROOT],
        .path = texts[PATH],
        .to_root = texts[TO_ROOT],
        .to_path = texts[TO_PATH],
        .pattern = texts[PATTERN],
        .glob = texts[GLOB],
        .upload = texts[UPLOAD],
        .owner = texts[OWNER],
        .group = texts[GROUP],
    };
    *memory = TAKE(copy);
    return true;
}

int front_files_request_receive(int socket, struct files_request *request, void **memory, int *descriptor,
                                struct error *err)
{
    int fds[FD_MESSAGE_FDS];
    size_t count = 0;
    struct files_request got;
    AUTO_FREE void *texts = NULL;
    AUTO_FREE char *packet = memory_new(FRONT_FILES_PACKET_MAX);
    ssize_t size = fd_receive_message(socket, packet, FRONT_FILES_PACKET_MAX, fds, &count, err);
    if (size <= 0)
        return size < 0 ? -1 : 0;
    AUTO_FD int first = count > 0 ? fds[0] : -1;
    for (size_t i = 1; i < count; i++)
        close(fds[i]);
    if (count > 1) {
        error_set(err, ERROR_INVALID, "a request with %zu descriptors", count);
        return -1;
    }
    if (!decode(packet, (size_t)size, &got, &texts, err) || !front_files_request_check(&got, first >= 0, err))
        return -1;
    *request = got;
    *memory = TAKE(texts);
    *descriptor = TAKE_FD(first);
    return 1;
}
