/** message.h - one message of the Jupyter messaging protocol 5.3 (jupyter-client.readthedocs.io, "Messaging"): parts of
 * a ZeroMQ message to a checked value and back. What a kernel sends is user code's, so: signature first, then sizes,
 * depth and count of values, then JSON. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define MESSAGE_KEY_BYTES  64                 /* of the connection's key: hex, no NUL */
#define MESSAGE_ID_BYTES   129                /* ids longer than 128 bytes are nobody's */
#define MESSAGE_PARTS_MAX  24                 /* kept of one message; further ones are buffers */
#define MESSAGE_BYTES_MAX  (64 * 1024 * 1024) /* of the parts that are kept, together; of any one part */
#define MESSAGE_DEPTH_MAX  128                /* arrays and objects in one another */
#define MESSAGE_VALUES_MAX 90000              /* values in one part: the front takes frames of about 100,000 */
#define MESSAGE_HEAD_PARTS 6                  /* of what is sent: delimiter, signature, four dictionaries */

struct message_part {
    const void *data;
    size_t size;
};

struct message {
    char type[64];                 /* "status", "execute_reply" ... */
    char parent[MESSAGE_ID_BYTES]; /* msg_id of the request it answers; "" for none */
    json_t *content;               /* an object, owned */
    json_t *transient;             /* of `content`, borrowed; may be NULL */
};

/** Takes a message apart: identities or a topic, "<IDS|MSG>", signature, header, parent header, metadata, content. `to`
 *  is then released with message_done. FORBIDDEN: the signature is not by this key; INVALID or TOO_LARGE: it is, and
 *  what was signed is not a message. */
bool message_parse(const struct message_part *parts, size_t count, const char key[static MESSAGE_KEY_BYTES],
                   struct message *to, struct error *err) MUST_USE;
void message_done(struct message *message);

/** What is to be sent; texts are owned. */
struct message_made {
    char id[MESSAGE_ID_BYTES]; /* the msg_id it was given */
    char *parts[MESSAGE_HEAD_PARTS];
};

/** A signed request. `parent` NULL but for an answer to a kernel's own request; `content` stays the caller's. */
void message_make(const char *type, const char *session, const json_t *parent, const json_t *content,
                  const char key[static MESSAGE_KEY_BYTES], struct message_made *to);
void message_made_done(struct message_made *made);

/** A JSON object in a kernel's text, which need not be UTF-8: what is not is U+FFFD, as are lone surrogates; integers
 *  beyond 64 bits become reals. NULL: INVALID or TOO_LARGE. The caller decrefs. */
json_t *message_read_object(const char *text, size_t size, struct error *err) MUST_USE;
