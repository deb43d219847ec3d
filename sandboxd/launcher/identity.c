#include "sandboxd/launcher/identity.h"

#include "shared/base/fd.h"
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
    const char *key = json_string_value(json_object_get(root, "node_key"));
    size_t decoded = 0;
    if (!key || !text_base64url_decode(identity->node_key.bytes, KEY_BYTES, &decoded, key, strlen(key)) ||
        decoded != KEY_BYTES)
        return wrong(err, path, "node_key", "43 characters of base64url");
    return true;
}

static bool check_owner(const char *path, struct error *err)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INTERNAL,
                         "%s is not there: this node has not been enrolled (parley-negotiator enrol --node NAME, or "
                         "parley up)",
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
}

bool identity_raise_incarnation(const char *path, uint64_t *incarnation, struct error *err)
{
    struct error why = {0};
    uint64_t before = 0;
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
