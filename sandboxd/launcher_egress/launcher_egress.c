/* launcher_egress.c - see launcher_egress.h. */
#include "sandboxd/launcher_egress/launcher_egress.h"

#include "shared/base/fd.h"
#include "shared/base/log.h"

#include <string.h>
#include <unistd.h>

#define HEAD_BYTES offsetof(struct launcher_egress_message, as)

enum { TTL_MAX_S = 86400 };

size_t launcher_egress_size(uint32_t type)
{
    switch (type) {
    case EG_CONFIG:
        return HEAD_BYTES + sizeof(struct eg_config);
    case EG_SANDBOX:
        return HEAD_BYTES + sizeof(struct eg_sandbox);
    case EG_GONE:
        return HEAD_BYTES + sizeof(struct eg_gone);
    case EG_PINNED:
        return HEAD_BYTES + sizeof(struct eg_pinned);
    case EG_READY:
        return HEAD_BYTES;
    case EG_PIN:
        return HEAD_BYTES + sizeof(struct eg_pin);
    default:
        return 0;
    }
}

static bool wrong(struct error *err, const char *field)
{
    return error_set(err, ERROR_INVALID, "launcher_egress: impossible %s", field);
}

/* Ended by a NUL within its field, NULs behind it, of letters, digits and `also`. */
static bool is_text(const char *field, size_t size, const char *also)
{
    size_t length = strnlen(field, size);
    for (size_t i = 0; i < size; i++) {
        char byte = field[i];
        bool is_plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9');
        if (i < length ? !is_plain && !strchr(also, byte) : byte != 0)
            return false;
    }
    return length < size;
}

static bool check_config(const struct eg_config *config, struct error *err)
{
    if (config->uid == 0 || config->uid == UINT32_MAX || config->gid == 0 || config->gid == UINT32_MAX)
        return wrong(err, "uid or gid");
    if (config->log_level > LOG_ERROR || config->log_json > 1)
        return wrong(err, "log level or format");
    if (config->server_count > LAUNCHER_EGRESS_SERVERS)
        return wrong(err, "count of servers");
    for (uint32_t i = 0; i < LAUNCHER_EGRESS_SERVERS; i++) {
        const struct eg_server *server = &config->servers[i];
        bool is_there = i < config->server_count;
        if ((server->address != 0) != is_there || (server->port != 0) != is_there || server->reserved != 0)
            return wrong(err, "DNS server");
    }
    return true;
}

static bool check_sandbox(const struct eg_sandbox *sandbox, size_t fd_count, struct error *err)
{
    if (!is_text(sandbox->id, sizeof sandbox->id, "_-.") || sandbox->id[0] == '\0' || sandbox->number == 0)
        return wrong(err, "sandbox");
    if (sandbox->mode != EG_PUBLIC && sandbox->mode != EG_ALLOW)
        return wrong(err, "mode");
    if (!is_text(sandbox->allow, sizeof sandbox->allow, "_-.*:/ ") ||
        !is_text(sandbox->deny, sizeof sandbox->deny, "_-.*:/ "))
        return wrong(err, "names");
    if (sandbox->mode == EG_PUBLIC && sandbox->allow[0] != '\0' && sandbox->deny[0] == '\0')
        return wrong(err, "names of a sandbox that may reach all");
    return fd_count == 0 || fd_count == EG_FDS || wrong(err, "count of descriptors");
}

static bool check_pin(const struct eg_pin *pin, struct error *err)
{
    if (pin->number == 0 || pin->count == 0 || pin->count > LAUNCHER_EGRESS_PINS)
        return wrong(err, "count of addresses");
    if (pin->reserved != 0 || pin->ttl_s == 0 || pin->ttl_s > TTL_MAX_S)
        return wrong(err, "time to live");
    for (uint32_t i = 0; i < LAUNCHER_EGRESS_PINS; i++) {
        if ((pin->addresses[i] != 0) != (i < pin->count))
            return wrong(err, "address");
    }
    for (size_t i = 1; i < LAUNCHER_EGRESS_PORTS; i++) {
        if (pin->ports[i] != 0 && pin->ports[i - 1] == 0)
            return wrong(err, "port");
    }
    return pin->ports[0] != 0 || wrong(err, "port");
}

static bool check_body(const struct launcher_egress_message *message, size_t fd_count, struct error *err)
{
    switch ((enum launcher_egress_type)message->type) {
    case EG_CONFIG:
        return check_config(&message->as.config, err);
    case EG_SANDBOX:
        return check_sandbox(&message->as.sandbox, fd_count, err);
    case EG_GONE:
        return message->as.gone.number != 0 || wrong(err, "sandbox");
    case EG_PINNED:
        return (message->as.pinned.number != 0 && message->as.pinned.ok <= 1 && message->as.pinned.reserved == 0) ||
               wrong(err, "answer");
    case EG_PIN:
        return check_pin(&message->as.pin, err);
    case EG_READY:
        return true;
    }
    return wrong(err, "type");
}

bool launcher_egress_check(const struct launcher_egress_message *message, size_t size, size_t fd_count,
                           enum launcher_egress_end sender, struct error *err)
{
    if (size < HEAD_BYTES || launcher_egress_size(message->type) != size)
        return error_set(err, ERROR_INVALID, "launcher_egress: %zu bytes are no message", size);
    if ((message->type < EG_READY) != (sender == EG_FROM_LAUNCHER) || message->reserved != 0)
        return error_set(err, ERROR_INVALID, "launcher_egress: type %u from the wrong end", message->type);
    if ((message->request != 0) != (message->type == EG_PIN || message->type == EG_PINNED))
        return wrong(err, "request");
    if (fd_count != 0 && message->type != EG_SANDBOX)
        return error_set(err, ERROR_INVALID, "launcher_egress: type %u with descriptors", message->type);
    return check_body(message, fd_count, err);
}

bool launcher_egress_send(int socket, const struct launcher_egress_message *message, const int *fds, size_t fd_count,
                          struct error *err)
{
    size_t size = launcher_egress_size(message->type);
    if (size == 0)
        return error_set(err, ERROR_INVALID, "launcher_egress: no type %u", message->type);
    return fd_send_message(socket, message, size, fds, fd_count, err);
}

int launcher_egress_receive(int socket, struct launcher_egress_message *message, enum launcher_egress_end sender,
                            int *fds, size_t *fd_count, struct error *err)
{
    int received[FD_MESSAGE_FDS];
    size_t count = 0;
    struct launcher_egress_message got = {0};
    ssize_t size = fd_receive_message(socket, &got, sizeof got, received, &count, err);
    if (size <= 0)
        return size < 0 ? -1 : 0;
    if (!launcher_egress_check(&got, (size_t)size, count, sender, err)) {
        fd_drop_all(received, count);
        return -1;
    }
    *message = got;
    for (size_t i = 0; i < count; i++)
        fds[i] = received[i];
    *fd_count = count;
    return 1;
}
