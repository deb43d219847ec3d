/** link.h - the sealed envelope between negotiator and sandboxd (protocol.md, 8): XChaCha20-Poly1305 under the link key
 *  of its direction; associated data: node, incarnation, number, and in a reply the request's number. */
#pragma once

#include "shared/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINK_MESSAGE_MAX_BYTES 4194304 /* 4 MiB, sealed */
#define LINK_NODE_BYTES        64
#define LINK_KEY_BYTES         32

/** What names one message. On the wire in clear before the sealed bytes, and bound as associated data:
 *  "PL1" | u8 kind (0 request, 1 reply) | u8 node length | node | u64 incarnation | u64 number | u64 in_reply_to |
 *  24 nonce | sealed JSON; integers big-endian. */
struct link_head {
    char node[LINK_NODE_BYTES]; /* 1..63 of [A-Za-z0-9._-] and a NUL */
    uint64_t incarnation; /* of the node, in both directions: a counter it makes durable at each start of its front */
    uint64_t number;      /* raised by one for each message of this sender and node; the negotiator starts at
                             (wall clock ms at its start) << 20, so that it never repeats one after a restart */
    uint64_t in_reply_to; /* 0 in a request */
};

/** Seals `message` (an object or array, borrowed). The caller frees *bytes. ERROR_INVALID, ERROR_TOO_LARGE (more than
 *  LINK_MESSAGE_MAX_BYTES sealed). */
bool link_seal(const uint8_t key[static LINK_KEY_BYTES], const struct link_head *head, const json_t *message,
               uint8_t **bytes, size_t *size, struct error *err) MUST_USE;

/** Reads the clear head, so that the receiver can choose the key. Nothing of it is believed yet. ERROR_INVALID. */
bool link_peek(const uint8_t *bytes, size_t size, struct link_head *head, struct error *err) MUST_USE;

/** Opens: the same head, and the message. ERROR_UNAUTHENTICATED when anything was changed or the key is another,
 *  ERROR_INVALID when it has not the form of a link message. The caller owns the message. */
json_t *link_open(const uint8_t key[static LINK_KEY_BYTES], const uint8_t *bytes, size_t size, struct link_head *head,
                  struct error *err) MUST_USE;

/** Accepts each number once, in any order within a window of 1024; older ones are refused (RFC 6479). Starts zeroed.
 *  A higher incarnation starts anew; a lower one is refused. Ask only after link_open: it believes the head.
 *  ERROR_CONFLICT when refused, and the window is as it was. Not locked. */
struct link_window {
    uint64_t incarnation, highest;
    uint64_t bits[16];
};
bool link_window_accept(struct link_window *window, const struct link_head *head, struct error *err) MUST_USE;
