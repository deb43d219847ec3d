#include "shared/node_protocol/link.h"

#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <sodium.h>
#include <string.h>

enum {
    MAGIC_BYTES = 3,
    BEFORE_NODE_BYTES = MAGIC_BYTES + 2, /* then kind and node length */
    NUMBERS_BYTES = 3 * 8,               /* incarnation, number, in_reply_to */
    NONCE_BYTES = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
    MAC_BYTES = crypto_aead_xchacha20poly1305_ietf_ABYTES,
    WINDOW = 1024 /* bits in struct link_window */
};
_Static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == LINK_KEY_BYTES, "link.h says 32");

static const char MAGIC[] = "PL1";

/* The head is the associated data; nonce and sealed message follow it. */
static size_t head_bytes(const char *node)
{
    return BEFORE_NODE_BYTES + strlen(node) + NUMBERS_BYTES;
}

static uint8_t *put_u64(uint8_t *to, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(value >> (56 - 8 * i));
    return to + 8;
}

static uint64_t get_u64(const uint8_t *from)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | from[i];
    return value;
}

static bool is_node_name(const char *node)
{
    return text_is_made_of(node, LINK_NODE_BYTES - 1, "-_.");
}

static void put_head(uint8_t *to, const struct link_head *head)
{
    size_t node_length = strlen(head->node);
    memcpy(to, MAGIC, MAGIC_BYTES);
    to[MAGIC_BYTES] = head->in_reply_to != 0;
    to[MAGIC_BYTES + 1] = (uint8_t)node_length;
    memcpy(to + BEFORE_NODE_BYTES, head->node, node_length);
    uint8_t *numbers = to + BEFORE_NODE_BYTES + node_length;
    numbers = put_u64(numbers, head->incarnation);
    numbers = put_u64(numbers, head->number);
    put_u64(numbers, head->in_reply_to);
}

bool link_seal(const uint8_t key[static LINK_KEY_BYTES], const struct link_head *head, const json_t *message,
               uint8_t **bytes, size_t *size, struct error *err)
{
    if (memchr(head->node, '\0', LINK_NODE_BYTES) == NULL || !is_node_name(head->node) || head->number == 0)
        return error_set(err, ERROR_INVALID, "a link message needs a node name and a number");
    if (sodium_init() < 0)
        return error_set(err, ERROR_INTERNAL, "libsodium does not start");
    size_t clear = head_bytes(head->node);
    size_t length = json_dumpb(message, NULL, 0, JSON_COMPACT);
    if (length == 0)
        return error_set(err, ERROR_INVALID, "a link message must be a JSON object or array");
    size_t total = clear + NONCE_BYTES + length + MAC_BYTES;
    if (length > LINK_MESSAGE_MAX_BYTES || total > LINK_MESSAGE_MAX_BYTES)
        return error_set(err, ERROR_TOO_LARGE, "a link message of %zu bytes; at most %d", total,
                         LINK_MESSAGE_MAX_BYTES);
    AUTO_FREE uint8_t *sealed = memory_new(total);
    put_head(sealed, head);
    uint8_t *nonce = sealed + clear;
    random_bytes(nonce, NONCE_BYTES);
    /* Encrypted where it was written: the plain text, which may hold keys, is never elsewhere in our memory. */
    uint8_t *text = nonce + NONCE_BYTES;
    json_dumpb(message, (char *)text, length, JSON_COMPACT);
    crypto_aead_xchacha20poly1305_ietf_encrypt(text, NULL, text, length, sealed, clear, NULL, nonce, key);
    *bytes = TAKE(sealed);
    *size = total;
    return true;
}

bool link_peek(const uint8_t *bytes, size_t size, struct link_head *head, struct error *err)
{
    if (size > LINK_MESSAGE_MAX_BYTES)
        return error_set(err, ERROR_INVALID, "a link message of more than %d bytes", LINK_MESSAGE_MAX_BYTES);
    if (size < BEFORE_NODE_BYTES || memcmp(bytes, MAGIC, MAGIC_BYTES) != 0)
        return error_set(err, ERROR_INVALID, "not a link message of version 1");
    size_t node_length = bytes[MAGIC_BYTES + 1];
    if (node_length >= LINK_NODE_BYTES ||
        size < BEFORE_NODE_BYTES + node_length + NUMBERS_BYTES + NONCE_BYTES + MAC_BYTES)
        return error_set(err, ERROR_INVALID, "a link message that is cut short");
    struct link_head seen = {0};
    memcpy(seen.node, bytes + BEFORE_NODE_BYTES, node_length);
    if (!is_node_name(seen.node) || strlen(seen.node) != node_length)
        return error_set(err, ERROR_INVALID, "a link message with a bad node name");
    const uint8_t *numbers = bytes + BEFORE_NODE_BYTES + node_length;
    seen.incarnation = get_u64(numbers);
    seen.number = get_u64(numbers + 8);
    seen.in_reply_to = get_u64(numbers + 16);
    if (bytes[MAGIC_BYTES] != (seen.in_reply_to != 0) || seen.number == 0)
        return error_set(err, ERROR_INVALID, "a link message that is neither request nor reply");
    *head = seen;
    return true;
}

json_t *link_open(const uint8_t key[static LINK_KEY_BYTES], const uint8_t *bytes, size_t size, struct link_head *head,
                  struct error *err)
{
    struct link_head seen;
    if (!link_peek(bytes, size, &seen, err))
        return NULL;
    if (sodium_init() < 0) {
        error_set(err, ERROR_INTERNAL, "libsodium does not start");
        return NULL;
    }
    size_t clear = head_bytes(seen.node);
    const uint8_t *nonce = bytes + clear;
    const uint8_t *sealed = nonce + NONCE_BYTES;
    size_t sealed_size = size - clear - NONCE_BYTES;
    AUTO_FREE uint8_t *text = memory_new(sealed_size);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(text, NULL, NULL, sealed, sealed_size, bytes, clear, nonce, key) !=
        0) {
        error_set(err, ERROR_UNAUTHENTICATED, "the link message does not open");
        return NULL;
    }
    json_t *message = json_loadb((const char *)text, sealed_size - MAC_BYTES, JSON_REJECT_DUPLICATES, NULL);
    sodium_memzero(text, sealed_size);
    if (message == NULL) {
        error_set(err, ERROR_INVALID, "the link message is not a JSON object or array");
        return NULL;
    }
    *head = seen;
    return message;
}

/* Number n has bit n % WINDOW; the bits are those of the WINDOW numbers up to `highest`. */
static uint64_t *word_of(struct link_window *window, uint64_t number)
{
    return &window->bits[number % WINDOW / 64];
}

static uint64_t bit_of(uint64_t number)
{
    return (uint64_t)1 << number % 64;
}

bool link_window_accept(struct link_window *window, const struct link_head *head, struct error *err)
{
    _Static_assert(sizeof window->bits * 8 == WINDOW, "a bit a number");
    if (head->number == 0)
        return error_set(err, ERROR_INVALID, "link numbers start at 1");
    if (head->incarnation < window->incarnation)
        return error_set(err, ERROR_CONFLICT, "a link message of an earlier incarnation");
    if (head->incarnation > window->incarnation)
        *window = (struct link_window){.incarnation = head->incarnation};
    if (head->number > window->highest) {
        uint64_t steps = head->number - window->highest;
        if (steps >= WINDOW)
            memset(window->bits, 0, sizeof window->bits);
        for (uint64_t i = 1; steps < WINDOW && i <= steps; i++)
            *word_of(window, window->highest + i) &= ~bit_of(window->highest + i);
        window->highest = head->number;
    }
    if (window->highest - head->number >= WINDOW)
        return error_set(err, ERROR_CONFLICT, "a link message that is too old");
    if (*word_of(window, head->number) & bit_of(head->number))
        return error_set(err, ERROR_CONFLICT, "a link message that came before");
    *word_of(window, head->number) |= bit_of(head->number);
    return true;
}
