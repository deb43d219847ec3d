/* launcher_init.c - see launcher_init.h. */
#include "sandboxd/launcher_init/launcher_init.h"

#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <string.h>
#include <unistd.h>

#define HEAD_BYTES offsetof(struct launcher_init_message, as)

enum { IDS_MAX = 65534, FILES_MIN = 16, FILES_MAX = 1048576 };

size_t launcher_init_size(uint32_t type)
{
    switch (type) {
    case LI_BARRIER:
    case LI_READY:
        return HEAD_BYTES;
    case LI_FAILED:
        return HEAD_BYTES + sizeof(struct error);
    case LI_BECOME:
        return HEAD_BYTES + sizeof(struct li_become);
    case LI_GUEST:
        return HEAD_BYTES + sizeof(struct li_guest);
    default:
        return 0;
    }
}

static bool wrong(struct error *err, const char *field)
{
    return error_set(err, ERROR_INVALID, "launcher_init: impossible %s", field);
}

/* Ended by a NUL within its field, NULs behind it, and no control characters. */
static bool is_text(const char *field, size_t size)
{
    size_t length = strnlen(field, size);
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)field[i];
        if (i < length ? byte < ' ' || byte == 0x7f : byte != 0)
            return false;
    }
    return length < size;
}

/* Absolute, every component a name: none empty, none "." or "..". */
static bool is_normal_path(const char *path)
{
    const char *at = path;
    while (*at == '/') {
        size_t length = strcspn(++at, "/");
        if (length == 0 || (length <= 2 && strspn(at, ".") >= length))
            return false;
        at += length;
    }
    return at != path && *at == '\0';
}

static bool check_volume(const struct li_volume *volume, bool is_there, struct error *err)
{
    if (!is_text(volume->path, sizeof volume->path))
        return wrong(err, "volume path");
    return (is_there ? is_normal_path(volume->path) : volume->path[0] == '\0') || wrong(err, "volume path");
}

static bool check_become(const struct li_become *become, size_t fd_count, struct error *err)
{
    if (!is_text(become->hostname, sizeof become->hostname))
        return wrong(err, "hostname");
    bool in_range = become->uid >= 1 && become->uid <= IDS_MAX && become->gid <= IDS_MAX && become->root_allowed <= 1 &&
                    become->open_files >= FILES_MIN && become->open_files <= FILES_MAX && become->has_letter <= 1 &&
                    become->reserved == 0;
    if (!in_range)
        return wrong(err, "number");
    if (become->volume_count > LAUNCHER_INIT_VOLUMES || fd_count != (size_t)become->volume_count + become->has_letter)
        return wrong(err, "count of volumes");
    for (size_t i = 0; i < LAUNCHER_INIT_VOLUMES; i++) {
        if (!check_volume(&become->volumes[i], i < become->volume_count, err))
            return false;
    }
    return true;
}

/* As many texts as are said, and nothing behind them. */
static bool check_guest(const struct li_guest *guest, struct error *err)
{
    const char *at = guest->arguments, *end = at + sizeof guest->arguments;
    for (uint32_t i = 0; i < guest->argument_count && at < end; i++)
        at += strnlen(at, (size_t)(end - at)) + 1;
    bool is_whole = guest->argument_count >= 1 && guest->argument_count <= LAUNCHER_INIT_ARGUMENTS && at <= end;
    for (; is_whole && at < end; at++)
        is_whole = *at == '\0';
    if (!is_whole || guest->arguments[0] != '/')
        return wrong(err, "arguments");
    return (guest->starts_late <= 1 && guest->reserved == 0) || wrong(err, "number");
}

static bool check_failed(const struct error *failed, struct error *err)
{
    int kind = 0; /* an enum read from the wire: any other value is undefined to compare */
    memcpy(&kind, &failed->kind, sizeof kind);
    if (kind <= ERROR_NONE || kind >= ERROR_KINDS)
        return wrong(err, "error kind");
    size_t length = strnlen(failed->message, sizeof failed->message);
    bool is_sentence = length < sizeof failed->message && text_utf8_prefix(failed->message, length) == length;
    for (size_t i = 0; is_sentence && i < length; i++)
        is_sentence = (unsigned char)failed->message[i] >= ' ' && failed->message[i] != 0x7f;
    return is_sentence || wrong(err, "error text");
}

bool launcher_init_check(const struct launcher_init_message *message, size_t size, size_t fd_count,
                         enum launcher_init_end sender, struct error *err)
{
    if (size < HEAD_BYTES || launcher_init_size(message->type) != size)
        return error_set(err, ERROR_INVALID, "launcher_init: %zu bytes are no message", size);
    bool is_launchers = message->type == LI_BECOME || message->type == LI_GUEST;
    if (is_launchers != (sender == LI_FROM_LAUNCHER) || message->reserved != 0)
        return error_set(err, ERROR_INVALID, "launcher_init: type %u from the wrong end", message->type);
    if (message->type == LI_BECOME)
        return check_become(&message->as.become, fd_count, err);
    if (fd_count != 0)
        return error_set(err, ERROR_INVALID, "launcher_init: type %u with descriptors", message->type);
    if (message->type == LI_GUEST)
        return check_guest(&message->as.guest, err);
    return message->type != LI_FAILED || check_failed(&message->as.failed, err);
}

bool launcher_init_send(int socket, const struct launcher_init_message *message, const int *fds, size_t fd_count,
                        struct error *err)
{
    size_t size = launcher_init_size(message->type);
    if (size == 0)
        return error_set(err, ERROR_INVALID, "launcher_init: no type %u", message->type);
    return fd_send_message(socket, message, size, fds, fd_count, err);
}

int launcher_init_receive(int socket, struct launcher_init_message *message, enum launcher_init_end sender, int *fds,
                          size_t *fd_count, struct error *err)
{
    int received[FD_MESSAGE_FDS];
    size_t count = 0;
    struct launcher_init_message got = {0};
    ssize_t size = fd_receive_message(socket, &got, sizeof got, received, &count, err);
    if (size <= 0)
        return size < 0 ? -1 : 0;
    if (!launcher_init_check(&got, (size_t)size, count, sender, err)) {
        fd_drop_all(received, count);
        return -1;
    }
    *message = got;
    for (size_t i = 0; i < count; i++)
        fds[i] = received[i];
    *fd_count = count;
    return 1;
}
