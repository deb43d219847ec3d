#include "negotiator/dialects/wish.h"

#include "shared/base/clock.h"
#include "shared/base/text.h"
#include "shared/node_protocol/egress_rule.h"

#include <stdlib.h>
#include <string.h>

/* One field of an object; `read` sees no null (which is as if the field were missing), but where that means something.
 */
struct field {
    const char *name;
    bool (*read)(struct wanted *wanted, const char *name, json_t *value, struct error *err);
    bool takes_null;
};

static bool wrong(const char *name, const char *must, struct error *err)
{
    return error_set(err, ERROR_INVALID, "%.64s must be %s", name, must);
}

static bool read_object(struct wanted *wanted, json_t *object, const struct field *fields, size_t count,
                        struct error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach (object, key, value) {
        size_t i = 0;
        while (i < count && strcmp(fields[i].name, key) != 0)
            i++;
        if (i == count)
            return error_set(err, ERROR_INVALID, "unknown field \"%.64s\"", key);
        if ((!json_is_null(value) || fields[i].takes_null) && !fields[i].read(wanted, key, value, err))
            return false;
    }
    return true;
}

static bool take_text(char *to, size_t size, const char *name, const json_t *value, const char *also, struct error *err)
{
    const char *text = json_string_value(value);
    if (text && strlen(text) == json_string_length(value) && text_is_made_of(text, size - 1, also) &&
        text_copy(to, size, text))
        return true;
    return error_set(err, ERROR_INVALID, "%.64s must be a text of 1 to %zu letters, digits and %s", name, size - 1,
                     also);
}

static bool take_amount(int64_t *to, const char *name, const json_t *value, struct error *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        return wrong(name, "a whole number above 0", err);
    *to = json_integer_value(value);
    return true;
}

/* --- the fields --- */

static bool read_mode(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    if (text_equal(text, "ensure"))
        wanted->mode = WANTED_ENSURE;
    else if (text_equal(text, "attach_only"))
        wanted->mode = WANTED_ATTACH_ONLY;
    else if (text_equal(text, "create_only"))
        wanted->mode = WANTED_CREATE_ONLY;
    else
        return wrong(name, "\"ensure\", \"attach_only\" or \"create_only\"", err);
    return true;
}

/* `sandbox` and its alias `sandbox_id`. */
static bool read_hint(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    char hint[SANDBOX_NAME_BYTES];
    if (!take_text(hint, sizeof hint, name, value, "._:-", err))
        return false;
    if (wanted->hint[0] && strcmp(wanted->hint, hint) != 0)
        return error_set(err, ERROR_INVALID, "sandbox and sandbox_id name different sandboxes");
    memcpy(wanted->hint, hint, sizeof hint);
    return true;
}

static bool read_hint_policy(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    const char *text = json_string_value(value);
    wanted->hint_required = text_equal(text, "require");
    return wanted->hint_required || text_equal(text, "prefer") || wrong(name, "\"prefer\" or \"require\"", err);
}

static bool read_scopes(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    static const char MUST[] = "a list of at most 16 texts without blanks";
    AUTO_TEXT all = {0};
    size_t i;
    json_t *each;
    if (!json_is_array(value) || json_array_size(value) > SCOPE_ATOMS_MAX)
        return wrong(name, MUST, err);
    json_array_foreach (value, i, each) {
        const char *atom = json_string_value(each);
        if (atom == NULL || atom[0] == '\0' || json_string_length(each) >= SCOPE_ATOM_BYTES || strpbrk(atom, " \t\r\n"))
            return wrong(name, MUST, err);
        if (i > 0)
            text_append_string(&all, " ");
        text_append_string(&all, atom);
    }
    wanted->scopes_given = true;
    return scope_parse(&wanted->scopes, all.data ? all.data : "", all.length, SCOPE_UNKNOWN_DROPPED, err) ||
           error_prefix(err, "scopes");
}

static bool read_ttl(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_amount(&wanted->ttl_s, name, value, err);
}

static bool read_long(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    wanted->is_long = json_is_true(value);
    return json_is_boolean(value) || wrong(name, "true or false", err);
}

static bool read_token_end(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    int64_t at = 0;
    if (!json_is_string(value) || !clock_parse(json_string_value(value), &at))
        return wrong(name, "a time such as \"2026-01-01T00:00:00Z\"", err);
    wanted->expires_at_s = at / 1000 > 0 ? at / 1000 : 1;
    return true;
}

/* null is for ever. */
static bool take_life(int64_t *to, const char *name, const json_t *value, struct error *err)
{
    if (json_is_null(value)) {
        *to = LIFE_ENDLESS_S;
        return true;
    }
    return take_amount(to, name, value, err) &&
           (*to <= LIFE_NUMBER_MAX_S || error_set(err, ERROR_INVALID, "%.64s must be 1 to %lld, or null: no end", name,
                                                  (long long)LIFE_NUMBER_MAX_S));
}

static bool read_idle_timeout(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_life(&wanted->idle_timeout_s, name, value, err);
}

static bool read_max_lifetime(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_life(&wanted->max_lifetime_s, name, value, err);
}

/* "snapshot:<id or name>" begins with that in place of a template. */
static bool read_template(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    static const char SNAPSHOT[] = "snapshot:";
    const char *text = json_string_value(value);
    if (!text || !text_starts_with(text, SNAPSHOT))
        return take_text(wanted->template_name, sizeof wanted->template_name, name, value, "._:-", err);
    return (strlen(text) == json_string_length(value) && text[strlen(SNAPSHOT)] &&
            text_copy(wanted->snapshot, sizeof wanted->snapshot, text + strlen(SNAPSHOT))) ||
           wrong(name, "a template's name, or \"snapshot:\" and the id or name of a snapshot", err);
}

static bool read_isolation(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_text(wanted->isolation, sizeof wanted->isolation, name, value, "._:-", err);
}

static bool read_cpu(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    double cores = json_number_value(value);
    if (!json_is_number(value) || !(cores >= 0.05 && cores <= 1000))
        return wrong(name, "a number of cores from 0.05 to 1000", err);
    wanted->resources.cpu_milli = (int64_t)(cores * 1000 + 0.5);
    return true;
}

static bool read_memory(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_amount(&wanted->resources.memory_mb, name, value, err);
}

static bool read_disk(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_amount(&wanted->resources.disk_mb, name, value, err);
}

static bool read_pids(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_amount(&wanted->resources.pids, name, value, err);
}

static bool read_open_files(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_amount(&wanted->resources.open_files, name, value, err);
}

static bool read_processes(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_amount(&wanted->resources.processes, name, value, err);
}

static bool read_output(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_amount(&wanted->resources.output_mb, name, value, err);
}

static bool read_resources(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    static const struct field FIELDS[] = {
        {"cpu", read_cpu, false},         {"memory_mb", read_memory, false},      {"disk_mb", read_disk, false},
        {"pids", read_pids, false},       {"open_files", read_open_files, false}, {"processes", read_processes, false},
        {"output_mb", read_output, false}};
    if (!json_is_object(value))
        return wrong(name, "an object of cpu, memory_mb, disk_mb, pids, open_files, processes and output_mb", err);
    return read_object(wanted, value, FIELDS, sizeof FIELDS / sizeof *FIELDS, err) || error_prefix(err, "resources");
}

static bool read_network(struct wanted *wanted, const char *name UNUSED, json_t *value, struct error *err)
{
    struct egress_wish wish;
    if (!egress_wish_read(value, &wish, err))
        return false;
    wanted->network = egress_wish_json(&wish);
    return true;
}

static int compare_ports(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static bool read_ports(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    int ports[WANTED_PORTS_MAX];
    size_t count = json_array_size(value), i;
    const json_t *each;
    if (!json_is_array(value) || count > WANTED_PORTS_MAX)
        return wrong(name, "a list of at most 16 ports", err);
    json_array_foreach (value, i, each) {
        json_int_t port = json_integer_value(each);
        if (port < 1 || port > UINT16_MAX)
            return wrong(name, "a list of whole numbers from 1 to 65535", err);
        ports[i] = (int)port;
    }
    qsort(ports, count, sizeof ports[0], compare_ports);
    wanted->ports = json_array();
    for (i = 0; i < count; i++) {
        if (i == 0 || ports[i] != ports[i - 1])
            json_array_append_new(wanted->ports, json_integer(ports[i]));
    }
    return true;
}

static bool read_env(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    if (!json_is_object(value))
        return wrong(name, "an object of texts", err);
    wanted->env = json_incref(value);
    return true;
}

static bool read_on_idle(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    wanted->on_idle_given = true;
    return on_idle_parse(json_string_value(value), &wanted->on_idle) || wrong(name, "\"stop\" or \"pause\"", err);
}

static bool read_entrypoint(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    if (!json_is_array(value))
        return wrong(name, "a list of texts", err);
    wanted->entrypoint = json_incref(value);
    return true;
}

static bool read_origin(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    if (!json_is_object(value))
        return wrong(name, "an object of texts", err);
    wanted->origin = json_incref(value);
    return true;
}

static bool read_volumes(struct wanted *wanted, const char *name UNUSED, json_t *value, struct error *err)
{
    wanted->volumes = wish_volumes(value, err);
    return wanted->volumes != NULL;
}

static bool read_name(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    return take_text(wanted->name, sizeof wanted->name, name, value, "-", err);
}

static bool read_metadata(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    if (!json_is_object(value))
        return wrong(name, "an object of texts", err);
    wanted->metadata = json_incref(value);
    return true;
}

static bool read_actor(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    char who[129] = "";
    const char *type = json_string_value(json_object_get(value, "type"));
    const json_t *id = json_object_get(value, "id");
    size_t known = (type ? 1U : 0U) + (id ? 1U : 0U);
    bool human = text_equal(type, "human"), agent = text_equal(type, "agent");
    if ((!human && !agent) || json_object_size(value) != known || (agent && id == NULL))
        return wrong(name, "{\"type\": \"human\" or \"agent\", \"id\": ...}; an agent has an id", err);
    if (id && !take_text(who, sizeof who, "actor.id", id, "._:@+-", err))
        return false;
    return text_format(wanted->actor, sizeof wanted->actor, "%s%s%s", type, who[0] ? ":" : "", who) ||
           wrong(name, "shorter", err);
}

static bool read_wait(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > WANTED_WAIT_MAX_S)
        return wrong(name, "a whole number of seconds from 0 to 300", err);
    wanted->wait_given = true;
    wanted->wait_s = json_integer_value(value);
    return true;
}

static bool read_capability_url(struct wanted *wanted, const char *name, json_t *value, struct error *err)
{
    wanted->capability_url = json_is_true(value);
    return json_is_boolean(value) || wrong(name, "true or false", err);
}

/* Kept parts then share nothing with the request. */
static bool read_copy(struct wanted *wanted, const json_t *body, const struct field *fields, size_t count,
                      struct error *err)
{
    json_t *object = json_deep_copy(body);
    bool read = read_object(wanted, object, fields, count, err);
    json_decref(object);
    return read;
}

bool wish_read_change(struct wanted *wanted, const json_t *body, struct error *err)
{
    static const struct field FIELDS[] = {{"resources", read_resources, false},
                                          {"network", read_network, false},
                                          {"on_idle", read_on_idle, false},
                                          {"metadata", read_metadata, false},
                                          {"name", read_name, false}};
    return read_copy(wanted, body, FIELDS, sizeof FIELDS / sizeof *FIELDS, err);
}

bool wish_read_token(struct wanted *wanted, const json_t *body, struct error *err)
{
    static const struct field FIELDS[] = {{"scopes", read_scopes, false},
                                          {"ttl", read_ttl, false},
                                          {"long", read_long, false},
                                          {"expires_at", read_token_end, false},
                                          {"actor", read_actor, false},
                                          {"wait", read_wait, false},
                                          {"capability_url", read_capability_url, false}};
    return read_copy(wanted, body, FIELDS, sizeof FIELDS / sizeof *FIELDS, err);
}

bool wish_read(struct wanted *wanted, const json_t *body, struct error *err)
{
    static const struct field FIELDS[] = {{"mode", read_mode, false},
                                          {"sandbox", read_hint, false},
                                          {"sandbox_id", read_hint, false},
                                          {"hint_policy", read_hint_policy, false},
                                          {"scopes", read_scopes, false},
                                          {"ttl", read_ttl, false},
                                          {"long", read_long, false},
                                          {"expires_at", read_token_end, false},
                                          {"idle_timeout", read_idle_timeout, true},
                                          {"max_lifetime", read_max_lifetime, true},
                                          {"template", read_template, false},
                                          {"isolation", read_isolation, false},
                                          {"resources", read_resources, false},
                                          {"network", read_network, false},
                                          {"env", read_env, false},
                                          {"ports", read_ports, false},
                                          {"volumes", read_volumes, false},
                                          {"entrypoint", read_entrypoint, false},
                                          {"origin", read_origin, false},
                                          {"on_idle", read_on_idle, false},
                                          {"name", read_name, false},
                                          {"metadata", read_metadata, false},
                                          {"actor", read_actor, false},
                                          {"wait", read_wait, false},
                                          {"capability_url", read_capability_url, false}};
    bool read = read_copy(wanted, body, FIELDS, sizeof FIELDS / sizeof *FIELDS, err);
    if (read && strcmp(wanted->hint, "auto") == 0)
        wanted->hint[0] = '\0';
    return read;
}
