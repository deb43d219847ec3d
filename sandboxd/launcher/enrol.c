#include "sandboxd/launcher/enrol.h"

#include "sandboxd/launcher/house.h"
#include "sandboxd/launcher/identity.h"
#include "shared/base/config.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/node_protocol/node_call.h"
#include "shared/trust/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ANSWER_WITHIN_MS = 20000 };

static const char TOKEN_VARIABLE[] = "PARLEY_JOIN_TOKEN";
static const char HELP[] =
    "usage: parley-sandboxd enrol --negotiator-url URL [--node NAME] [--join-token-file FILE] [--state DIR]\n"
    "           [--tls-ca FILE | --tls-fingerprint SHA256]\n\n"
    "Gives this machine its key: STATE/sandboxd/node.json (0600). The join token, made by `parley nodes add NAME` for\n"
    "that NAME, is read from FILE, else from PARLEY_JOIN_TOKEN. No sandboxd may be running on STATE. For an https URL\n"
    "sandboxd itself needs the same tls_ca or tls_fingerprint in STATE/config.json.\n\n";

struct enrol_settings {
    char *state, *node, *negotiator_url, *join_token_file, *tls_ca, *tls_fingerprint;
};

static const struct config_row ROWS[] = {
    {"state", CONFIG_TEXT, offsetof(struct enrol_settings, state), NULL, 0, 0, "folder of all state"},
    {"node", CONFIG_TEXT, offsetof(struct enrol_settings, node), "n1", 0, 0,
     "its name, as the join token was made for"},
    {"negotiator_url", CONFIG_TEXT, offsetof(struct enrol_settings, negotiator_url), "http://127.0.0.1:8700", 0, 0,
     "where the negotiator is"},
    {"join_token_file", CONFIG_TEXT, offsetof(struct enrol_settings, join_token_file), NULL, 0, 0,
     "holds the join token; else PARLEY_JOIN_TOKEN"},
    {"tls_ca", CONFIG_TEXT, offsetof(struct enrol_settings, tls_ca), NULL, 0, 0,
     "file of authorities (PEM) that vouch for the negotiator; the system's"},
    {"tls_fingerprint", CONFIG_TEXT, offsetof(struct enrol_settings, tls_fingerprint), NULL, 0, 0,
     "SHA-256 of the negotiator's certificate or its authority"},
};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS };

static void enrol_settings_done(struct enrol_settings *settings)
{
    config_done(settings, ROWS, ROW_COUNT);
}

/* One enrolment. */
struct enrolment {
    const struct enrol_settings *settings;
    char *folder, *node_file, *pair_file;
    struct join_token token;
    struct identity identity;
};

static void enrolment_done(struct enrolment *enrolment)
{
    free(enrolment->folder);
    free(enrolment->node_file);
    free(enrolment->pair_file);
    join_token_done(&enrolment->token);
    identity_done(&enrolment->identity);
}

/* --- the token --- */

static bool parse_token(struct join_token *token, char *text, struct error *err)
{
    text[strcspn(text, "\r\n \t")] = '\0';
    bool parsed = join_token_parse(token, text, err);
    sodium_memzero(text, strlen(text));
    return parsed;
}

static bool read_token(struct join_token *token, const char *file, struct error *err)
{
    char *given = getenv(TOKEN_VARIABLE);
    AUTO_FREE char *text = NULL;
    if (file)
        text = fd_read_file(file, 4096, NULL, err);
    else if (given)
        text = memory_string(given);
    else
        return error_set(err, ERROR_INVALID, "no join token: give --join-token-file FILE, or set %s", TOKEN_VARIABLE);
    if (given)
        sodium_memzero(given, strlen(given));
    return text && parse_token(token, text, err);
}

/* --- the folder and the pair --- */

static bool read_pair(struct enrol_pair *pair, const char *path)
{
    size_t size = 0;
    char *bytes = fd_read_file(path, KEY_BYTES, &size, NULL);
    bool whole = bytes && size == KEY_BYTES && crypto_scalarmult_base(pair->public_key, (uint8_t *)bytes) == 0;
    if (whole)
        memcpy(pair->secret_key.bytes, bytes, KEY_BYTES);
    if (bytes)
        sodium_memzero(bytes, size);
    free(bytes);
    return whole;
}

/* The pair of an enrolment that was not finished, or of this node as it is: who enrols again is known again. */
static bool get_pair(struct enrolment *enrolment, struct error *err)
{
    struct enrol_pair *pair = &enrolment->identity.pair;
    AUTO_IDENTITY former = {.epoch = 0};
    if (read_pair(pair, enrolment->pair_file))
        return true;
    if (identity_read(&former, enrolment->node_file, NULL) && former.has_pair &&
        strcmp(former.node, enrolment->settings->node) == 0) {
        *pair = former.pair;
        return true;
    }
    enrol_node_pair(pair);
    return fd_write_file(enrolment->pair_file, 0600, pair->secret_key.bytes, KEY_BYTES, err);
}

/* --- asking --- */

static bool call(const char *negotiator_url, const json_t *asked, json_t **answer, struct error *err)
{
    AUTO(node_caller) *caller = node_caller_new();
    size_t length = strlen(negotiator_url);
    bool slash = length > 0 && negotiator_url[length - 1] == '/';
    AUTO_FREE char *url = memory_printf("%s%snode/v1/enrol", negotiator_url, slash ? "" : "/");
    AUTO_FREE char *body = json_dumps(asked, JSON_COMPACT);
    AUTO_FREE uint8_t *reply = NULL;
    size_t size = 0;
    if (!node_call(caller, url, body, strlen(body), ANSWER_WITHIN_MS, &reply, &size, err))
        return false;
    *answer = json_loadb((const char *)reply, size, JSON_REJECT_DUPLICATES, NULL);
    return *answer || error_set(err, ERROR_INVALID, "%.100s answered with something else than JSON", url);
}

static bool ask(struct enrolment *enrolment, struct error *err)
{
    struct identity *identity = &enrolment->identity;
    struct enrol_request request;
    AUTO_ENROL_GRANT grant = {.epoch = 0};
    json_t *answer = NULL;
    json_t *asked = enrol_ask(&enrolment->token, enrolment->settings->node, &identity->pair, &request, err);
    bool opened =
        asked && call(enrolment->settings->negotiator_url, asked, &answer, err) &&
        enrol_open(&grant, answer, enrolment->token.negotiator_hash, &identity->pair, request.transcript, err);
    json_decref(asked);
    json_decref(answer);
    if (!opened)
        return false;
    if (strcmp(grant.node, request.node) != 0)
        return error_set(err, ERROR_UNAUTHENTICATED, "the answer is for another node");
    memcpy(identity->node, grant.node, sizeof identity->node);
    memcpy(identity->deployment, grant.deployment, sizeof identity->deployment);
    memcpy(identity->negotiator_hash, enrolment->token.negotiator_hash, sizeof identity->negotiator_hash);
    identity->node_key = grant.node_key;
    identity->epoch = grant.epoch;
    identity->has_pair = true;
    return text_copy(identity->negotiator_url, sizeof identity->negotiator_url, enrolment->settings->negotiator_url) ||
           error_set(err, ERROR_INVALID, "negotiator_url is longer than 255");
}

static bool enrol(struct enrolment *enrolment, struct error *err)
{
    const struct enrol_settings *settings = enrolment->settings;
    AUTO_FD int lock = -1;
    if (!text_starts_with(settings->negotiator_url, "http://") &&
        !text_starts_with(settings->negotiator_url, "https://"))
        return error_set(err, ERROR_INVALID, "negotiator_url must begin with http:// or https://");
    if (!trust_set(settings->tls_ca, settings->tls_fingerprint, err) || !read_token(&enrolment->token, settings->join_token_file, err) ||
        !fd_make_folders(settings->state, 0711, err) || !fd_make_folders(enrolment->folder, 0711, err) ||
        !house_lock(enrolment->folder, &lock, err) || !get_pair(enrolment, err) || !ask(enrolment, err) ||
        !identity_write(&enrolment->identity, enrolment->node_file, err))
        return false;
    unlink(enrolment->pair_file);
    return true;
}

static bool enrol_settings_load(struct enrol_settings *settings, int argc, char *argv[], struct error *err)
{
    if (!config_load(settings, ROWS, ROW_COUNT, NULL, NULL, argc, argv, err))
        return false;
    free(settings->state);
    settings->state = config_state_folder(argc, argv);
    char *cert = NULL, *key = NULL;
    config_default_tls(settings->state, &cert, &key, &settings->tls_ca);
    free(cert);
    free(key);
    return true;
}

int enrol_main(int argc, char *argv[])
{
    __attribute__((cleanup(enrol_settings_done))) struct enrol_settings settings = {0};
    __attribute__((cleanup(enrolment_done))) struct enrolment enrolment = {.settings = &settings};
    struct error err = {0};
    if (argc > 0 && text_equal(argv[0], "--help")) {
        fputs(HELP, stdout);
        config_print_help(stdout, ROWS, ROW_COUNT);
        return 0;
    }
    umask(0077);
    signal(SIGPIPE, SIG_IGN);
    keys_start();
    if (!enrol_settings_load(&settings, argc, argv, &err)) {
        fprintf(stderr, "parley-sandboxd enrol: %s\n", err.message);
        return 2;
    }
    enrolment.folder = memory_printf("%s/sandboxd", settings.state);
    enrolment.node_file = memory_printf("%s/node.json", enrolment.folder);
    enrolment.pair_file = memory_printf("%s/enrolling", enrolment.folder);
    if (enrol(&enrolment, &err)) {
        printf("node %s enrolled in %s\n", enrolment.identity.node, enrolment.node_file);
        return 0;
    }
    fprintf(stderr, "parley-sandboxd enrol: %s\n", err.message);
    return err.kind == ERROR_INVALID ? 2 : 1;
}
