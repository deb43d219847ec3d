#include "clients/cli/wish_options.h"

#include "clients/cli/amount.h"

#include "shared/base/memory.h"

#include <string.h>

static const uint64_t MEMORY_MIB_MIN = 16; /* a sandbox lives with no less */
static const uint64_t MEMORY_MIB_MAX = UINT64_C(1) << 24;

void wish_done(struct wish_options *wish)
{
    json_decref(wish->members);
    wish->members = NULL;
}

void wish_put(struct wish_options *wish, const char *name, json_t *value)
{
    wish->members = wish->members ? wish->members : json_object();
    json_object_set_new(wish->members, name, value);
}

static void put_resource(struct wish_options *wish, const char *name, json_t *value)
{
    json_t *resources = json_object_get(wish->members, "resources");
    if (resources) {
        json_object_set_new(resources, name, value);
        return;
    }
    resources = json_object();
    json_object_set_new(resources, name, value);
    wish_put(wish, "resources", resources);
}

/* A text that JSON can hold. */
static int put_text(struct wish_options *wish, const char *command, const char *name, const char *text)
{
    json_t *value = json_string(text);
    if (!value || !*text) {
        json_decref(value);
        return cli_usage(command, "--%s wants a text in UTF-8, not \"%s\"", name, text);
    }
    wish_put(wish, name, value);
    return CLI_OK;
}

static int put_size(struct wish_options *wish, const char *command, const char *option, const char *member,
                    uint64_t least_mib, uint64_t most_mib)
{
    uint64_t mib;
    struct error why;
    if (!amount_parse_mib(optarg, least_mib, most_mib, &mib, &why))
        return cli_usage(command, "--%s wants %s, not \"%s\"", option, why.message, optarg);
    put_resource(wish, member, json_integer((json_int_t)mib));
    return CLI_OK;
}

static int put_count(struct wish_options *wish, const char *command, const char *option, const char *member,
                     uint64_t least, uint64_t most)
{
    uint64_t count;
    if (!text_parse_u64(optarg, strlen(optarg), most, &count) || count < least)
        return cli_usage(command, "--%s wants %llu to %llu, not \"%s\"", option, (unsigned long long)least,
                         (unsigned long long)most, optarg);
    put_resource(wish, member, json_integer((json_int_t)count));
    return CLI_OK;
}

static int put_cpu(struct wish_options *wish, const char *command)
{
    double cores;
    if (!amount_parse_cores(optarg, 0.05, 1000, &cores))
        return cli_usage(command, "--cpu wants cores from 0.05 to 1000, such as 2 or 0.5, not \"%s\"", optarg);
    put_resource(wish, "cpu", json_real(cores));
    return CLI_OK;
}

static int put_on_idle(struct wish_options *wish, const char *command)
{
    if (strcmp(optarg, "pause") != 0 && strcmp(optarg, "stop") != 0)
        return cli_usage(command, "--on-idle wants pause or stop, not \"%s\"", optarg);
    wish_put(wish, "on_idle", json_string(optarg));
    return CLI_OK;
}

/* "never" is null. */
static int put_life(struct wish_options *wish, const char *command, const char *option, const char *member)
{
    static const int64_t LONGEST_S = INT64_C(3153600000); /* 100 years */
    int64_t seconds = 0;
    bool is_never = strcmp(optarg, "never") == 0;
    if (!is_never && (!cli_parse_seconds(optarg, &seconds) || seconds < 1 || seconds > LONGEST_S))
        return cli_usage(command, "--%s wants 1 to %lld seconds, or such as 30m, 2h, 1d, or never; not \"%s\"", option,
                         (long long)LONGEST_S, optarg);
    wish_put(wish, member, is_never ? json_null() : json_integer((json_int_t)seconds));
    return CLI_OK;
}

static int put_entrypoint(struct wish_options *wish, const char *command)
{
    json_t *arguments = json_pack("[s, s, s]", "sh", "-c", optarg);
    if (!arguments)
        return cli_usage(command, "--entrypoint wants a command in UTF-8");
    wish_put(wish, "entrypoint", arguments);
    return CLI_OK;
}

/* ---- network ---- */

json_t *wish_network(const char *command, const char *egress, json_t *allow)
{
    json_t *network = json_pack("{s:s, s:O*}", "egress", egress, "allow", allow);
    size_t i;
    const json_t *each;
    json_array_foreach (allow, i, each) {
        if (json_is_string(each))
            continue;
        (void)cli_usage(command, "what is allowed is a name or IPv4 addresses, in UTF-8");
        json_decref(network);
        return NULL;
    }
    return network;
}

static int put_network(struct wish_options *wish, const char *command, const char *egress, json_t *allow)
{
    json_t *network = wish_network(command, egress, allow);
    json_decref(allow);
    if (!network)
        return CLI_USAGE;
    wish_put(wish, "network", network);
    return CLI_OK;
}

static int put_egress(struct wish_options *wish, const char *command)
{
    if (json_object_get(wish->members, "network"))
        return cli_usage(command, "give --egress once, or --allow, not both");
    if (strcmp(optarg, "none") != 0 && strcmp(optarg, "public") != 0)
        return cli_usage(command, "--egress wants none or public, not \"%s\"; --allow WHERE names what is allowed",
                         optarg);
    return put_network(wish, command, optarg, NULL);
}

static int put_allow(struct wish_options *wish, const char *command)
{
    json_t *before = json_object_get(json_object_get(wish->members, "network"), "allow");
    if (!before && json_object_get(wish->members, "network"))
        return cli_usage(command, "give --egress or --allow, not both");
    json_t *allow = before ? json_copy(before) : json_array();
    json_t *where = json_string(optarg);
    json_array_append_new(allow, where ? where : json_null());
    return put_network(wish, command, "allow", allow);
}

/* ---- volumes ---- */

/* What follows the place inside: ro, rw, sub=PATH, size=SIZE. */
static int put_volume_part(json_t *volume, const char *command, const char *part)
{
    uint64_t mib;
    struct error why;
    if (strcmp(part, "ro") == 0 || strcmp(part, "rw") == 0) {
        json_object_set_new(volume, "read_only", json_boolean(part[1] == 'o'));
        return CLI_OK;
    }
    if (text_starts_with(part, "sub=") && json_object_set_new(volume, "sub_path", json_string(part + 4)) == 0)
        return CLI_OK;
    if (!text_starts_with(part, "size="))
        return cli_usage(
            command, "--volume: what is \"%s\"? Allowed behind the place inside: ro, rw, sub=PATH, size=SIZE", part);
    if (!amount_parse_mib(part + 5, 1, MEMORY_MIB_MAX, &mib, &why))
        return cli_usage(command, "--volume: size= wants %s, not \"%s\"", why.message, part + 5);
    json_object_set_new(volume, "size_mb", json_integer((json_int_t)mib));
    return CLI_OK;
}

static int read_volume(json_t *volume, const char *command, char *text)
{
    char *rest = text;
    const char *source = strsep(&rest, ":"), *path = strsep(&rest, ":");
    if (!*source || !path || path[0] != '/')
        return cli_usage(command, "--volume wants NAME:/INSIDE or /HOST/FOLDER:/INSIDE, not \"%s\"", optarg);
    if (source[0] != '/' && strchr(source, '/'))
        return cli_usage(command, "--volume: a folder of the node is an absolute path, not \"%s\"", source);
    if (json_object_set_new(volume, source[0] == '/' ? "host" : "name", json_string(source)) != 0 ||
        json_object_set_new(volume, "path", json_string(path)) != 0)
        return cli_usage(command, "--volume wants names in UTF-8");
    int wrong = CLI_OK;
    for (const char *part; !wrong && (part = strsep(&rest, ":")) != NULL;)
        wrong = put_volume_part(volume, command, part);
    return wrong;
}

static int put_volume(struct wish_options *wish, const char *command)
{
    AUTO_FREE char *text = memory_string(optarg);
    json_t *volume = json_object();
    int wrong = read_volume(volume, command, text);
    if (wrong) {
        json_decref(volume);
        return wrong;
    }
    json_t *volumes = json_object_get(wish->members, "volumes");
    if (!volumes) {
        wish_put(wish, "volumes", json_array());
        volumes = json_object_get(wish->members, "volumes");
    }
    json_array_append_new(volumes, volume);
    return CLI_OK;
}

/* ---- all of them ---- */

bool wish_option(struct wish_options *wish, const char *command, int option, int *wrong)
{
    switch (option) {
    case WISH_TEMPLATE:
        *wrong = put_text(wish, command, "template", optarg);
        return true;
    case WISH_ISOLATION:
        *wrong = put_text(wish, command, "isolation", optarg);
        return true;
    case WISH_VOLUME:
        *wrong = put_volume(wish, command);
        return true;
    case WISH_EGRESS:
        *wrong = put_egress(wish, command);
        return true;
    case WISH_ALLOW:
        *wrong = put_allow(wish, command);
        return true;
    case WISH_ON_IDLE:
        *wrong = put_on_idle(wish, command);
        return true;
    case WISH_IDLE_TIMEOUT:
        *wrong = put_life(wish, command, "idle-timeout", "idle_timeout");
        return true;
    case WISH_LIFETIME:
        *wrong = put_life(wish, command, "lifetime", "max_lifetime");
        return true;
    case WISH_ENTRYPOINT:
        *wrong = put_entrypoint(wish, command);
        return true;
    case WISH_CPU:
        *wrong = put_cpu(wish, command);
        return true;
    case WISH_MEMORY:
        *wrong = put_size(wish, command, "memory", "memory_mb", MEMORY_MIB_MIN, MEMORY_MIB_MAX);
        return true;
    case WISH_DISK:
        *wrong = put_size(wish, command, "disk", "disk_mb", 1, MEMORY_MIB_MAX);
        return true;
    case WISH_OUTPUT:
        *wrong = put_size(wish, command, "output", "output_mb", 1, 1024);
        return true;
    case WISH_PIDS:
        *wrong = put_count(wish, command, "pids", "pids", 16, 1000000);
        return true;
    case WISH_OPEN_FILES:
        *wrong = put_count(wish, command, "open-files", "open_files", 16, 1048576);
        return true;
    case WISH_PROCESSES:
        *wrong = put_count(wish, command, "processes", "processes", 1, 1000);
        return true;
    default:
        return false;
    }
}

int wish_fail(const struct wish_options *wish, const struct error *err, int status)
{
    if (err->kind != ERROR_CONFLICT || !wish->members)
        return cli_fail_usual(err, status);
    return cli_fail(err,
                    "`parley limits` and `parley net` change them while it runs, --thread NAME makes another sandbox, "
                    "`parley rm` ends this one",
                    status);
}
