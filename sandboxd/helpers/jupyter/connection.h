/** connection.h - where a kernel and the bridge meet: a private folder with the connection file and, for ipc, the
 * sockets; five free ports of 127.0.0.1 for tcp. */
#pragma once

#include "sandboxd/helpers/jupyter/message.h"

#include <stdbool.h>
#include <stdint.h>

enum connection_channel {
    CONNECTION_SHELL,
    CONNECTION_IOPUB,
    CONNECTION_STDIN,
    CONNECTION_CONTROL,
    CONNECTION_HEARTBEAT,
    CONNECTION_CHANNELS
};

#define CONNECTION_ADDRESS_BYTES 128

struct connection {
    char folder[64]; /* ours alone, 0700; "" when there is none */
    char file[96];
    char key[MESSAGE_KEY_BYTES + 1];
    int lock; /* of the file: who can take it knows that its bridge is gone */
    bool is_tcp;
    uint16_t ports[CONNECTION_CHANNELS]; /* 1.. for ipc: the sockets' numbers */
};

#define CONNECTION_NONE ((struct connection){.lock = -1})

/** Makes folder, key and file (0600) below the first of $TMPDIR, /tmp, /dev/shm, $HOME that takes them, and removes
 * what bridges that were killed have left there. */
bool connection_make(struct connection *connection, bool tcp, const char *kernel_name, struct error *err) MUST_USE;

/** Removes the folder with all that is in it. */
void connection_done(struct connection *connection);

/** What to connect a socket to. False for ipc while the kernel has not made that socket: kernels put a dash or a colon
 *  before its number. */
bool connection_address(const struct connection *connection, enum connection_channel channel,
                        char to[static CONNECTION_ADDRESS_BYTES]) MUST_USE;
