#include "sandboxd/launcher/identity.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MAX_BYTES = 65536 };

static bool wrong(struct error *err, const char *path, const char *field, const char *allowed)
{
    return error_set(err, ERROR_INVALID, "%s: %s must be %s", path, field, allowed);
}

static bool read_name(const json_t *root, const char *field, char to[static FRONT_LAUNCHER_NAME_BYTES],
                      const char *path, struct error *err)
{
    const char *text = json_string_value(json_object_get(root, field));
    if (!text || !text_is_made_of(text, FRONT_LAUNCHER_NAME_BYTES - 1, "._-") ||
        !text_copy(to, FRONT_LAUNCHER_NAME_BYTES, text))
        return wrong(err, path, field, "1..63 letters, digits, dots, dashes or underscores");
    return true;
}

static bool read_32(const json_t *root, const char *field, uint8_t to[static 32])
{
    const char *text = json_string_value(json_object_get(root, field));
    size_t decoded = 0;
    return text && text_base64url_decode(to, 32, &decoded, text, strlen(text)) && decoded == 32;
}

/* Both, or neither: a node that was given its key by hand cannot be re-keyed. */
static bool read_pair(struct identity *identity, const json_t *root, const char *path, struct error *err)
{
    bool has_key = json_object_get(root, "node_secret_key"), has_hash = json_object_get(root, "negotiator_hash");
    identity->has_pair = has_key && has_hash;
    if (!has_key && !has_hash)
        return true;
    if (!read_32(root, "node_secret_key", identity->pair.secret_key.bytes))
        return wrong(err, path, "node_secret_key", "43 characters of base64url");
    if (!read_32(root, "negotiator_hash", identity->negotiator_hash))
        return wrong(err, path, "negotiator_hash", "43 characters of base64url");
    return crypto_scalarmult_base(identity->pair.public_key, identity->pair.secret_key.bytes) == 0 ||
           wrong(err, path, "node_secret_key", "a key");
}

static bool read_fields(struct identity *identity, const json_t *root, const char *path, struct error *err)
{
    if (!json_is_object(root))
        return error_set(err, ERROR_INVALID, "%s must be one JSON object", path);
    if (!read_name(root, "deployment", identity->deployment, path, err) ||
        !read_name(root, "node", identity->node, path, err))
        return false;
    const json_t *url = json_object_get(root, "negotiator_url");
    if (!json_is_string(url) ||
        !text_copy(identity->negotiator_url, sizeof identity->negotiator_url, json_string_value(url)))
        return wrong(err, path, "negotiator_url", "a URL of at most 255 characters");
    const json_t *epoch = json_object_get(root, "epoch");
    if (!json_is_integer(epoch) || json_integer_value(epoch) < 1 || json_integer_value(epoch) > UINT32_MAX)
        return wrong(err, path, "epoch", "a number from 1");
    identity->epoch = (uint32_t)json_integer_value(epoch);
    if (!read_32(root, "node_key", identity->node_key.bytes))
        return wrong(err, path, "node_key", "43 characters of base64url");
    return read_pair(identity, root, path, err);
}

static bool check_owner(const char *path, struct error *err)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return error_set(
            err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL,
            "%s is not there: this node has not been enrolled (parley nodes add NAME makes a join token for "
            "parley-sandboxd enrol; parley up does both)",
            path);
    if (status.st_mode & (S_IRWXG | S_IRWXO))
        return error_set(err, ERROR_FORBIDDEN, "%s holds a key and others may read it: chmod 0600", path);
    return true;
}

bool identity_read(struct identity *identity, const char *path, struct error *err)
{
    size_t size = 0;
    if (!check_owner(path, err))
        return false;
    char *bytes = fd_read_file(path, FILE_MAX_BYTES, &size, err);
    if (bytes == NULL)
        return false;
    json_error_t where;
    json_t *root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &where);
    sodium_memzero(bytes, size);
    free(bytes);
    if (root == NULL) /* not what stands there: it may be the key */
        return error_set(err, ERROR_INVALID, "%s, line %d, column %d: not JSON", path, where.line, where.column);
    AUTO_IDENTITY read = {0};
    bool whole = read_fields(&read, root, path, err);
    json_decref(root);
    if (whole)
        *identity = read;
    return whole;
}

void identity_done(struct identity *identity)
{
    key_done(&identity->node_key);
    key_done(&identity->pair.secret_key);
}

static void add_bytes(json_t *json, const char *field, const uint8_t bytes[static 32])
{
    char text[TEXT_BASE64URL_LENGTH(32) + 1];
    text_base64url_encode(text, bytes, 32);
    json_object_set_new(json, field, json_string(text));
    sodium_memzero(text, sizeof text);
}

bool identity_write(const struct identity *identity, const char *path, struct error *err)
{
    json_t *json = json_pack("{s:s, s:s, s:I}", "deployment", identity->deployment, "node", identity->node, "epoch",
                             (json_int_t)identity->epoch);
    if (json_object_set_new(json, "negotiator_url", json_string(identity->negotiator_url)) != 0) {
        json_decref(json);
        return error_set(err, ERROR_INVALID, "the negotiator's URL is not UTF-8");
    }
    add_bytes(json, "node_key", identity->node_key.bytes);
    if (identity->has_pair) {
        add_bytes(json, "node_secret_key", identity->pair.secret_key.bytes);
        add_bytes(json, "negotiator_hash", identity->negotiator_hash);
    }
    char *text = json_dumps(json, JSON_INDENT(1));
    json_decref(json);
    bool written = fd_write_file(path, 0600, text, strlen(text), err);
    sodium_memzero(text, strlen(text));
    free(text);
    return written;
}

bool identity_rekey(struct identity *identity, const struct fl_rekey *rekey, const char *path, struct error *err)
{
    AUTO_ENROL_GRANT grant = {.epoch = 0};
    uint8_t bound[ENROL_HASH_BYTES];
    if (!identity->has_pair)
        return error_set(err, ERROR_CONFLICT, "this node has no key pair: it has to enrol anew");
    if (rekey->epoch <= identity->epoch)
        return error_set(err, ERROR_CONFLICT, "epoch %" PRIu32 " is not above %" PRIu32, rekey->epoch, identity->epoch);
    enrol_rekey_bound(bound, identity->node, identity->epoch, rekey->epoch);
    if (!enrol_box_open(&grant, &rekey->box, identity->negotiator_hash, &identity->pair, bound, err))
        return false;
    if (strcmp(grant.node, identity->node) != 0 || strcmp(grant.deployment, identity->deployment) != 0 ||
        grant.epoch != rekey->epoch)
        return error_set(err, ERROR_UNAUTHENTICATED, "the key is for another node, deployment or epoch");
    AUTO_IDENTITY next = *identity;
    next.node_key = grant.node_key;
    next.epoch = grant.epoch;
    if (!identity_write(&next, path, err))
        return false;
    *identity = next;
    return true;
}

bool identity_raise_incarnation(const char *path, uint64_t first, uint64_t *incarnation, struct error *err)
{
    struct error why = {0};
    uint64_t before = first - 1;
    size_t size = 0;
    AUTO_FREE char *text = fd_read_file(path, 64, &size, &why);
    if (text == NULL && why.kind != ERROR_NOT_FOUND) {
        if (err)
            *err = why;
        return false;
    }
    if (text && (size < 2 || text[size - 1] != '\n' || !text_parse_u64(text, size - 1, UINT64_MAX - 1, &before)))
        return error_set(err, ERROR_INVALID,
                         "%s is not a number: restore it (a higher one is fine), or enrol this node anew", path);
    char line[32];
    snprintf(line, sizeof line, "%" PRIu64 "\n", before + 1);
    if (!fd_write_file(path, 0600, line, strlen(line), err))
        return false;
    *incarnation = before + 1;
    return true;
}
