/** tls_keeper.h - a process that keeps the right to read a certificate and its key when its parent gives up its own,
 *  and sends both whenever they changed. It looks at files and understands nothing of them; nothing is ever sent to it.
 */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** What is sent, one message each (SOCK_SEQPACKET): this, then the bytes of both. Sizes of 0: they cannot be read. */
struct tls_keeper_head {
    size_t cert_size, key_size;
};

/** Both files, whole. `cert` and `key` get memory of the caller's (the key's to be wiped). ERROR_NOT_FOUND,
 *  ERROR_INVALID, ERROR_TOO_LARGE, ERROR_INTERNAL. */
bool tls_keeper_read(const char *cert_path, const char *key_path, char **cert, size_t *cert_size, char **key,
                     size_t *key_size, struct error *err) MUST_USE;

struct tls_keeper {
    int socket; /* non-blocking; the messages come here. -1: none */
    pid_t process;
};

/** Starts it: by fork, so before threads start. It ends when the socket is closed, or its parent is gone.
 * ERROR_INTERNAL.
 */
bool tls_keeper_start(const char *cert_path, const char *key_path, struct tls_keeper *keeper,
                      struct error *err) MUST_USE;

/** Ends it and waits for that; a zeroed one is none. */
void tls_keeper_stop(struct tls_keeper *keeper);
