/** node_seal.h - this node's end of the sealed link (shared/node_protocol/DESIGN.md): who it is, its two keys, the
 * numbers that were used. Shared by the node route and the heartbeats; any thread. */
#pragma once

#include "sandboxd/front_launcher/front_launcher.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"
#include "shared/node_protocol/link.h"

#include <jansson.h>
#include <stdint.h>

struct node_seal;

/** Copies the identity. */
struct node_seal *node_seal_new(const struct fl_identity *identity) MUST_USE;
void node_seal_free(struct node_seal *seal);
DEFINE_AUTO(node_seal)

const struct fl_identity *node_seal_identity(const struct node_seal *seal) MUST_USE;

/** Opens a message of the negotiator: for this node and incarnation, its number not seen before, its "time" (when it
 * has one) at most 10 s off `now_ms`. UNAUTHENTICATED, always the same sentence. The caller owns the message. Counts as
 * a contact. */
json_t *node_seal_open(struct node_seal *seal, const void *bytes, size_t size, int64_t now_ms, uint64_t *number,
                       struct error *err) MUST_USE;

/** Opens the reply to our request `number`. */
json_t *node_seal_open_reply(struct node_seal *seal, const void *bytes, size_t size, uint64_t number, int64_t now_ms,
                             struct error *err) MUST_USE;

/** Seals a message; in_reply_to 0: a request. *number (may be NULL) gets its number. The caller frees *bytes. */
bool node_seal_close(struct node_seal *seal, const json_t *message, uint64_t in_reply_to, uint8_t **bytes, size_t *size,
                     uint64_t *number, struct error *err) MUST_USE;

/** UTC ms of the last message or reply of the negotiator; 0: none since this program started. */
int64_t node_seal_contact_ms(const struct node_seal *seal) MUST_USE;
