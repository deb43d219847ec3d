/* enrol_fuzz.c - what a stranger sends to be enrolled, what somebody in between answers, what a front hands to the
 * launcher as a re-keying; and the same bytes in a box that opens, so that the grant inside is reached as well. */
#include "shared/node_protocol/enrol.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

enum { PLAIN_BYTES = ENROL_BOX_BYTES - crypto_box_MACBYTES };

static struct enrol_pair negotiator, node;
static uint8_t negotiator_hash[ENROL_HASH_BYTES], bound[ENROL_HASH_BYTES];

static void start(void)
{
    static const struct key MASTER = {.bytes = {1, 2, 3}};
    static const uint8_t SEED[crypto_box_SEEDBYTES] = {4, 5, 6};
    if (sodium_init() < 0)
        abort();
    enrol_negotiator_pair(&negotiator, &MASTER);
    enrol_negotiator_hash(&negotiator, negotiator_hash);
    crypto_box_seed_keypair(node.public_key, node.secret_key.bytes, SEED);
    enrol_rekey_bound(bound, "n1", 1, 2);
}

/* Whatever opened may be a file's name and a token's issuer. */
static void check_grant(const struct enrol_grant *grant)
{
    if (grant->epoch == 0 || strlen(grant->node) >= sizeof grant->node || strchr(grant->node, '/') ||
        strlen(grant->deployment) >= sizeof grant->deployment || strchr(grant->deployment, '\n'))
        abort();
}

static void read_json(const uint8_t *data, size_t size)
{
    struct enrol_request request;
    struct enrol_box box;
    struct enrol_grant grant;
    struct error err = {0};
    struct key secret = {.bytes = {7}};
    json_t *json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (enrol_read(&request, json, &err) && enrol_is_proved(&request, &secret))
        abort(); /* nobody has it */
    if (enrol_box_read(&box, json, &err) && enrol_box_open(&grant, &box, negotiator_hash, &node, bound, &err))
        abort(); /* nor the negotiator's secret key */
    if (enrol_open(&grant, json, negotiator_hash, &node, bound, &err))
        abort();
    json_decref(json);
}

static void read_token(const uint8_t *data, size_t size)
{
    struct join_token token;
    struct error err = {0};
    char text[ENROL_TOKEN_BYTES], *given = malloc(size + 1);
    if (given == NULL)
        abort();
    memcpy(given, data, size);
    given[size] = '\0';
    if (join_token_parse(&token, given, &err)) {
        join_token_format(&token, text);
        if (strcmp(text, given) != 0)
            abort(); /* two ways to write one token */
        join_token_done(&token);
    }
    free(given);
}

static void open_sealed(const uint8_t *data, size_t size)
{
    struct enrol_box box = {.nonce = {9}};
    struct enrol_grant grant;
    struct error err = {0};
    uint8_t plain[PLAIN_BYTES] = {0};
    memcpy(plain, data, size < PLAIN_BYTES ? size : PLAIN_BYTES);
    memcpy(plain + PLAIN_BYTES - sizeof bound, bound, sizeof bound);
    memcpy(box.public_key, negotiator.public_key, sizeof box.public_key);
    if (crypto_box_easy(box.box, plain, sizeof plain, box.nonce, node.public_key, negotiator.secret_key.bytes) != 0)
        abort();
    if (enrol_box_open(&grant, &box, negotiator_hash, &node, bound, &err))
        check_grant(&grant);
    else if (err.kind != ERROR_UNAUTHENTICATED)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    if (!started)
        start();
    started = true;
    read_json(data, size);
    read_token(data, size);
    open_sealed(data, size);
    return 0;
}
