/* link_fuzz.c - a link message as hostile bytes: the head as it comes, and the same bytes sealed rightly, so that the
 * JSON behind the MAC is reached as well. */
#include "shared/node_protocol/link.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t KEY[LINK_KEY_BYTES] = {1, 2, 3};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

/* `data` as a peer that holds the key would seal it, with `clear` bytes of it as the head and nonce. */
static void open_sealed(const uint8_t *data, size_t size, size_t clear, struct link_window *window)
{
    size_t total = size + crypto_aead_xchacha20poly1305_ietf_ABYTES;
    uint8_t *bytes = malloc(total);
    if (bytes == NULL)
        abort();
    memcpy(bytes, data, clear);
    size_t head = clear - crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
    crypto_aead_xchacha20poly1305_ietf_encrypt(bytes + clear, NULL, data + clear, size - clear, bytes, head, NULL,
                                               bytes + head, KEY);
    struct link_head seen = {0};
    struct error err = {0};
    json_t *message = link_open(KEY, bytes, total, &seen, &err);
    if (message == NULL && err.kind != ERROR_INVALID)
        abort(); /* the MAC is right */
    if (message && link_window_accept(window, &seen, &err) && link_window_accept(window, &seen, &err))
        abort(); /* twice */
    json_decref(message);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct link_window window = {0};
    struct link_head head = {0};
    struct error err = {0};
    json_t *message = link_open(KEY, data, size, &head, &err);
    if (message != NULL || err.kind == ERROR_NONE)
        abort(); /* nobody guesses a MAC */
    if (!link_peek(data, size, &head, &err))
        return 0;
    if (strlen(head.node) == 0 || head.number == 0)
        abort();
    open_sealed(data, size, 5 + strlen(head.node) + 24 + 24, &window);
    return 0;
}
