/** command.h - the commands of a sandbox: from START to FORGET, and what they leave running behind. */
#pragma once

#include "sandboxd/init/init.h"
#include "sandboxd/init/streams.h"

enum command_state {
    COMMAND_STARTING, /* cloned; execve not known to have come */
    COMMAND_RUNNING,
    COMMAND_ENDED,     /* its main process was reaped */
    COMMAND_FORGOTTEN, /* by the front; kept while processes are left in its cgroup */
    COMMAND_REFUSED    /* never ran; out of the table, kept until the front has been told */
};

struct command {
    TAILQ_ENTRY(command) link; /* in init->untold when is_untold */
    bool is_untold;
    bool started_told, end_told;
    enum command_state state;
    char id[FRONT_INIT_ID_BYTES];
    pid_t pid;       /* valid until ENDED; 0 while there is an order */
    uint64_t serial; /* run/e<serial>; 0 when it has none, or none any more */
    struct streams streams;
    struct order *order; /* STARTING, by a zygote: it has neither pid nor serial yet; else NULL */
    struct watch
        watch; /* STARTING: the refusal pipe, or an order's hello; ENDED, FORGOTTEN: cgroup.events until it is empty */
    uint64_t start_boot_ns, timeout_ms;
    uint64_t due_boot_ns; /* the timeout; 0 none, or over */
    int64_t start_wall_ms;
    bool timed_out, killed; /* asked for */
    struct error refusal;   /* kind ERROR_NONE when there is none */
    struct fi_exited exited;
    char title[sizeof((struct fi_started *)0)->title];
};

/** The command of that id; NULL. Forgotten and refused ones have none. */
struct command *command_find(struct init *init, const char *id) MUST_USE;
struct command *command_find_pid(struct init *init, pid_t pid) MUST_USE;

/** FI_START with its descriptors, which the caller closes. The answer goes to the front now or later. */
void command_start(struct init *init, const struct fi_start *message, const int *fds);

/** The rest of what a front may ask. What does not fit the command's state is ignored. */
void command_signal(struct command *command, struct init *init, int number);
void command_kill(struct command *command, struct init *init);
/** Of a terminal nothing while the command runs; then the whole terminal but its output: the sandbox has few. */
void command_end_stdin(struct command *command);
void command_forget(struct command *command, struct init *init);

struct rusage;
/** Its main process is gone. */
void command_reaped(struct command *command, struct init *init, int status, const struct rusage *usage);

/** Its timeout has come. */
void command_time_out(struct command *command, struct init *init);

/** Frees it with all it holds; it must not be in the table. */
void command_free(struct command *command, struct init *init);

/** It will not run: out of the table, and told to the front; it may be freed then. */
void command_refuse(struct command *command, struct init *init, const struct error *why);
/** It runs: told to the front. */
void command_runs(struct command *command, struct init *init);

/** What a command left behind was reaped: where nothing else tells, those that had ended may be removed now. */
void command_orphan_reaped(struct init *init);

/** For start.c: reads what the refusal pipe says, if it says anything yet. */
void command_settle(struct command *command, struct init *init);
/** For start.c: into the table; and the timer set. */
void command_add(struct command *command, struct init *init);
