#include "negotiator/leasing/wanted.h"

#include "shared/base/text.h"

#include <string.h>

enum {
    LONG_DEFAULT_S = 7 * WANTED_DAY_S,
    TTL_MIN_S = 60,
    WAIT_DEFAULT_S = 30,
    METADATA_KEY_BYTES = 317,
    METADATA_VALUE_BYTES = 512,
    ENV_NAME_BYTES = 64
};

void wanted_done(struct wanted *wanted)
{
    json_decref(wanted->env);
    json_decref(wanted->metadata);
    json_decref(wanted->entrypoint);
    json_decref(wanted->origin);
    json_decref(wanted->volumes);
    json_decref(wanted->network);
    json_decref(wanted->ports);
    *wanted = (struct wanted){0};
}

struct wanted_limits wanted_limits_whole(const struct wanted_limits *limits)
{
    struct wanted_limits whole = *limits;
    if (whole.long_ttl_max_s == 0)
        whole.long_ttl_max_s = LONG_DEFAULT_S;
    if (whole.unattended_max_s == 0)
        whole.unattended_max_s = LIFE_UNATTENDED_S;
    return whole;
}

static bool check_range(const char *field, int64_t value, int64_t min, int64_t max, struct error *err)
{
    if (value == 0 || (value >= min && value <= max))
        return true;
    return error_set(err, ERROR_INVALID, "%s must be %lld to %lld", field, (long long)min, (long long)max);
}

static bool is_word(const char *text)
{
    return text[0] == '\0' || text_is_made_of(text, SANDBOX_WORD_BYTES - 1, "._:-");
}

static bool is_variable(const char *name)
{
    return text_is_made_of(name, ENV_NAME_BYTES, "_") && (name[0] < '0' || name[0] > '9');
}

static bool check_env(json_t *env, struct error *err)
{
    const char *name;
    json_t *value;
    size_t bytes = 0;
    if (json_object_size(env) > WANTED_ENV_MAX)
        return error_set(err, ERROR_INVALID, "env has more than %d variables", WANTED_ENV_MAX);
    json_object_foreach (env, name, value) {
        if (!is_variable(name) || !json_is_string(value))
            return error_set(err, ERROR_INVALID,
                             "env must be an object of texts whose names are letters, digits and _, at most %d",
                             ENV_NAME_BYTES);
        bytes += strlen(name) + json_string_length(value) + 2;
    }
    return bytes <= WANTED_ENV_BYTES ||
           error_set(err, ERROR_INVALID, "env has more than %d bytes (a variable: name, value and 2)",
                     WANTED_ENV_BYTES);
}

bool wanted_check_metadata(json_t *metadata, bool is_patch, struct error *err)
{
    const char *name;
    json_t *value;
    if (json_object_size(metadata) > WANTED_METADATA_MAX)
        return error_set(err, ERROR_INVALID, "metadata has more than %d pairs", WANTED_METADATA_MAX);
    json_object_foreach (metadata, name, value) {
        bool is_text = json_is_string(value) && json_string_length(value) <= METADATA_VALUE_BYTES;
        if (strlen(name) > METADATA_KEY_BYTES || (!is_text && !(is_patch && json_is_null(value))))
            return error_set(err, ERROR_INVALID,
                             "metadata must be an object of texts%s, names of at most %d bytes, "
                             "values of at most %d",
                             is_patch ? " and nulls" : "", METADATA_KEY_BYTES, METADATA_VALUE_BYTES);
    }
    return true;
}

static bool check_origin(json_t *origin, struct error *err)
{
    const char *name;
    json_t *value;
    bool good = json_object_size(origin) <= WANTED_ORIGIN_MAX;
    json_object_foreach (origin, name, value)
        good = good && text_is_made_of(name, METADATA_KEY_BYTES, "._-") && json_is_string(value) &&
               json_string_length(value) <= WANTED_ORIGIN_TEXT_BYTES;
    return good || error_set(err, ERROR_INVALID, "origin must be an object of at most %d texts of at most %d bytes",
                             WANTED_ORIGIN_MAX, WANTED_ORIGIN_TEXT_BYTES);
}

static bool check_entrypoint(const json_t *argv, struct error *err)
{
    size_t i, bytes = 0;
    json_t *each;
    bool good = argv == NULL || (json_array_size(argv) > 0 && json_array_size(argv) <= WANTED_ENTRYPOINT_MAX);
    json_array_foreach (argv, i, each) {
        const char *text = json_string_value(each);
        good = good && text && strlen(text) == json_string_length(each);
        bytes += json_string_length(each) + 1;
    }
    const char *first = json_string_value(json_array_get(argv, 0));
    return (good && bytes <= WANTED_ENTRYPOINT_BYTES && (argv == NULL || (first && first[0]))) ||
           error_set(err, ERROR_INVALID,
                     "entrypoint must be 1 to %d texts, the first not empty, together at most %d bytes",
                     WANTED_ENTRYPOINT_MAX, WANTED_ENTRYPOINT_BYTES);
}

static bool check_resources(const struct resources *resources, struct error *err)
{
    return check_range("resources.cpu (in thousandths)", resources->cpu_milli, 50, 1000000, err) &&
           check_range("resources.memory_mb", resources->memory_mb, 16, 16 * 1024 * 1024, err) &&
           check_range("resources.disk_mb", resources->disk_mb, 1, 64 * 1024 * 1024, err) &&
           check_range("resources.pids", resources->pids, 16, 1000000, err) &&
           check_range("resources.open_files", resources->open_files, 16, 1048576, err) &&
           check_range("resources.processes", resources->processes, 1, 1000, err) &&
           check_range("resources.output_mb", resources->output_mb, 1, 1024, err);
}

/* Endless, or a number within `most` (0: any). */
static bool check_life(const char *field, int64_t value, int64_t most, struct error *err)
{
    if (value >= LIFE_ENDLESS_S)
        return most == 0 || error_set(err, ERROR_INVALID, "%s must be 1 to %lld; no end (null) is not allowed here",
                                      field, (long long)most);
    return check_range(field, value, 1, most ? most : LIFE_NUMBER_MAX_S, err);
}

bool wanted_check(const struct wanted *wanted, const struct wanted_limits *limits, struct error *err)
{
    if (!check_range("ttl", wanted->ttl_s, TTL_MIN_S, 3600, err) ||
        !check_life("idle_timeout", wanted->idle_timeout_s, 0, err) ||
        !check_life("max_lifetime", wanted->max_lifetime_s, limits->max_lifetime_max_s, err) ||
        !check_range("wait", wanted->wait_s, 0, WANTED_WAIT_MAX_S, err) || !check_resources(&wanted->resources, err))
        return false;
    if (!is_word(wanted->template_name))
        return error_set(err, ERROR_INVALID, "template must be 1 to %d of A-Za-z0-9._:-", SANDBOX_WORD_BYTES - 1);
    if (wanted->snapshot[0] && !random_is_id(wanted->snapshot, "snp") && !sandbox_is_name(wanted->snapshot))
        return error_set(err, ERROR_INVALID,
                         "template \"snapshot:...\" must name a snapshot's id, or its name of a-z0-9-");
    if (!is_word(wanted->isolation))
        return error_set(err, ERROR_INVALID, "isolation must be 1 to %d of A-Za-z0-9._:-", SANDBOX_WORD_BYTES - 1);
    if (wanted->name[0] && (!sandbox_is_name(wanted->name) || text_equal(wanted->name, "auto")))
        return error_set(err, ERROR_INVALID,
                         "name must be 1 to %d of a-z0-9-, not begin or end with '-', and not be \"auto\"",
                         SANDBOX_NAME_BYTES - 1);
    return check_env(wanted->env, err) && wanted_check_metadata(wanted->metadata, false, err) &&
           check_entrypoint(wanted->entrypoint, err) && check_origin(wanted->origin, err) &&
           wanted_check_volumes(wanted->volumes, err);
}

int64_t wanted_wait_s(const struct wanted *wanted)
{
    return wanted->wait_given ? wanted->wait_s : WAIT_DEFAULT_S;
}

struct list {
    char *text;
    size_t size, length;
};

static void add(struct list *list, bool differs, const char *name)
{
    if (!differs)
        return;
    size_t length = strlen(name) + (list->length ? 2 : 0);
    if (list->length + length >= list->size)
        return;
    if (!text_format(list->text + list->length, list->size - list->length, "%s%s", list->length ? ", " : "", name))
        return;
    list->length += length;
}

/* 0 is what was not said, and what the node has not said yet. */
static bool differs(int64_t asked, int64_t is)
{
    return asked != 0 && is != 0 && asked != is;
}

/* Nobody says what a node's default is: what was asked for is other than that. */
static bool differs_from_row(int64_t asked, int64_t is)
{
    return asked != 0 && asked != is;
}

static bool has_other_template(const struct wanted *wanted, const struct sandbox *sandbox)
{
    if (wanted->snapshot[0])
        return !text_equal(wanted->snapshot, sandbox->snapshot) &&
               !text_equal(wanted->snapshot, sandbox->snapshot_name);
    return wanted->template_name[0] && !text_equal(wanted->template_name, sandbox->template_name);
}

/* NULL is not given; an empty list is what a sandbox without one has. */
static bool has_other_list(const json_t *asked, const json_t *is)
{
    if (asked == NULL || (json_array_size(asked) == 0 && is == NULL))
        return false;
    return !json_equal(asked, is);
}

/* None given in the row is none allowed. */
static bool has_other_network(const json_t *asked, const json_t *is)
{
    const char *egress = json_string_value(json_object_get(asked, "egress"));
    return asked != NULL && !(is == NULL ? text_equal(egress, "none") : json_equal(asked, is));
}

bool wanted_differs(const struct wanted *wanted, const struct sandbox *sandbox, char *names, size_t size)
{
    struct list list = {names, size, 0};
    bool any_isolation =
        wanted->isolation[0] == '\0' || text_equal(wanted->isolation, "auto") || text_equal(sandbox->isolation, "auto");
    add(&list, has_other_template(wanted, sandbox), "template");
    add(&list, !any_isolation && !text_equal(wanted->isolation, sandbox->isolation), "isolation");
    add(&list, differs(wanted->resources.cpu_milli, sandbox->resources.cpu_milli), "resources.cpu");
    add(&list, differs(wanted->resources.memory_mb, sandbox->resources.memory_mb), "resources.memory_mb");
    add(&list, differs(wanted->resources.disk_mb, sandbox->resources.disk_mb), "resources.disk_mb");
    add(&list, differs(wanted->resources.pids, sandbox->resources.pids), "resources.pids");
    add(&list, differs_from_row(wanted->resources.open_files, sandbox->resources.open_files), "resources.open_files");
    add(&list, differs_from_row(wanted->resources.processes, sandbox->resources.processes), "resources.processes");
    add(&list, differs_from_row(wanted->resources.output_mb, sandbox->resources.output_mb), "resources.output_mb");
    add(&list, wanted->on_idle_given && wanted->on_idle != sandbox->on_idle, "on_idle");
    add(&list, has_other_list(wanted->volumes, sandbox->volumes), "volumes");
    add(&list, has_other_network(wanted->network, sandbox->network), "network");
    add(&list, has_other_list(wanted->ports, sandbox->ports), "ports");
    add(&list, has_other_list(wanted->entrypoint, sandbox->entrypoint), "entrypoint");
    bool same_env = wanted->env == NULL || json_equal(wanted->env, sandbox->env) ||
                    (json_object_size(wanted->env) == 0 && sandbox->env == NULL);
    add(&list, !same_env, "env");
    add(&list, wanted->name[0] && !text_equal(wanted->name, sandbox->name), "name");
    return list.length > 0;
}
