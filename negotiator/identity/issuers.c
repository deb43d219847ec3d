#include "negotiator/identity/issuers.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <curl/curl.h>
#include <limits.h>
#include <string.h>

enum { FILE_MAX_BYTES = 256 * 1024, CA_MAX_BYTES = 1 << 20, NAME_MAX_BYTES = 32, TEXT_MAX_BYTES = 1024 };

static const char *const FIELDS[] = {"name",    "issuer",          "audience",   "algorithms", "jwks",
                                     "ca_file", "principal_claim", "role_claim", "role_map",   "default_role"};

/* ---- one field ---- */

static bool check_known(json_t *object, size_t index, struct error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach (object, key, value) {
        bool is_known = false;
        for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
            is_known = is_known || strcmp(key, FIELDS[i]) == 0;
        if (!is_known)
            return error_set(err, ERROR_INVALID, "issuers[%zu]: no field \"%.40s\" is known here", index, key);
    }
    return true;
}

/* A text of 1..1024 bytes; `otherwise` where there is none, NULL of that: it is needed. */
static bool read_text(const json_t *object, size_t index, const char *field, const char *otherwise, const char **to,
                      struct error *err)
{
    const json_t *value = json_object_get(object, field);
    *to = value ? json_string_value(value) : otherwise;
    if (*to == NULL || **to == '\0' || strlen(*to) > TEXT_MAX_BYTES)
        return error_set(err, ERROR_INVALID, "issuers[%zu].%s: a text of 1 to %d bytes is needed", index, field,
                         TEXT_MAX_BYTES);
    return true;
}

static bool is_prefix(const char *name)
{
    size_t length = strlen(name);
    return length <= NAME_MAX_BYTES && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

static bool read_algorithms(const json_t *object, size_t index, unsigned *algorithms, struct error *err)
{
    const json_t *list = json_object_get(object, "algorithms");
    unsigned found = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        unsigned one = text_equal(name, "RS256") ? JWT_RS256 : text_equal(name, "ES256") ? JWT_ES256 : 0;
        if (one == 0)
            found = UINT_MAX;
        else if (found != UINT_MAX)
            found |= one;
    }
    if (found == 0 || found == UINT_MAX)
        return error_set(err, ERROR_INVALID, "issuers[%zu].algorithms: a list of RS256, ES256 is needed", index);
    *algorithms = found;
    return true;
}

/* What is not encrypted may be changed on its way, but on this host. */
static bool is_sound_url(const char *url)
{
    CURLU *parts = curl_url();
    char *scheme = NULL, *host = NULL, *user = NULL;
    bool is_url = parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                  curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                  curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                  curl_url_get(parts, CURLUPART_USER, &user, 0) != CURLUE_OK;
    bool is_here =
        is_url && (strcmp(host, "127.0.0.1") == 0 || strcmp(host, "[::1]") == 0 || strcmp(host, "localhost") == 0);
    bool is_sound = is_url && (strcmp(scheme, "https") == 0 || (strcmp(scheme, "http") == 0 && is_here));
    curl_free(scheme);
    curl_free(host);
    curl_free(user);
    curl_url_cleanup(parts);
    return is_sound;
}

static bool read_source(const json_t *object, size_t index, struct issuer *issuer, struct error *err)
{
    if (!read_text(object, index, "jwks", NULL, &issuer->jwks, err))
        return false;
    issuer->is_url = issuer->jwks[0] != '/';
    if (issuer->is_url && !is_sound_url(issuer->jwks))
        return error_set(err, ERROR_INVALID,
                         "issuers[%zu].jwks: an absolute path or a URL is needed: https, or http to 127.0.0.1", index);
    const char *file = NULL;
    if (json_object_get(object, "ca_file") == NULL)
        return true;
    if (!read_text(object, index, "ca_file", NULL, &file, err))
        return false;
    struct error why = {0};
    issuer->ca = fd_read_file(file, CA_MAX_BYTES, NULL, &why);
    return issuer->ca != NULL || error_set(err, ERROR_INVALID, "issuers[%zu].ca_file: %.150s", index, why.message);
}

static bool read_roles(const json_t *object, size_t index, struct issuer *issuer, struct error *err)
{
    const char *role = NULL, *key;
    json_t *value;
    bool has_claim = json_object_get(object, "role_claim") != NULL;
    issuer->role_map = json_object_get(object, "role_map");
    if (!read_text(object, index, "default_role", "user", &role, err))
        return false;
    if (!role_parse(role, &issuer->default_role) || issuer->default_role == ROLE_ADMIN)
        return error_set(err, ERROR_INVALID, "issuers[%zu].default_role: viewer or user", index);
    if (has_claim != (issuer->role_map != NULL) || (has_claim && !json_is_object(issuer->role_map)))
        return error_set(err, ERROR_INVALID, "issuers[%zu]: role_claim needs a role_map {text: role}, and it a claim",
                         index);
    enum role ignored;
    json_object_foreach (issuer->role_map, key, value) {
        if (!role_parse(json_string_value(value), &ignored))
            return error_set(err, ERROR_INVALID, "issuers[%zu].role_map.%.60s: viewer, user or admin", index, key);
    }
    return !has_claim || read_text(object, index, "role_claim", NULL, &issuer->role_claim, err);
}

static bool read_issuer(json_t *object, size_t index, struct issuer *issuer, struct error *err)
{
    if (!json_is_object(object))
        return error_set(err, ERROR_INVALID, "issuers[%zu] is not an object", index);
    if (!check_known(object, index, err) || !read_text(object, index, "name", NULL, &issuer->name, err) ||
        !read_text(object, index, "issuer", NULL, &issuer->issuer, err) ||
        !read_text(object, index, "audience", NULL, &issuer->audience, err) ||
        !read_text(object, index, "principal_claim", "sub", &issuer->name_claim, err) ||
        !read_algorithms(object, index, &issuer->algorithms, err) || !read_source(object, index, issuer, err) ||
        !read_roles(object, index, issuer, err))
        return false;
    if (strcmp(issuer->name, "share") == 0) /* who shows the token of a share is share:ID */
        return error_set(err, ERROR_INVALID, "issuers[%zu].name: share is taken", index);
    return is_prefix(issuer->name) ||
           error_set(err, ERROR_INVALID, "issuers[%zu].name: 1 to %d of a-z 0-9 -", index, NAME_MAX_BYTES);
}

/* ---- all of them ---- */

static bool check_distinct(const struct issuers *issuers, struct error *err)
{
    for (size_t i = 0; i < issuers->count; i++) {
        for (size_t j = 0; j < i; j++) {
            const struct issuer *a = &issuers->each[i], *b = &issuers->each[j];
            if (strcmp(a->name, b->name) == 0 || strcmp(a->issuer, b->issuer) == 0)
                return error_set(err, ERROR_INVALID, "issuers[%zu] and issuers[%zu] have one name or issuer", j, i);
        }
    }
    return true;
}

static bool read_all(struct issuers *issuers, struct error *err)
{
    const json_t *list = json_object_get(issuers->document, "issuers");
    size_t count = json_array_size(list);
    if (count == 0 || count > ISSUERS_MAX || json_object_size(issuers->document) != 1)
        return error_set(err, ERROR_INVALID, "one field is needed: \"issuers\", a list of 1 to %d", ISSUERS_MAX);
    for (size_t i = 0; i < count; i++) {
        issuers->count++;
        if (!read_issuer(json_array_get(list, i), i, &issuers->each[i], err))
            return false;
    }
    return check_distinct(issuers, err);
}

bool issuers_load(struct issuers *issuers, const char *file, struct error *err)
{
    AUTO_ISSUERS loaded = {0};
    size_t size = 0;
    struct error why = {0};
    json_error_t where;
    AUTO_FREE char *text = fd_read_file(file, FILE_MAX_BYTES, &size, &why);
    if (text == NULL)
        return error_set(err, ERROR_INVALID, "identity_file: %.180s", why.message);
    loaded.document = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (loaded.document == NULL)
        return error_set(err, ERROR_INVALID, "identity_file %.80s: line %d: %.80s", file, where.line, where.text);
    if (!read_all(&loaded, err))
        return error_prefix(err, "identity_file %.60s", file);
    *issuers = loaded;
    loaded = (struct issuers){0};
    return true;
}

void issuers_done(struct issuers *issuers)
{
    for (size_t i = 0; i < issuers->count; i++)
        free(issuers->each[i].ca);
    json_decref(issuers->document);
    *issuers = (struct issuers){0};
}

const struct issuer *issuers_find(const struct issuers *issuers, const char *issuer)
{
    for (size_t i = 0; i < issuers->count; i++) {
        if (text_equal(issuers->each[i].issuer, issuer))
            return &issuers->each[i];
    }
    return NULL;
}
