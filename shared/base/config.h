/** config.h - one parser for a program's settings: built-in default < STATE/config.json < PARLEY_<KEY> < --key VALUE.
 *  A program owns one table of rows; --help, the file, the environment and the flags all read that table. */
#pragma once

#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum config_type {
    CONFIG_TEXT,   /* char *, owned by the struct; NULL when unset */
    CONFIG_NUMBER, /* int64_t, within min..max */
    CONFIG_SWITCH  /* bool: true|false, in the environment also 1|0; as a flag without a value: true */
};

/** One setting. `name` is snake_case: the file's key, PARLEY_NAME in the environment, --na-me (or --na_me) as a flag.
 */
struct config_row {
    const char *name;
    enum config_type type;
    size_t offset;            /* of the field in the program's struct */
    const char *default_text; /* parsed like the environment's; NULL: unset, 0, false */
    int64_t min, max;         /* CONFIG_NUMBER only */
    const char *help;         /* one line with unit and range */
};

/** Fills `settings` (zeroed, or after config_done) from all sources; an empty variable counts as none. `file` (a flat
 * JSON object of at most 1 MiB) may be missing or NULL; `argv` is without the program's name, and every word must be a
 * known flag or its value (one that starts with -- only as --name=VALUE). ERROR_INVALID names the key, the source and
 * what is allowed. Unknown keys in the file are refused unless `foreign` (NULL, or a NULL-ended list) names them: one
 * file serves two programs. */
bool config_load(void *settings, const struct config_row *rows, size_t row_count, const char *file,
                 const char *const *foreign, int argc, char *const argv[], struct error *err) MUST_USE;

/** Frees the texts. */
void config_done(void *settings, const struct config_row *rows, size_t row_count);

/** Prints the table for --help: flag, default, help. */
void config_print_help(FILE *to, const struct config_row *rows, size_t row_count);

/** Where state is when neither --state nor PARLEY_STATE say: /var/lib/parley as root, else $XDG_STATE_HOME/parley or
 *  ~/.local/state/parley. The caller frees. Looks for "--state DIR" / "--state=DIR" in argv first. */
char *config_state_folder(int argc, char *const argv[]) MUST_USE;

/** config_load for a program that has a state folder: the file is STATE/config.json, and the row "state" (a
 * CONFIG_TEXT) gets the folder that config_state_folder finds. ERROR_INVALID too when that is no absolute path. */
bool config_load_state(void *settings, const struct config_row *rows, size_t row_count, const char *const *foreign,
                       int argc, char *const argv[], struct error *err) MUST_USE;

/** Those of a deployment's own, by `parley tls init`: where neither file is set, and STATE/tls/server.pem is there,
 * they become STATE/tls/server.pem and server.key; and *ca, where not set, STATE/tls/ca.pem if that is there. */
void config_default_tls(const char *state, char **cert, char **key, char **ca);

/** Sets the log's level from a setting: debug, info, warn or error; else ERROR_INVALID. */
bool config_set_log_level(const char *text, struct error *err) MUST_USE;

/** Sets the log's format from a setting: text or json; else ERROR_INVALID. */
bool config_set_log_format(const char *text, struct error *err) MUST_USE;

/** What a listener has: TLS by both files or none, or the operator's word that it needs none. */
struct config_listener {
    const char *host; /* an address or "localhost"; any other name is what its resolver says, so it counts as beyond */
    const char *tls_cert, *tls_key; /* NULL: none */
    bool insecure_http;
};

/** Refuses (ERROR_INVALID) one beyond loopback that has neither TLS nor `insecure_http`, and half of a pair. */
bool config_check_listener(const struct config_listener *listener, struct error *err) MUST_USE;
