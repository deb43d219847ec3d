#include "negotiator/commands.h"
#include "negotiator/deployment.h"
#include "negotiator/fleet/fleet.h"
#include "shared/base/config.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char HELP[] = "usage: parley-negotiator enrol [--node NAME] [--negotiator-url URL] [--state DIR]\n\n"
                           "Writes STATE/sandboxd/node.json (0600): the name, key and negotiator of the node on this "
                           "machine. The key follows\n"
                           "from the master key, so doing it again changes nothing, and no negotiator need run.\n\n";

struct enrol_settings {
    char *state, *node, *negotiator_url;
};

static const struct config_row ROWS[] = {
    {"state", CONFIG_TEXT, offsetof(struct enrol_settings, state), NULL, 0, 0, "folder of all state"},
    {"node", CONFIG_TEXT, offsetof(struct enrol_settings, node), "n1", 0, 0, "name, 1 to 63 of A-Za-z0-9._-"},
    {"negotiator_url", CONFIG_TEXT, offsetof(struct enrol_settings, negotiator_url), "http://127.0.0.1:8700", 0, 0,
     "where the node finds us"},
};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS };

static void enrol_settings_done(struct enrol_settings *settings)
{
    config_done(settings, ROWS, ROW_COUNT);
}

static bool write_node(const struct enrol_settings *settings, const struct deployment *deployment, const char *folder,
                       struct error *err)
{
    AUTO_KEY key;
    char key_text[TEXT_BASE64URL_LENGTH(KEY_BYTES) + 1];
    key_node(&key, &deployment->master, settings->node, FLEET_EPOCH);
    text_base64url_encode(key_text, key.bytes, sizeof key.bytes);
    json_t *json = json_pack("{s:s, s:s, s:i, s:s, s:s}", "deployment", deployment->id, "node", settings->node, "epoch",
                             FLEET_EPOCH, "node_key", key_text, "negotiator_url", settings->negotiator_url);
    sodium_memzero(key_text, sizeof key_text);
    if (json == NULL)
        return error_set(err, ERROR_INVALID, "negotiator_url is not UTF-8");
    AUTO_FREE char *path = memory_printf("%s/node.json", folder);
    char *text = json_dumps(json, JSON_INDENT(1));
    json_decref(json);
    bool written = fd_write_file(path, 0600, text, strlen(text), err);
    sodium_memzero(text, strlen(text));
    free(text);
    return written;
}

static bool enrol(int argc, char *argv[], struct error *err)
{
    __attribute__((cleanup(enrol_settings_done))) struct enrol_settings settings = {0};
    AUTO_FREE char *state = config_state_folder(argc, argv);
    AUTO_FREE char *folder = memory_printf("%s/sandboxd", state);
    AUTO_DEPLOYMENT deployment = {.id = ""};
    if (!config_load(&settings, ROWS, ROW_COUNT, NULL, NULL, argc, argv, err))
        return false;
    if (!text_is_made_of(settings.node, LINK_NODE_BYTES - 1, "._-"))
        return error_set(err, ERROR_INVALID, "node must be 1 to %d of A-Za-z0-9._-", LINK_NODE_BYTES - 1);
    if (!text_starts_with(settings.negotiator_url, "http://") && !text_starts_with(settings.negotiator_url, "https://"))
        return error_set(err, ERROR_INVALID, "negotiator_url must begin with http:// or https://");
    if (!deployment_open(&deployment, state, err) || !fd_make_folders(folder, 0711, err) ||
        !write_node(&settings, &deployment, folder, err))
        return false;
    printf("node %s enrolled in %s/node.json\n", settings.node, folder);
    return true;
}

int enrol_main(int argc, char *argv[])
{
    struct error err = {0};
    if (argc == 1 && text_equal(argv[0], "--help")) {
        fputs(HELP, stdout);
        config_print_help(stdout, ROWS, ROW_COUNT);
        return 0;
    }
    umask(0077);
    keys_start();
    if (enrol(argc, argv, &err))
        return 0;
    fprintf(stderr, "parley-negotiator enrol: %s\n", err.message);
    return err.kind == ERROR_INVALID ? 2 : 1;
}
