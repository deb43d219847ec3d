#include "sandboxd/front_launcher/front_launcher.h"

#include "shared/base/fd.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define HEAD_BYTES offsetof(struct front_launcher_message, as)

static const char NAME_EXTRA[] = "._-";
static const char REASON_EXTRA[] = "._-: ";

size_t front_launcher_size(uint32_t type)
{
    switch (type) {
    case FL_READY:
    case FL_ADOPTED:
    case FL_REKEYED:
    case FL_DONE:
    case FL_EVIDENT:
        return HEAD_BYTES;
    case FL_EVIDENCE:
        return HEAD_BYTES + sizeof(struct fl_evidence);
    case FL_PREPARE:
        return HEAD_BYTES + sizeof(struct fl_prepare);
    case FL_DESTROY:
    case FL_ENDING:
        return HEAD_BYTES + sizeof(struct fl_destroy);
    case FL_DEADLINE:
        return HEAD_BYTES + sizeof(struct fl_deadline);
    case FL_REKEY:
        return HEAD_BYTES + sizeof(struct fl_rekey);
    case FL_LIMITS:
        return HEAD_BYTES + sizeof(struct fl_limits_change);
    case FL_NETWORK:
        return HEAD_BYTES + sizeof(struct fl_network_change);
    case FL_USAGE:
        return HEAD_BYTES + sizeof(struct fl_name);
    case FL_SNAPSHOT:
    case FL_SNAPSHOT_DROP:
        return HEAD_BYTES + sizeof(struct fl_snapshot);
    case FL_VOLUME_DROP:
        return HEAD_BYTES + sizeof(struct fl_volume_drop);
    case FL_USED:
        return HEAD_BYTES + sizeof(struct fl_used);
    case FL_KEPT:
        return HEAD_BYTES + sizeof(struct fl_kept);
    case FL_TEMPLATE:
        return HEAD_BYTES + sizeof(struct fl_template);
    case FL_IDENTITY:
        return HEAD_BYTES + sizeof(struct fl_identity);
    case FL_SANDBOX:
        return HEAD_BYTES + sizeof(struct fl_sandbox);
    case FL_REFUSED:
        return HEAD_BYTES + sizeof(struct error);
    case FL_ENDED:
        return HEAD_BYTES + sizeof(struct fl_ended);
    default:
        return 0;
    }
}

static bool is_from_front(uint32_t type)
{
    return type == FL_READY || type == FL_PREPARE || type == FL_DESTROY || type == FL_DEADLINE || type == FL_REKEY ||
           (type >= FL_ENDING && type <= FL_NETWORK) || type == FL_EVIDENCE;
}

/* Ended by a NUL within its field, and nothing hides behind that. */
static bool is_padded(const char *field, size_t size)
{
    size_t length = strnlen(field, size);
    if (length == size)
        return false;
    for (size_t i = length; i < size; i++) {
        if (field[i] != '\0')
            return false;
    }
    return true;
}

void front_launcher_reason(char to[static FRONT_LAUNCHER_NAME_BYTES], const char *text)
{
    char reason[FRONT_LAUNCHER_NAME_BYTES] = "unknown";
    if (*text)
        snprintf(reason, sizeof reason, "%s", text);
    for (char *at = reason; *at; at++) {
        char one[2] = {*at, 0};
        if (!text_is_made_of(one, 1, REASON_EXTRA))
            *at = '_';
    }
    memcpy(to, reason, sizeof reason);
}

static bool wrong(struct error *err, const char *field)
{
    return error_set(err, ERROR_INVALID, "front_launcher: impossible %s", field);
}

static bool check_id(const char id[static FRONT_LAUNCHER_ID_BYTES], struct error *err)
{
    return (is_padded(id, FRONT_LAUNCHER_ID_BYTES) && random_is_id(id, "sbx")) || wrong(err, "sandbox id");
}

static bool check_name(const char name[static FRONT_LAUNCHER_NAME_BYTES], const char *also, const char *field,
                       struct error *err)
{
    return (is_padded(name, FRONT_LAUNCHER_NAME_BYTES) && text_is_made_of(name, FRONT_LAUNCHER_NAME_BYTES - 1, also)) ||
           wrong(err, field);
}

static bool check_hostname(const char name[static FRONT_LAUNCHER_NAME_BYTES], struct error *err)
{
    if (!check_name(name, "-", "hostname", err))
        return false;
    for (const char *c = name; *c; c++) {
        if (*c >= 'A' && *c <= 'Z')
            return wrong(err, "hostname");
    }
    return true;
}

static bool check_keeping(uint32_t epoch, const char env[static ENV_BYTES], struct error *err)
{
    return (epoch > 0 || wrong(err, "epoch")) && (env_is_whole(env) || wrong(err, "env"));
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0)
            return false;
    }
    return true;
}

/* "" or an id. */
static bool check_snapshot(const char id[static FRONT_LAUNCHER_SNAPSHOT_BYTES], bool needed, struct error *err)
{
    bool is_one = id[0] ? random_is_id(id, "snp") : !needed;
    return (is_padded(id, FRONT_LAUNCHER_SNAPSHOT_BYTES) && is_one) || wrong(err, "snapshot");
}

static bool has_control(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return true;
    }
    return false;
}

/* `path` cut into names by single slashes, none of them "." or "..". */
static bool is_clean(const char *path)
{
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length == 0 || (length == 1 && path[0] == '.') || (length == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += length;
        if (*path == '/' && *++path == '\0')
            return false;
    }
    return true;
}

static bool check_path(const char path[static FRONT_LAUNCHER_PATH_BYTES], const char *field, struct error *err)
{
    bool is_path = is_padded(path, FRONT_LAUNCHER_PATH_BYTES) && path[0] == '/' && is_clean(path + 1);
    return (is_path && !has_control(path)) || wrong(err, field);
}

static bool check_owner(const char owner[static FRONT_LAUNCHER_OWNER_BYTES], struct error *err)
{
    return (is_padded(owner, FRONT_LAUNCHER_OWNER_BYTES) &&
            text_is_made_of(owner, FRONT_LAUNCHER_OWNER_BYTES - 1, "")) ||
           wrong(err, "volume owner");
}

static bool check_volume_name(const char name[static FRONT_LAUNCHER_PATH_BYTES], struct error *err)
{
    return (is_padded(name, FRONT_LAUNCHER_PATH_BYTES) &&
            text_is_made_of(name, FRONT_LAUNCHER_NAME_BYTES - 1, NAME_EXTRA) && name[0] != '.') ||
           wrong(err, "volume name");
}

static bool check_volume(const struct fl_volume *volume, struct error *err)
{
    bool is_host = volume->kind == FL_VOLUME_HOST;
    if ((!is_host && volume->kind != FL_VOLUME_NAMED) || volume->read_only > 1 ||
        !is_zero(volume->reserved, sizeof volume->reserved))
        return wrong(err, "volume");
    if (is_host ? !check_path(volume->source, "volume source", err)
                : !check_owner(volume->owner, err) || !check_volume_name(volume->source, err))
        return false;
    bool is_below = is_padded(volume->sub_path, sizeof volume->sub_path) && is_clean(volume->sub_path) &&
                    !has_control(volume->sub_path);
    return is_below ? check_path(volume->path, "volume path", err) : wrong(err, "volume sub_path");
}

static bool check_volumes(const struct fl_prepare *prepare, struct error *err)
{
    if (prepare->volume_count > FRONT_LAUNCHER_VOLUMES)
        return wrong(err, "count of volumes");
    for (size_t i = 0; i < FRONT_LAUNCHER_VOLUMES; i++) {
        const struct fl_volume *volume = &prepare->volumes[i];
        bool is_right = i < prepare->volume_count
                            ? check_volume(volume, err)
                            : is_zero((const uint8_t *)volume, sizeof *volume) || wrong(err, "volume");
        if (!is_right)
            return false;
    }
    return true;
}

static bool is_net(const struct fl_net *net)
{
    uint32_t behind = net->prefix < 32 ? UINT32_MAX >> net->prefix : 0;
    bool is_protocol = net->protocol == 0 || net->protocol == IPPROTO_TCP || net->protocol == IPPROTO_UDP;
    bool is_range = net->port_from <= net->port_to && (net->port_from > 0 || net->port_to == 0);
    return net->prefix <= 32 && (net->address & behind) == 0 && is_protocol && is_range && net->reserved == 0;
}

/* Small letters alone: what two ends might spell in two ways is no entry. */
static bool is_names(const char names[static FRONT_LAUNCHER_NAMES_BYTES])
{
    if (!is_padded(names, FRONT_LAUNCHER_NAMES_BYTES))
        return false;
    for (const char *c = names; *c; c++) {
        bool is_blank = *c == ' ' && c > names && c[-1] != ' ' && c[1] != '\0';
        if (!is_blank && !(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9') && !strchr(".-_*:", *c))
            return false;
    }
    return true;
}

static bool are_nets(const struct fl_net nets[static FRONT_LAUNCHER_NETS], uint32_t count)
{
    for (size_t i = 0; i < FRONT_LAUNCHER_NETS; i++) {
        if (i < count ? !is_net(&nets[i]) : !is_zero((const uint8_t *)&nets[i], sizeof nets[i]))
            return false;
    }
    return count <= FRONT_LAUNCHER_NETS;
}

static bool check_network(const struct fl_network *network, struct error *err)
{
    bool allows = network->net_count > 0 || network->names[0];
    bool denies = network->denied_count > 0 || network->denied_names[0];
    if (network->mode > FL_NETWORK_ALLOW || network->reserved != 0)
        return wrong(err, "network");
    if (network->mode == FL_NETWORK_NONE && denies)
        return wrong(err, "network: what is denied of nothing");
    if (network->mode != FL_NETWORK_ALLOW && allows && !denies)
        return wrong(err, "network: a list without mode allow");
    if (!are_nets(network->nets, network->net_count) || !are_nets(network->denied, network->denied_count))
        return wrong(err, "net");
    for (size_t i = 0; network->mode == FL_NETWORK_PUBLIC && i < network->net_count; i++) {
        if (network->nets[i].port_to != 0 || network->nets[i].protocol != 0)
            return wrong(err, "net: an exception has no port");
    }
    return (is_names(network->names) && is_names(network->denied_names)) || wrong(err, "names of the network");
}

static bool check_prepare(const struct fl_prepare *prepare, struct error *err)
{
    if (!check_id(prepare->id, err) || !check_hostname(prepare->hostname, err) ||
        !check_name(prepare->template_name, NAME_EXTRA, "template", err) ||
        !check_name(prepare->isolation, NAME_EXTRA, "isolation", err) ||
        !check_keeping(prepare->epoch, prepare->env, err))
        return false;
    if (prepare->root_allowed > 1 || !is_zero(prepare->reserved, sizeof prepare->reserved))
        return wrong(err, "root_allowed");
    return check_snapshot(prepare->snapshot, false, err) && check_volumes(prepare, err) &&
           check_network(&prepare->network, err) && (prepare->deadline_wall_ms > 0 || wrong(err, "deadline"));
}

static bool check_kept(const struct fl_kept *kept, struct error *err)
{
    return check_id(kept->id, err) && check_snapshot(kept->snapshot, true, err) &&
           check_name(kept->template_name, NAME_EXTRA, "template", err) &&
           check_name(kept->storage, NAME_EXTRA, "storage", err);
}

static bool check_template(const struct fl_template *template, struct error *err)
{
    bool is_text = is_padded(template->digest, sizeof template->digest) && !has_control(template->digest) &&
                   is_padded(template->source, sizeof template->source) && !has_control(template->source);
    return check_name(template->name, NAME_EXTRA, "template", err) &&
           ((is_text && template->first <= 1) || wrong(err, "template"));
}

static bool check_identity(const struct fl_identity *identity, struct error *err)
{
    if (!check_name(identity->node, NAME_EXTRA, "node", err) ||
        !check_name(identity->issuer, NAME_EXTRA, "issuer", err))
        return false;
    if (!check_name(identity->storage, NAME_EXTRA, "storage", err))
        return false;
    const char *levels = identity->isolations;
    if (!is_padded(levels, sizeof identity->isolations) ||
        (levels[0] && !text_is_made_of(levels, sizeof identity->isolations - 1, " ._-")))
        return wrong(err, "isolations");
    if (!is_padded(identity->negotiator_url, sizeof identity->negotiator_url))
        return wrong(err, "negotiator_url");
    return (identity->incarnation > 0 && identity->slots_max > 0) || wrong(err, "incarnation");
}

static bool check_sandbox(const struct fl_sandbox *sandbox, struct error *err)
{
    if (!check_id(sandbox->id, err) || !check_hostname(sandbox->hostname, err) ||
        !check_name(sandbox->template_name, NAME_EXTRA, "template", err) ||
        !check_name(sandbox->isolation, NAME_EXTRA, "isolation", err) ||
        !check_name(sandbox->storage, NAME_EXTRA, "storage", err) || !check_keeping(sandbox->epoch, sandbox->env, err))
        return false;
    const char *path = sandbox->socket_path;
    if (!is_padded(path, sizeof sandbox->socket_path) || !text_is_made_of(path, sizeof sandbox->socket_path, "/._") ||
        path[0] == '/' || strstr(path, ".."))
        return wrong(err, "socket_path");
    if (!env_is_whole(sandbox->template_env) || !check_path(sandbox->workdir, "workdir", err))
        return wrong(err, "template's facts");
    if (!check_network(&sandbox->network, err))
        return false;
    bool in_range = sandbox->uid > 0 && sandbox->uid < 65535 && sandbox->gid < 65535 && sandbox->root_allowed <= 1;
    return (in_range && sandbox->init_pid > 0 && sandbox->reused <= 1 && sandbox->was_warm <= 1 &&
            sandbox->is_guest <= 1 && sandbox->is_rootless <= 1 && sandbox->missing_limits <= FL_MISSING_ALL) ||
           wrong(err, "init_pid");
}

static bool check_refused(const struct error *refused, struct error *err)
{
    /* An enum read from the wire: as a number, for any other value is undefined to compare. */
    int kind = 0;
    memcpy(&kind, &refused->kind, sizeof kind);
    if (kind <= ERROR_NONE || kind >= ERROR_KINDS)
        return wrong(err, "error kind");
    return strnlen(refused->message, sizeof refused->message) < sizeof refused->message || wrong(err, "error text");
}

static bool check_body(const struct front_launcher_message *message, struct error *err)
{
    switch (message->type) {
    case FL_PREPARE:
        return check_prepare(&message->as.prepare, err);
    case FL_DESTROY:
    case FL_ENDING:
        return check_id(message->as.destroy.id, err) &&
               check_name(message->as.destroy.reason, REASON_EXTRA, "reason", err);
    case FL_DEADLINE:
        return check_id(message->as.deadline.id, err) &&
               (message->as.deadline.deadline_wall_ms > 0 || wrong(err, "deadline"));
    case FL_LIMITS:
        return check_id(message->as.limits.id, err);
    case FL_NETWORK:
        return check_id(message->as.network.id, err) && check_network(&message->as.network.network, err);
    case FL_USAGE:
        return check_id(message->as.name.id, err);
    case FL_EVIDENCE:
        return check_id(message->as.evidence.id, err) &&
               (message->as.evidence.part == FL_EVIDENCE_PROCESSES || message->as.evidence.part == FL_EVIDENCE_FILES ||
                wrong(err, "part"));
    case FL_USED:
        return check_id(message->as.used.id, err);
    case FL_SNAPSHOT:
        return check_id(message->as.snapshot.id, err) && check_snapshot(message->as.snapshot.snapshot, true, err);
    case FL_SNAPSHOT_DROP:
        return check_snapshot(message->as.snapshot.snapshot, true, err);
    case FL_VOLUME_DROP:
        return check_owner(message->as.volume_drop.owner, err) &&
               check_volume_name(message->as.volume_drop.source, err);
    case FL_KEPT:
        return check_kept(&message->as.kept, err);
    case FL_TEMPLATE:
        return check_template(&message->as.template, err);
    case FL_REKEY: /* the box is bytes: it opens or it does not */
        return message->as.rekey.epoch > 1 || wrong(err, "epoch");
    case FL_IDENTITY:
        return check_identity(&message->as.identity, err);
    case FL_SANDBOX:
        return check_sandbox(&message->as.sandbox, err);
    case FL_REFUSED:
        return check_refused(&message->as.refused, err);
    case FL_ENDED:
        return check_id(message->as.ended.id, err) &&
               check_name(message->as.ended.reason, REASON_EXTRA, "reason", err) &&
               (message->as.ended.epoch > 0 || wrong(err, "epoch"));
    default:
        return true; /* FL_READY, FL_ADOPTED, FL_REKEYED and FL_DONE have no body */
    }
}

bool front_launcher_check(const struct front_launcher_message *message, size_t size, size_t fd_count,
                          enum front_launcher_end sender, struct error *err)
{
    if (size < HEAD_BYTES)
        return error_set(err, ERROR_INVALID, "front_launcher: %zu bytes are no message", size);
    size_t expected = front_launcher_size(message->type);
    if (expected == 0 || expected != size)
        return error_set(err, ERROR_INVALID, "front_launcher: type %u has %zu bytes, not %zu", message->type, expected,
                         size);
    if (is_from_front(message->type) != (sender == FL_FROM_FRONT))
        return error_set(err, ERROR_INVALID, "front_launcher: type %u from the wrong end", message->type);
    bool fds_fit = message->type == FL_EVIDENT ? fd_count == 1
                                               : fd_count == 0 || (message->type == FL_SANDBOX && fd_count == FL_FDS);
    if (!fds_fit)
        return error_set(err, ERROR_INVALID, "front_launcher: type %u with %zu descriptors", message->type, fd_count);
    if (message->reserved != 0)
        return wrong(err, "reserved field");
    return check_body(message, err);
}

bool front_launcher_send(int socket, const struct front_launcher_message *message, const int *fds, size_t fd_count,
                         struct error *err)
{
    size_t size = front_launcher_size(message->type);
    if (size == 0)
        return error_set(err, ERROR_INVALID, "front_launcher: no type %u", message->type);
    return fd_send_message(socket, message, size, fds, fd_count, err);
}

int front_launcher_receive(int socket, struct front_launcher_message *message, enum front_launcher_end sender, int *fds,
                           size_t *fd_count, struct error *err)
{
    int received[FD_MESSAGE_FDS];
    size_t received_count = 0;
    struct front_launcher_message got = {0};
    ssize_t size = fd_receive_message(socket, &got, sizeof got, received, &received_count, err);
    if (size <= 0)
        return size < 0 ? -1 : 0;
    if (!front_launcher_check(&got, (size_t)size, received_count, sender, err)) {
        fd_drop_all(received, received_count);
        explicit_bzero(&got, sizeof got);
        return -1;
    }
    *message = got;
    explicit_bzero(&got, sizeof got); /* it may hold keys */
    if (received_count)
        memcpy(fds, received, sizeof(int) * received_count);
    *fd_count = received_count;
    return 1;
}
