#include "negotiator/dialects/opensandbox/osb_wish.h"

#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/opensandbox/osb_json.h"
#include "negotiator/dialects/opensandbox/osb_network.h"
#include "negotiator/dialects/opensandbox/osb_quantity.h"
#include "negotiator/dialects/opensandbox/osb_shown.h"
#include "shared/base/text.h"

#include <fnmatch.h>
#include <string.h>
#include <sys/utsname.h>

enum { TIMEOUT_MIN_S = 60, ANSWER_BYTES = 200 };

static bool invalid(struct osb_refusal *refusal, const char *must)
{
    return osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID, "%s", must);
}

/* --- image, snapshotId --- */

static bool has_template(const json_t *templates, const char *name)
{
    size_t i;
    const json_t *each;
    json_array_foreach (templates, i, each) {
        if (text_equal(json_string_value(json_object_get(each, "name")), name))
            return true;
    }
    return strcmp(name, "base") == 0;
}

/* "GLOB=TEMPLATE": cut up; false when it is not that. */
static bool read_entry(const char *entry, size_t length, char glob[static SANDBOX_URL_BYTES],
                       char name[static SANDBOX_WORD_BYTES])
{
    const char *equals = memchr(entry, '=', length);
    if (!equals || equals == entry)
        return false;
    int before = (int)(equals - entry), behind = (int)length - before - 1;
    return text_format(glob, SANDBOX_URL_BYTES, "%.*s", before, entry) &&
           text_format(name, SANDBOX_WORD_BYTES, "%.*s", behind, equals + 1) &&
           text_is_made_of(name, SANDBOX_WORD_BYTES - 1, "._:-");
}

/* The entry at *map and how long it is, without blanks around it; *map behind it. NULL: there are no more. */
static const char *next_entry(const char **map, size_t *length)
{
    *map += strspn(*map, " ,");
    const char *entry = *map;
    *length = strcspn(entry, ",");
    *map += *length;
    while (*length > 0 && entry[*length - 1] == ' ')
        --*length;
    return *length > 0 ? entry : NULL;
}

bool opensandbox_check_images(const char *map, struct error *err)
{
    char glob[SANDBOX_URL_BYTES], name[SANDBOX_WORD_BYTES];
    size_t length;
    for (const char *entry; (entry = next_entry(&map, &length));) {
        if (!read_entry(entry, length, glob, name))
            return error_set(err, ERROR_INVALID, "image_templates: \"%.*s\" is not GLOB=TEMPLATE",
                             length < ANSWER_BYTES ? (int)length : ANSWER_BYTES, entry);
    }
    return true;
}

static bool map_image(const char *map, const char *uri, char to[static SANDBOX_WORD_BYTES])
{
    char glob[SANDBOX_URL_BYTES];
    size_t length;
    for (const char *entry; (entry = next_entry(&map, &length));) {
        if (read_entry(entry, length, glob, to) && fnmatch(glob, uri, 0) == 0)
            return true;
    }
    return false;
}

static bool refuse_image(const json_t *templates, const char *uri, struct osb_refusal *refusal)
{
    AUTO_TEXT names = {0};
    size_t i;
    const json_t *each;
    json_array_foreach (templates, i, each)
        text_append_format(&names, "%s%s", i ? ", " : "", json_string_value(json_object_get(each, "name")));
    return osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID,
                           "image.uri %.80s is no template here, and image_templates maps it to none; there are: %s",
                           uri, names.length ? names.data : "base");
}

/* Who may pull an image is said nowhere: nothing is pulled. */
static bool read_image(struct wanted *wanted, const json_t *image, const struct osb_defaults *defaults,
                       struct osb_refusal *refusal)
{
    const char *uri = osb_text_of(osb_given(image, "uri"));
    if (!uri || uri[0] == '\0' || strlen(uri) > WANTED_ORIGIN_TEXT_BYTES)
        return invalid(refusal, "image must be {\"uri\"}, a text of 1 to 512 bytes");
    bool is_template =
        has_template(defaults->templates, uri) && text_copy(wanted->template_name, sizeof wanted->template_name, uri);
    if (!is_template && !map_image(defaults->image_templates, uri, wanted->template_name))
        return refuse_image(defaults->templates, uri, refusal);
    json_object_set_new(wanted->origin, "image", json_string(uri));
    return true;
}

static bool read_start(struct wanted *wanted, const json_t *body, const struct osb_defaults *defaults,
                       struct osb_refusal *refusal)
{
    const json_t *image = osb_given(body, "image"), *snapshot = osb_given(body, "snapshotId");
    if (!image == !snapshot)
        return invalid(refusal, "exactly one of image and snapshotId must be given");
    if (image)
        return read_image(wanted, image, defaults, refusal);
    return (osb_text_of(snapshot) && random_is_id(osb_text_of(snapshot), "snp") &&
            text_copy(wanted->snapshot, sizeof wanted->snapshot, osb_text_of(snapshot))) ||
           osb_refusal_set(refusal, OSB_NO_SNAPSHOT, ERROR_NOT_FOUND,
                           "no such snapshot; an id looks like snp_ and 20 of a-z0-9");
}

/* What runs in it. What only keeps it alive is noted, and not run. */
static void set_entrypoint(struct wanted *wanted, const json_t *argv)
{
    if (argv == NULL || osb_is_keep_alive(argv))
        json_object_set_new(wanted->origin, "entrypoint", json_string("tail -f /dev/null"));
    else
        wanted->entrypoint = json_deep_copy(argv);
}

static bool read_entrypoint(struct wanted *wanted, const json_t *body, struct osb_refusal *refusal)
{
    const json_t *argv = osb_given(body, "entrypoint");
    size_t i;
    const json_t *each;
    bool good = json_array_size(argv) > 0 || (argv == NULL && wanted->snapshot[0]);
    json_array_foreach (argv, i, each)
        good = good && osb_text_of(each);
    if (!good)
        return osb_refusal_set(refusal, OSB_INVALID_ENTRYPOINT, ERROR_INVALID,
                               "entrypoint must be a list of one or more texts, and goes with image");
    set_entrypoint(wanted, argv);
    return true;
}

/* --- resourceLimits --- */

struct amount {
    const char *name;
    int64_t *to;
    bool (*read)(const char *text, int64_t *value);
};

static bool read_count(const char *text, int64_t *value)
{
    int64_t thousandths;
    bool good = osb_quantity_parse(text, &thousandths) && thousandths > 0 && thousandths % 1000 == 0;
    *value = good ? thousandths / 1000 : 0;
    return good;
}

static bool read_milli(const char *text, int64_t *value)
{
    return osb_quantity_parse(text, value) && *value > 0;
}

static bool read_limit(struct resources *to, const char *name, const json_t *value, struct osb_refusal *refusal)
{
    const struct amount amounts[] = {{"cpu", &to->cpu_milli, read_milli},
                                     {"memory", &to->memory_mb, osb_quantity_mib},
                                     {"disk", &to->disk_mb, osb_quantity_mib},
                                     {"ephemeral-storage", &to->disk_mb, osb_quantity_mib},
                                     {"pids", &to->pids, read_count}};
    for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++) {
        if (strcmp(name, amounts[i].name) != 0)
            continue;
        const char *text = osb_text_of(value);
        return (text && amounts[i].read(text, amounts[i].to)) ||
               osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID,
                               "resourceLimits.%s must be an amount like \"500m\", \"2\", \"512Mi\" or \"1.5G\"", name);
    }
    return osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID,
                           "resourceLimits.%.64s is not known here; cpu, memory, disk and pids are", name);
}

static bool read_limits(struct wanted *wanted, const json_t *body, struct osb_refusal *refusal)
{
    json_t *limits = json_object_get(body, "resourceLimits"), *value;
    const char *name;
    if (!json_is_object(limits))
        return invalid(refusal,
                       "resourceLimits must be an object of texts, like {\"cpu\": \"1\", \"memory\": \"2Gi\"}");
    json_object_foreach (limits, name, value) {
        if (!read_limit(&wanted->resources, name, value, refusal))
            return false;
    }
    return true;
}

/* --- timeout, env, platform --- */

static bool read_timeout(struct wanted *wanted, const json_t *body, struct osb_refusal *refusal)
{
    const json_t *timeout = osb_given(body, "timeout");
    if (timeout && (!json_is_integer(timeout) || json_integer_value(timeout) < TIMEOUT_MIN_S))
        return invalid(refusal, "timeout must be null, or a whole number of seconds, at least 60");
    wanted->max_lifetime_s = timeout ? json_integer_value(timeout) : LIFE_ENDLESS_S;
    wanted->idle_timeout_s = LIFE_ENDLESS_S;
    return true;
}

static bool read_env(struct wanted *wanted, const json_t *body, struct osb_refusal *refusal)
{
    const char *name;
    json_t *env = json_object_get(body, "env"), *value;
    if (env == NULL || json_is_null(env))
        return true;
    bool good = json_is_object(env);
    json_object_foreach (env, name, value)
        good = good && osb_text_of(value);
    if (!good)
        return invalid(refusal, "env must be an object of texts");
    wanted->env = json_deep_copy(env);
    return true;
}

static const char *own_arch(void)
{
    struct utsname name;
    if (uname(&name) != 0)
        return "";
    return strcmp(name.machine, "x86_64") == 0 ? "amd64" : strcmp(name.machine, "aarch64") == 0 ? "arm64" : "";
}

/* Nodes are asked for nothing here: what runs this runs them, as no other is built or tested together. */
static bool read_platform(struct wanted *wanted, const json_t *body, struct osb_refusal *refusal)
{
    const json_t *platform = osb_given(body, "platform");
    const char *os = osb_text_of(json_object_get(platform, "os")),
               *arch = osb_text_of(json_object_get(platform, "arch"));
    if (platform == NULL)
        return true;
    if (!text_equal(os, "linux") || !text_equal(arch, own_arch()))
        return osb_refusal_set(refusal, OSB_INVALID, ERROR_INVALID,
                               "platform must be {\"os\": \"linux\", \"arch\": \"%s\"}: there are no others here",
                               own_arch());
    json_object_set_new(wanted->origin, "os", json_string(os));
    json_object_set_new(wanted->origin, "arch", json_string(arch));
    return true;
}

static bool read_metadata(struct wanted *wanted, const json_t *body, struct osb_refusal *refusal)
{
    json_t *metadata = json_object_get(body, "metadata");
    if (metadata == NULL || json_is_null(metadata))
        return true;
    if (!osb_metadata_check(metadata, false, refusal))
        return false;
    wanted->metadata = json_deep_copy(metadata);
    return true;
}

/* --- networkPolicy, and what is not to be had --- */

static bool read_network(struct wanted *wanted, const json_t *body, const struct osb_defaults *defaults,
                         struct osb_refusal *refusal)
{
    const json_t *policy = osb_given(body, "networkPolicy");
    bool is_open = policy == NULL || (json_is_object(policy) && json_object_size(policy) == 0);
    refusal->code = OSB_INVALID;
    wanted->network =
        is_open ? json_pack("{s:s}", "egress", defaults->egress) : osb_network_read(policy, &refusal->err);
    return wanted->network != NULL;
}

static bool check_extensions(const json_t *body, struct osb_refusal *refusal)
{
    const char *name;
    json_t *extensions = json_object_get(body, "extensions"), *value;
    if (extensions == NULL || json_is_null(extensions))
        return true;
    if (!json_is_object(extensions))
        return invalid(refusal, "extensions must be an object of texts");
    json_object_foreach (extensions, name, value) {
        if (!osb_text_of(value))
            return invalid(refusal, "extensions must be an object of texts");
        if (strcmp(name, "poolRef") == 0) {
            refusal->status = 501;
            return osb_refusal_set(refusal, OSB_NO_POOLS, ERROR_INVALID, "extensions.poolRef: there are no pools here");
        }
        if (strcmp(name, "access.renew.extend.seconds") == 0)
            return osb_refusal_set(refusal, OSB_NOT_SUPPORTED, ERROR_INVALID,
                                   "extensions: a sandbox is not renewed by access here; renew it, or give it no "
                                   "timeout");
    }
    return true;
}

static bool check_rest(const json_t *body, struct osb_refusal *refusal)
{
    const json_t *secure = osb_given(body, "secureAccess"), *proxy = osb_given(body, "credentialProxy");
    if (secure && !json_is_boolean(secure))
        return invalid(refusal, "secureAccess must be true or false"); /* it is, whatever is asked */
    if (proxy && !json_is_object(proxy))
        return invalid(refusal, "credentialProxy must be {\"enabled\"}");
    if (json_is_true(json_object_get(proxy, "enabled")))
        return osb_refusal_set(refusal, OSB_NOT_SUPPORTED, ERROR_INVALID,
                               "credentialProxy: there is no credential vault here");
    return check_extensions(body, refusal);
}

bool osb_wish_read(struct wanted *wanted, json_t *body, const struct osb_defaults *defaults,
                   struct osb_refusal *refusal)
{
    json_t *volumes = json_object_get(body, "volumes");
    wanted->mode = WANTED_CREATE_ONLY;
    wanted->origin = json_object();
    return check_rest(body, refusal) && read_start(wanted, body, defaults, refusal) &&
           read_entrypoint(wanted, body, refusal) && read_limits(wanted, body, refusal) &&
           read_timeout(wanted, body, refusal) && read_env(wanted, body, refusal) &&
           read_platform(wanted, body, refusal) && read_metadata(wanted, body, refusal) &&
           read_network(wanted, body, defaults, refusal) &&
           (volumes == NULL || json_is_null(volumes) || osb_volumes_read(wanted, volumes, refusal));
}
