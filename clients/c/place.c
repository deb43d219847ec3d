#include "clients/c/place.h"

#include "clients/c/capability_url.h"

#include "shared/base/config.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"
#include "shared/trust/trust.h"

#include <errno.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <pwd.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char DEFAULT_URL[] = "http://127.0.0.1:8700", DEFAULT_TLS_URL[] = "https://127.0.0.1:8700";
static const size_t CONFIG_MAX_BYTES = 64 * 1024;

void place_done(struct place *place)
{
    free(place->url);
    if (place->api_key)
        sodium_memzero(place->api_key, strlen(place->api_key));
    free(place->api_key);
    if (place->capability)
        sodium_memzero(place->capability, strlen(place->capability));
    free(place->capability);
    free(place->tls_fingerprint);
    free(place->ca_file);
    *place = (struct place){0};
}

/* The user who typed sudo; NULL when nobody did. */
static const struct passwd *asking_user(void)
{
    const char *uid = getenv("SUDO_UID");
    uint64_t number = 0;
    if (geteuid() != 0 || !uid || !text_parse_u64(uid, strlen(uid), UINT32_MAX, &number) || number == 0)
        return NULL;
    return getpwuid((uid_t)number);
}

static char *home_path(const char *folder_variable, const char *below_home, const char *name)
{
    const char *folder = getenv(folder_variable);
    if (folder && folder[0] == '/')
        return memory_printf("%s/parley/%s", folder, name);
    const struct passwd *user = asking_user();
    const char *home = user ? user->pw_dir : getenv("HOME");
    if (!home || home[0] != '/') {
        const struct passwd *self = getpwuid(geteuid());
        home = self ? self->pw_dir : "/";
    }
    return memory_printf("%s/%s/parley/%s", home, below_home, name);
}

char *place_config_path(void)
{
    return home_path("XDG_CONFIG_HOME", ".config", "config.json");
}

char *place_cache_path(void)
{
    return home_path("XDG_CACHE_HOME", ".cache", "grants.json");
}

/* Whose the nearest folder is that exists on the way to `path`. */
static uid_t owner_above(const char *path)
{
    AUTO_FREE char *above = memory_string(path);
    struct stat facts;
    for (;;) {
        char *slash = strrchr(above, '/');
        if (slash == NULL || slash == above)
            return 0;
        *slash = '\0';
        if (lstat(above, &facts) == 0)
            return facts.st_uid;
    }
}

bool place_act_as_user(const char *path)
{
    const struct passwd *user = asking_user();
    if (!user || owner_above(path) != user->pw_uid)
        return false;
    if (setegid(user->pw_gid) != 0)
        return false;
    if (seteuid(user->pw_uid) != 0) {
        place_return(true);
        return false;
    }
    return true;
}

void place_return(bool acted)
{
    if (acted && (seteuid(0) != 0 || setegid(0) != 0))
        abort(); /* saved ids are root's: this cannot fail, and going on with the wrong ones must not be */
}

bool place_make_folder_of(const char *path, struct error *err)
{
    AUTO_FREE char *copy = memory_string(path);
    const char *folder = dirname(copy);
    return fd_make_folders(folder, 0700, err);
}

bool place_load_file(struct place *place, struct error *err)
{
    AUTO_FREE char *path = place_config_path();
    size_t size;
    AUTO_FREE char *text = fd_read_file(path, CONFIG_MAX_BYTES, &size, err);
    if (!text)
        return false;
    json_error_t where;
    json_t *config = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    const char *url = json_string_value(json_object_get(config, "url"));
    const char *key = json_string_value(json_object_get(config, "api_key"));
    bool good = config != NULL && url != NULL;
    if (good)
        *place = (struct place){.url = memory_string(url),
                                .api_key = memory_string(key),
                                .tls_fingerprint =
                                    memory_string(json_string_value(json_object_get(config, "tls_fingerprint"))),
                                .ca_file = memory_string(json_string_value(json_object_get(config, "ca_file")))};
    sodium_memzero(text, size);
    json_decref(config);
    return good || error_set(err, ERROR_INVALID, "%s is not {\"url\": ..., \"api_key\": ...}", path);
}

static void strip_slash(char *url)
{
    size_t length = strlen(url);
    while (length > 0 && url[length - 1] == '/')
        url[--length] = '\0';
}

/* This machine's own authority; NULL: there is none. The caller frees. */
static char *local_authority(void)
{
    AUTO_FREE char *state = config_state_folder(0, NULL);
    AUTO_FREE char *server = memory_printf("%s/tls/server.pem", state);
    return access(server, F_OK) == 0 ? memory_printf("%s/tls/ca.pem", state) : NULL;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* What the place names wins over nobody but the system. */
static void choose_trust(struct place *place, const struct place *file, char *authority)
{
    const char *fingerprint = variable("PARLEY_TLS_FINGERPRINT"), *ca_file = variable("PARLEY_CA_FILE");
    bool is_of_file = !fingerprint && !ca_file && text_equal(file->url, place->url);
    bool is_of_state = !fingerprint && !ca_file && !is_of_file && text_equal(place->url, DEFAULT_TLS_URL);
    place->tls_fingerprint = memory_string(is_of_file ? file->tls_fingerprint : fingerprint);
    place->ca_file = is_of_state ? authority : memory_string(is_of_file ? file->ca_file : ca_file);
    if (!is_of_state)
        free(authority);
}

bool place_load_keyless(struct place *place, const char *url, struct error *err)
{
    struct error file_error = {0};
    AUTO_PLACE file = {0}, found = {0};
    const char *key = getenv("PARLEY_API_KEY");
    url = url ? url : getenv("PARLEY_URL");
    const char *capability = capability_url_is(url) ? url : NULL;
    if (capability) /* the negotiator is somewhere else */
        url = capability_url_is(getenv("PARLEY_URL")) ? NULL : getenv("PARLEY_URL");
    bool is_read = place_load_file(&file, &file_error);
    if ((!url || !key) && !is_read && file_error.kind != ERROR_NOT_FOUND) {
        *err = file_error;
        return false;
    }
    char *authority = local_authority();
    const char *usual = authority ? DEFAULT_TLS_URL : DEFAULT_URL;
    found.url = memory_string(url ? url : file.url ? file.url : usual);
    found.api_key = memory_string(key ? key : file.api_key);
    found.capability = memory_string(capability);
    strip_slash(found.url);
    if (file.url)
        strip_slash(file.url);
    choose_trust(&found, &file, authority);
    if (!trust_set(found.ca_file, found.tls_fingerprint, err))
        return false;
    *place = found;
    found = (struct place){0};
    return true;
}

/* The first key of the deployment that lies on this machine, for who may read it: root, before it has a config.json.
 * For no other URL than that of this machine. */
static char *local_admin_key(const char *url)
{
    if (!text_equal(url, DEFAULT_URL) && !text_equal(url, DEFAULT_TLS_URL))
        return NULL;
    AUTO_FREE char *state = config_state_folder(0, NULL);
    AUTO_FREE char *path = memory_printf("%s/admin.key", state);
    char *key = fd_read_file(path, 256, NULL, NULL);
    if (key)
        key[strcspn(key, "\n")] = '\0';
    return key;
}

bool place_load(struct place *place, const char *url, struct error *err)
{
    AUTO_PLACE found = {0};
    if (!place_load_keyless(&found, url, err))
        return false;
    if (!found.api_key && !found.capability)
        found.api_key = local_admin_key(found.url);
    if (!found.api_key && !found.capability) {
        AUTO_FREE char *path = place_config_path();
        return error_set(err, ERROR_NOT_FOUND, "no API key: `parley up -d` writes one to %s, or set PARLEY_API_KEY",
                         path);
    }
    *place = found;
    found = (struct place){0};
    return true;
}

bool place_store_file(const struct place *place, struct error *err)
{
    AUTO_FREE char *path = place_config_path();
    json_t *config = json_pack("{s:s, s:s, s:s*, s:s*}", "url", place->url, "api_key", place->api_key,
                               "tls_fingerprint", place->tls_fingerprint, "ca_file", place->ca_file);
    char *text = json_dumps(config, JSON_INDENT(2));
    bool acted = place_act_as_user(path);
    bool stored = place_make_folder_of(path, err) && fd_write_file(path, 0600, text, strlen(text), err);
    place_return(acted);
    sodium_memzero(text, strlen(text));
    free(text);
    json_decref(config);
    return stored;
}

char *place_folder_thread(const char *folder)
{
    char real[PATH_MAX];
    if (!realpath(folder, real))
        snprintf(real, sizeof real, "%s", folder);
    unsigned char hash[8];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)real, strlen(real), NULL, 0);
    char hex[2 * sizeof hash + 1];
    text_hex(hex, hash, sizeof hash);
    const char *slash = strrchr(real, '/');
    char name[33];
    snprintf(name, sizeof name, "%.32s", slash && slash[1] ? slash + 1 : "root");
    for (char *c = name; *c; c++) {
        char one[2] = {*c, '\0'};
        if (!text_is_made_of(one, 1, "._-"))
            *c = '-';
    }
    return memory_printf("dir-%s-%s", name, hex);
}
