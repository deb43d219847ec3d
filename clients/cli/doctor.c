/** doctor.c - `parley doctor`: what protects you here, what is missing, how to get it. */
#include "clients/cli/cli.h"
#include "clients/cli/supervisor.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static const char HELP[] = "usage: parley doctor\n\nTells which isolation layers this machine gives, and whether the "
                           "deployment answers. Exit status 1 when something is missing.\n\n" CLI_COMMON_HELP;

/* sandboxd knows its layers; it prints one JSON object a line. */
static bool read_layers(const char *state, json_t *layers, struct error *err)
{
    AUTO_FREE char *sandboxd = cli_sibling("parley-sandboxd", err);
    if (!sandboxd)
        return false;
    int ends[2];
    if (pipe(ends) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl(sandboxd, sandboxd, "--doctor", "--state", state, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *lines = fdopen(ends[0], "r");
    char *line = NULL;
    size_t capacity = 0;
    while (lines && getline(&line, &capacity, lines) > 0) {
        json_t *layer = json_loads(line, 0, NULL);
        if (layer)
            json_array_append_new(layers, layer);
    }
    free(line);
    if (lines)
        fclose(lines);
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return error_set(err, ERROR_INTERNAL, "%s --doctor did not run", sandboxd);
    return json_array_size(layers) > 0 || error_set(err, ERROR_INTERNAL, "%s --doctor said nothing", sandboxd);
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

int doctor_main(int argc, char *argv[])
{
    static const struct option LONG[] = {CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1)
        cli_common(&common, option, HELP);
    if (optind < argc)
        return cli_usage("doctor", "unexpected word \"%s\"", argv[optind]);
    struct error err = {0};
    AUTO_FREE char *state = cli_state(&common);
    json_t *layers = json_array();
    if (!read_layers(state, layers, &err)) {
        json_decref(layers);
        return cli_fail(&err, NULL, CLI_FAILED);
    }
    add_deployment(layers, &common, state);
    size_t index, missing = 0;
    json_t *one;
    json_array_foreach (layers, index, one) {
        bool active = json_is_true(json_object_get(one, "active"));
        missing += !active;
        AUTO_FREE char *name = cli_member(one, "name");
        AUTO_FREE char *detail = cli_member(one, "detail");
        if (!common.json)
            printf("%s %-22s %s\n", active ? "ok     " : "MISSING", name, detail);
    }
    if (missing && geteuid() != 0 && !common.json)
        puts("        (asked as a plain user: `sudo parley doctor` tells what the daemons, which are root, have)");
    if (common.json)
        cli_print_json(layers);
    else
        json_decref(layers);
    return missing ? CLI_FAILED : CLI_OK;
}
