/** command.h - what is to be started in a sandbox, as a value that travels to the sandbox's loop. */
#pragma once

#include "sandboxd/front_init/front_init.h"
#include "shared/base/cleanup.h"
#include "shared/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COMMAND_ARGUMENTS_MAX 8192
#define COMMAND_VARIABLES_MAX 1024
#define COMMAND_HASH_BYTES    16

struct command {
    char id[FRONT_INIT_ID_BYTES]; /* "": one is made */
    char *cwd;                    /* NULL: where commands of the sandbox start */
    char **arguments;             /* NULL-ended */
    size_t argument_count;
    char **variables; /* "NAME=value", NULL-ended: what the asker wants beside the defaults */
    size_t variable_count;
    uint64_t timeout_ms;    /* 0: none */
    bool is_line;           /* its arguments are "/bin/bash", "-c", a line, and /bin/sh will do */
    bool as_root;           /* uid 0 of the sandbox; else its user */
    bool merges;            /* its stderr is its stdout; without terminal */
    bool with_stdin;        /* a pipe; else /dev/null */
    bool terminal;          /* its streams are a new one; implies with_stdin and stdin_stays_open */
    unsigned columns, rows; /* of it, 1..FRONT_INIT_CELLS_MAX */
    bool stdin_stays_open;  /* after `input` */
    void *input;            /* written to stdin first; NULL: nothing */
    size_t input_size;
    int program;     /* a sealed memfd, ours: the command finds its bytes as descriptor FRONT_INIT_PROGRAM; -1 none */
    unsigned zygote; /* 0; or 1..FRONT_INIT_ZYGOTES: it is forked from that process, which is started by: */
    struct command *zygote_command; /* ours; arguments and variables count, and cwd. NULL without zygote */
    char *origin;                   /* who wants it, a text for process_deed that nobody here reads; may be NULL */
};

struct command *command_new(void) MUST_USE;
void command_free(struct command *command);
DEFINE_AUTO(command)

/** Copies. ERROR_INVALID past COMMAND_ARGUMENTS_MAX. */
bool command_add_argument(struct command *command, const char *text, struct error *err) MUST_USE;

/** `name` must be a variable's name (letters, digits, _, not starting with a digit): ERROR_INVALID. */
bool command_add_variable(struct command *command, const char *name, const char *value, struct error *err) MUST_USE;

/** Makes its arguments those of a login shell: the user's own where SHELL names one, else what the template has. */
bool command_set_login_shell(struct command *command, struct error *err) MUST_USE;

/** Gives it a program: a descriptor of its own (O_CLOEXEC) of the sealed memfd `fd`, which stays the caller's.
 * INVALID, TOO_LARGE as front_init_program_check; NO_CAPACITY. */
bool command_set_program(struct command *command, int fd, struct error *err) MUST_USE;

/** Has it forked from zygote 1..FRONT_INIT_ZYGOTES, which `zygote_command` (taken in every case) starts where it does
 * not run yet; it needs a program then. INVALID when it has none, is root's or has a terminal. */
bool command_set_zygote(struct command *command, unsigned zygote, struct command *zygote_command,
                        struct error *err) MUST_USE;

/** Ids that only we give: those of contexts ("kernel.") and of /execute ("execution."). INVALID says so to a client
 * that asks for one. */
bool command_check_client_id(const char *id, struct error *err) MUST_USE;

/** Tells two commands apart: arguments, cwd, variables, timeout, input, terminal, user, program (the same open file or
 *  the same file), zygote; not the id, nor how the zygote is started. */
void command_hash(const struct command *command, uint8_t hash[static COMMAND_HASH_BYTES]);

/** What a command finds in its sandbox; the texts with variables as in env.h. */
struct command_ground {
    const char *template_env, *sandbox_env;
    const char *workdir; /* absolute */
    uint32_t uid;        /* of commands that are not root's */
};

/** The sealed memfd for FI_START: defaults (a terminal's TERM among them), then the template's, who it runs as where
 * that is root, then the sandbox's, then the command's own, the last of one name winning. -1 as
 * front_init_command_seal. */
int command_seal(const struct command *command, const struct command_ground *ground, struct error *err) MUST_USE;

/** The value of a variable that commands of that uid have where neither template nor sandbox says another; NULL: none.
 *  Static. */
const char *command_default_variable(const char *name, uint32_t uid) MUST_USE;

/** The command line as one text, cut to fit. */
void command_title(const struct command *command, char *to, size_t size);
/** The same whole; of a line (is_line) the line alone. The caller frees. */
char *command_text(const struct command *command) MUST_USE;
