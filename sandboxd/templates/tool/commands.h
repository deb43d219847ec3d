/** commands.h - what `parley-sandboxd template` can do: import, build, ls, show, rm. */
#pragma once

#include "sandboxd/templates/templates.h"

#include <jansson.h>

/** What all commands have, and where templates lie. */
struct command {
    char *folder; /* STATE/sandboxd/templates */
    bool is_json;
};

/* argv[0] is the command's name. They return the exit status: 0, 1 failed, 2 wrong words. */
int command_import(struct command *command, int argc, char *argv[]);
int command_build(struct command *command, int argc, char *argv[]);
int command_ls(struct command *command, int argc, char *argv[]);
int command_show(struct command *command, int argc, char *argv[]);
int command_rm(struct command *command, int argc, char *argv[]);

/* Options that every command takes; the text of each command's --help. */
enum { COMMAND_JSON = 1000, COMMAND_STATE, COMMAND_HELP, COMMAND_FIRST_OWN };
#define COMMAND_OPTIONS                                                                                                \
    {"json", no_argument, NULL, COMMAND_JSON}, {"state", required_argument, NULL, COMMAND_STATE},                      \
        {"help", no_argument, NULL, COMMAND_HELP},                                                                     \
    {                                                                                                                  \
        NULL, 0, NULL, 0                                                                                               \
    }
#define COMMAND_HELP_TEXT                                                                                              \
    "  --state DIR        the deployment's state folder (default: PARLEY_STATE, /var/lib/parley as root)\n"            \
    "  --json             one JSON value on stdout\n"                                                                  \
    "  --help             this text\n"

/** Takes a common option; --help prints and ends the program, an unknown one ends it with 2. */
void command_option(struct command *command, int option, const char *help);
/** Prints the failure, under --json also on stdout; returns 1, or 2 for ERROR_INVALID of the words themselves. */
int command_fail(const struct command *command, const struct error *err);
int command_usage(const char *help, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** A number of an option; ends the program with 2 when it is none of min..max. */
uint64_t command_number(const char *option, const char *text, uint64_t min, uint64_t max);

/** A template as JSON, and as lines for people. */
json_t *command_describe(const struct template *shown) MUST_USE;
void command_print(const struct command *command, const struct template *shown);
