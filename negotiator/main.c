/* main.c - parley-negotiator: decides who may use which sandbox, records it, and says so in a token. */
#include "negotiator/commands.h"
#include "negotiator/dialects/plane.h"
#include "negotiator/settings.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley-negotiator [--SETTING VALUE ...]        serve until SIGTERM\n"
    "       parley-negotiator audit verify [--state DIR]   prove the audit chain\n"
    "       parley-negotiator --routes | --version | --help\n\n"
    "Every setting is also a key in STATE/config.json and PARLEY_<KEY> in the environment:\n\n";

static const struct {
    const char *name;
    int (*run)(int argc, char *argv[]);
} COMMANDS[] = {{"audit", audit_main}};

static int print_help(void)
{
    fputs(HELP, stdout);
    settings_print_help(stdout);
    return 0;
}

static int print_routes(void)
{
    size_t count = 0;
    const struct http_route *routes = plane_routes(&count);
    http_routes_print(routes, count);
    return 0;
}

int main(int argc, char *argv[])
{
    const char *first = argc > 1 ? argv[1] : "--serve";
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        return print_help();
    if (strcmp(first, "--version") == 0)
        return puts("parley-negotiator " PARLEY_VERSION) < 0;
    if (strcmp(first, "--routes") == 0)
        return print_routes();
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++) {
        if (strcmp(first, COMMANDS[i].name) == 0)
            return COMMANDS[i].run(argc - 2, argv + 2);
    }
    if (first[0] != '-') {
        fprintf(stderr, "parley-negotiator: there is no command %.64s; see --help\n", first);
        return 2;
    }
    return serve_main(argc - 1, argv + 1);
}
