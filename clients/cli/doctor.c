/** doctor.c - `parley doctor`: what protects you here, what is missing, how to get it. */
#include "clients/cli/cli.h"
#include "clients/cli/libs.h"
#include "clients/cli/lines.h"
#include "clients/cli/supervisor.h"

#include "shared/base/text.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley doctor [--libs]\n\nTells which isolation layers this machine gives, and whether the "
    "deployment answers. Exit status 1 when something is missing.\n\n"
    "  --libs               the libraries that the programs beside this one are linked with, and their "
    "versions\n" CLI_COMMON_HELP;

static void take_layer(void *layers, char *line)
{
    json_t *layer = json_loads(line, 0, NULL);
    if (layer)
        json_array_append_new(layers, layer);
}

/* sandboxd knows its layers; it prints one JSON object a line. */
static bool read_layers(const char *state, json_t *layers, struct error *err)
{
    AUTO_FREE char *sandboxd = cli_sibling("parley-sandboxd", err);
    const char *const argv[] = {sandboxd, "--doctor", "--state", state, NULL};
    return sandboxd && lines_of(argv, false, take_layer, layers, err) &&
           (json_array_size(layers) > 0 || error_set(err, ERROR_INTERNAL, "%s --doctor said nothing", sandboxd));
}

static json_t *layer(const char *name, bool active, const char *detail)
{
    return json_pack("{s:s, s:b, s:s}", "name", name, "active", active, "detail", detail);
}

static void add_deployment(json_t *layers, const struct cli_common *common, const char *state)
{
    struct error err = {0};
    AUTO_PLACE place = {0};
    if (!place_load(&place, common->url, &err)) {
        json_array_append_new(layers, layer("api key", false, err.message));
        return;
    }
    json_array_append_new(layers, layer("api key", true, place.url));
    bool ready = negotiator_call(&place, "GET", "/readyz", NULL, NULL, &err);
    json_array_append_new(layers,
                          layer("deployment", ready, ready ? "negotiator and at least one node answer" : err.message));
    bool known = ready && negotiator_call(&place, "GET", "/sandboxes?limit=1", NULL, NULL, &err);
    if (ready)
        json_array_append_new(layers, layer("credential", known, known ? "the API key is accepted" : err.message));
    if (supervisor_running(state, NULL))
        json_array_append_new(layers, layer("supervisor", true, "`parley up` restarts what dies"));
}

static void print_lib(const json_t *lib)
{
    AUTO_FREE char *library = cli_member(lib, "library"), *version = cli_member(lib, "version"),
                   *package = cli_member(lib, "package"), *linked = cli_member(lib, "linked");
    printf("%-24s %-28s %-24s %-7s", library, version, package, linked);
    const json_t *programs = json_object_get(lib, "programs");
    for (size_t i = 0; i < json_array_size(programs); i++)
        printf("%s%s", i ? "," : " ", json_string_value(json_array_get(programs, i)));
    putchar('\n');
}

static int tell_libs(const struct cli_common *common)
{
    struct error err = {0};
    json_t *libs = libs_list(&err), *lib;
    size_t index;
    if (!libs)
        return cli_fail(&err, NULL, CLI_FAILED);
    if (common->json) {
        cli_print_json(libs);
        return CLI_OK;
    }
    printf("%-24s %-28s %-24s %-7s %s\n", "LIBRARY", "VERSION", "PACKAGE", "LINKED", "PROGRAMS");
    json_array_foreach (libs, index, lib)
        print_lib(lib);
    json_decref(libs);
    return CLI_OK;
}

int doctor_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"libs", no_argument, NULL, 'L'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    bool wants_libs = false;
    for (int option; (option = getopt_long(argc, argv, "", LONG, NULL)) != -1;) {
        if (option == 'L')
            wants_libs = true;
        else
            cli_common(&common, option, HELP);
    }
    if (optind < argc)
        return cli_usage("doctor", "unexpected word \"%s\"", argv[optind]);
    if (wants_libs)
        return tell_libs(&common);
    struct error err = {0};
    AUTO_FREE char *state = cli_state(&common);
    json_t *layers = json_array();
    if (!read_layers(state, layers, &err)) {
        json_decref(layers);
        return cli_fail(&err, NULL, CLI_FAILED);
    }
    add_deployment(layers, &common, state);
    size_t index, missing = 0;
    bool lacks_rights = false; /* not so in a user namespace of its own: then what it says is what the daemons have */
    json_t *one;
    json_array_foreach (layers, index, one) {
        bool active = json_is_true(json_object_get(one, "active"));
        missing += !active;
        AUTO_FREE char *name = cli_member(one, "name");
        lacks_rights = lacks_rights || (!active && text_equal(name, "rights"));
        AUTO_FREE char *detail = cli_member(one, "detail");
        if (!common.json)
            printf("%s %-22s %s\n", active ? "ok     " : "MISSING", name, detail);
    }
    if (lacks_rights && geteuid() != 0 && !common.json)
        puts("        (asked as a plain user: `sudo parley doctor` tells what daemons that are root have)");
    if (common.json)
        cli_print_json(layers);
    else
        json_decref(layers);
    return missing ? CLI_FAILED : CLI_OK;
}
