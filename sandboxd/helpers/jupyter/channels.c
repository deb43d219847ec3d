#include "sandboxd/helpers/jupyter/channels.h"

#include "shared/base/random.h"
#include "shared/base/text.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

enum { RECONNECT_MS = 10, IOPUB_WAITING_MAX = 20000, SEND_WAIT_MS = 5000 };

static bool fail(struct error *err, const char *what)
{
    return error_set(err, ERROR_INTERNAL, "%s: %s", what, zmq_strerror(zmq_errno()));
}

static bool set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool connect_one(struct channels *channels, const struct connection *connection, enum connection_channel channel,
                        struct error *err)
{
    char address[CONNECTION_ADDRESS_BYTES];
    bool is_iopub = channel == CONNECTION_IOPUB;
    int64_t largest = MESSAGE_BYTES_MAX;
    if (!connection_address(connection, channel, address))
        return true; /* a kernel without stdin or control */
    void *socket = zmq_socket(channels->context, is_iopub ? ZMQ_SUB : ZMQ_DEALER);
    if (socket == NULL)
        return fail(err, "make a ZeroMQ socket");
    channels->sockets[channel] = socket;
    bool fine = set(socket, ZMQ_LINGER, 0) && set(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
                set(socket, ZMQ_SNDTIMEO, SEND_WAIT_MS) &&
                zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &largest, sizeof largest) == 0;
    if (is_iopub)
        fine = fine && set(socket, ZMQ_RCVHWM, IOPUB_WAITING_MAX) && zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0) == 0;
    else /* one for all: a kernel asks on stdin whoever asked it on shell */
        fine = fine && zmq_setsockopt(socket, ZMQ_ROUTING_ID, channels->session, strlen(channels->session)) == 0;
    return (fine && zmq_connect(socket, address) == 0) || fail(err, "connect to the kernel");
}

bool channels_open(struct channels *channels, const struct connection *connection, struct error *err)
{
    uint8_t raw[(sizeof channels->session - 1) / 2];
    *channels = (struct channels){.context = zmq_ctx_new()};
    random_bytes(raw, sizeof raw);
    text_hex(channels->session, raw, sizeof raw);
    memcpy(channels->key, connection->key, sizeof channels->key);
    if (channels->context == NULL)
        return fail(err, "start ZeroMQ");
    for (int channel = 0; channel < CONNECTION_HEARTBEAT; channel++)
        if (!connect_one(channels, connection, (enum connection_channel)channel, err)) {
            channels_done(channels);
            return false;
        }
    return true;
}

void channels_done(struct channels *channels)
{
    for (int i = 0; i < CONNECTION_CHANNELS; i++)
        if (channels->sockets[i])
            (void)zmq_close(TAKE(channels->sockets[i]));
    if (channels->context)
        (void)zmq_ctx_term(TAKE(channels->context));
}

bool channels_send(struct channels *channels, enum connection_channel channel, const char *type, const json_t *content,
                   char id[static MESSAGE_ID_BYTES], struct error *err)
{
    void *socket = channels->sockets[channel];
    struct message_made made;
    if (socket == NULL)
        return error_set(err, ERROR_INTERNAL, "the kernel has no such channel for %s", type);
    message_make(type, channels->session, NULL, content, channels->key, &made);
    memcpy(id, made.id, sizeof made.id);
    bool fine = true;
    for (size_t i = 0; i < MESSAGE_HEAD_PARTS && fine; i++) {
        int more = i + 1 < MESSAGE_HEAD_PARTS ? ZMQ_SNDMORE : 0;
        do {
            fine = zmq_send(socket, made.parts[i], strlen(made.parts[i]), more) >= 0;
        } while (!fine && zmq_errno() == EINTR);
    }
    message_made_done(&made);
    return fine || fail(err, "send to the kernel");
}

/* ---- in ---- */

struct received {
    zmq_msg_t parts[MESSAGE_PARTS_MAX];
    size_t count, bytes;
    bool is_cut; /* more parts than that, or more bytes */
};

/* One part: a message is there whole or not at all. Behind one that does not fit, none is kept. */
static bool take_part(void *socket, struct received *received, bool *more)
{
    zmq_msg_t beyond;
    bool has_room = !received->is_cut && received->count < MESSAGE_PARTS_MAX;
    zmq_msg_t *part = has_room ? &received->parts[received->count] : &beyond;
    int got;
    (void)zmq_msg_init(part);
    do {
        got = zmq_msg_recv(part, socket, ZMQ_DONTWAIT);
    } while (got < 0 && zmq_errno() == EINTR);
    *more = got >= 0 && zmq_msg_more(part);
    if (got >= 0 && has_room && received->bytes + zmq_msg_size(part) <= MESSAGE_BYTES_MAX) {
        received->bytes += zmq_msg_size(part);
        received->count++;
        return true;
    }
    received->is_cut = received->is_cut || got >= 0;
    (void)zmq_msg_close(part);
    return got >= 0;
}

static bool take_message(void *socket, struct received *received)
{
    bool more = false;
    if (!take_part(socket, received, &more))
        return false;
    while (more && take_part(socket, received, &more)) {
    }
    return true;
}

static enum channels_result read_message(struct channels *channels, struct received *received, struct message *to,
                                         struct error *err)
{
    struct message_part parts[MESSAGE_PARTS_MAX];
    for (size_t i = 0; i < received->count; i++)
        parts[i] = (struct message_part){zmq_msg_data(&received->parts[i]), zmq_msg_size(&received->parts[i])};
    bool fine = message_parse(parts, received->count, channels->key, to, err);
    if (!fine && received->is_cut && received->count < MESSAGE_PARTS_MAX)
        error_set(err, ERROR_TOO_LARGE, "a message of more than %d MiB", MESSAGE_BYTES_MAX >> 20);
    for (size_t i = 0; i < received->count; i++)
        (void)zmq_msg_close(&received->parts[i]);
    return fine ? CHANNELS_MESSAGE : CHANNELS_DROPPED;
}

enum channels_result channels_receive(struct channels *channels, enum connection_channel channel, struct message *to,
                                      struct error *err)
{
    struct received received;
    received.count = received.bytes = 0;
    received.is_cut = false;
    if (channels->sockets[channel] == NULL || !take_message(channels->sockets[channel], &received))
        return CHANNELS_NOTHING;
    return read_message(channels, &received, to, err);
}
