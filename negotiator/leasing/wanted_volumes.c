/* wanted_volumes.c - what may be asked for as volumes. What a host's folder is, and whether it may be had, only its
 * node knows. */
#include "negotiator/leasing/wanted.h"
#include "shared/base/text.h"

#include <string.h>

static const int64_t SIZE_MAX_MB = 64 * 1024 * 1024;

/* Every byte is one that a path, a log line and JSON can hold as it is. */
static bool is_plain(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    }
    return length < WANTED_PATH_BYTES && text_utf8_prefix(text, length) == length;
}

/* "a/b": no empty part, no "." and no "..". */
static bool has_good_parts(const char *path)
{
    for (const char *at = path;; at++) {
        size_t length = strcspn(at, "/");
        if (length == 0 || (length == 1 && at[0] == '.') || (length == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += length;
        if (*at == '\0')
            return true;
    }
}

static bool is_absolute(const char *path)
{
    return path[0] == '/' && has_good_parts(path + 1);
}

/* Where the kernel speaks: never a volume's place. */
static bool is_kernels(const char *path)
{
    static const char *const TAKEN[] = {"/proc", "/dev", "/sys"};
    for (size_t i = 0; i < sizeof TAKEN / sizeof *TAKEN; i++) {
        size_t length = strlen(TAKEN[i]);
        if (strncmp(path, TAKEN[i], length) == 0 && (path[length] == '\0' || path[length] == '/'))
            return true;
    }
    return false;
}

static const char *text_of(const json_t *volume, const char *name)
{
    const json_t *value = json_object_get(volume, name);
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) && is_plain(text, strlen(text)) ? text : NULL;
}

bool wanted_is_volume(const char *name)
{
    return sandbox_is_name(name) && strlen(name) < WANTED_VOLUME_BYTES;
}

static bool check_source(const json_t *volume, struct error *err)
{
    const char *source = text_of(volume, "source");
    if (text_equal(json_string_value(json_object_get(volume, "kind")), "named"))
        return wanted_is_volume(source) ||
               error_set(err, ERROR_INVALID,
                         "volumes: name must be 1 to %d of a-z0-9-, not beginning or ending with '-'",
                         WANTED_VOLUME_BYTES - 1);
    bool good = source && (source[0] == '/' ? is_absolute(source) : text_is_made_of(source, SANDBOX_WORD_BYTES, "._-"));
    return good || error_set(err, ERROR_INVALID,
                             "volumes: host must be an absolute path of at most %d bytes without \".\", \"..\" and "
                             "\"//\", or a name that its node gives one",
                             WANTED_PATH_BYTES - 1);
}

static bool check_paths(const json_t *volume, struct error *err)
{
    const char *path = text_of(volume, "path"), *sub_path = text_of(volume, "sub_path");
    if (path == NULL || !is_absolute(path))
        return error_set(err, ERROR_INVALID,
                         "volumes: path must be an absolute path of at most %d bytes without \".\", \"..\" and \"//\", "
                         "not \"/\"",
                         WANTED_PATH_BYTES - 1);
    if (is_kernels(path))
        return error_set(err, ERROR_INVALID, "volumes: path must not lie in /proc, /dev or /sys");
    return (sub_path && (sub_path[0] == '\0' || has_good_parts(sub_path))) ||
           error_set(err, ERROR_INVALID,
                     "volumes: sub_path must be a relative path of at most %d bytes without \".\", \"..\" and \"//\"",
                     WANTED_PATH_BYTES - 1);
}

static bool check_one(const json_t *volume, struct error *err)
{
    json_int_t size = json_integer_value(json_object_get(volume, "size_mb"));
    bool is_named = text_equal(json_string_value(json_object_get(volume, "kind")), "named");
    if (!check_source(volume, err) || !check_paths(volume, err))
        return false;
    if (size != 0 && !is_named)
        return error_set(err, ERROR_INVALID, "volumes: size_mb goes with a name, not with host");
    return (size >= 0 && size <= SIZE_MAX_MB) ||
           error_set(err, ERROR_INVALID, "volumes: size_mb must be 1 to %lld", (long long)SIZE_MAX_MB);
}

bool wanted_check_volumes(const json_t *volumes, struct error *err)
{
    size_t count = json_array_size(volumes);
    if (count > WANTED_VOLUMES_MAX)
        return error_set(err, ERROR_INVALID, "volumes has more than %d", WANTED_VOLUMES_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *volume = json_array_get(volumes, i);
        if (!check_one(volume, err))
            return false;
        for (size_t j = 0; j < i; j++) {
            if (json_equal(json_object_get(volume, "path"), json_object_get(json_array_get(volumes, j), "path")))
                return error_set(err, ERROR_INVALID, "volumes: two have the path %.200s", text_of(volume, "path"));
        }
    }
    return true;
}
