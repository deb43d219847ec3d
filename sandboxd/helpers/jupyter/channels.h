/** channels.h - the sockets to a kernel: DEALER for shell, control and stdin, SUB for iopub. Of one thread. */
#pragma once

#include "sandboxd/helpers/jupyter/connection.h"
#include "sandboxd/helpers/jupyter/message.h"

#include <stdbool.h>

struct channels {
    void *context;
    void *sockets[CONNECTION_CHANNELS]; /* none for the heartbeat: the kernel is our child, its end is seen at once */
    char key[MESSAGE_KEY_BYTES];
    char session[33];
};

/** Connects to a kernel whose shell and iopub have addresses. Makes libzmq's threads. */
bool channels_open(struct channels *channels, const struct connection *connection, struct error *err) MUST_USE;

/** NULLs are allowed. What was not sent is dropped. */
void channels_done(struct channels *channels);

/** Sends a request; its msg_id into `id`. False: the kernel takes no more. */
bool channels_send(struct channels *channels, enum connection_channel channel, const char *type, const json_t *content,
                   char id[static MESSAGE_ID_BYTES], struct error *err) MUST_USE;

enum channels_result {
    CHANNELS_NOTHING, /* no message is there */
    CHANNELS_MESSAGE, /* `to` is released with message_done */
    CHANNELS_DROPPED  /* one was there that is not to be believed; err says why */
};

/** The next message without waiting. */
enum channels_result channels_receive(struct channels *channels, enum connection_channel channel, struct message *to,
                                      struct error *err) MUST_USE;
