/* process_verbs.c - what the verbs on commands do, on the sandbox's loop. */
#include "sandboxd/sandbox/programs.h"
#include "sandboxd/sandbox/sandbox_internal.h"

#include "sandboxd/sandbox/kernels/kernels.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"

#include <signal.h>
#include <sodium.h>
#include <string.h>

static bool same_command(const uint8_t *asked, const uint8_t *known, bool hash_known)
{
    return !hash_known || memcmp(asked, known, COMMAND_HASH_BYTES) == 0;
}

/* `before "id" after`. */
static void refuse(struct verb *verb, enum error_kind kind, const char *before, const char *after)
{
    struct error err = {0};
    error_set(&err, kind, "%s \"%s\" %s", before, verb->process_id, after);
    verb_finish(verb, &err);
}

/* By its place in stdin, so that what is there already is not given twice. */
static void give_input(struct process *process, struct command *command)
{
    bool eof = !command->stdin_stays_open;
    if (!command->with_stdin || (command->input_size == 0 && !eof))
        return;
    struct verb *verb = verb_new(process->sandbox->all, process->sandbox->facts.id);
    verb->data = TAKE(command->input);
    verb->size = command->input_size;
    verb->eof = eof;
    process_input_write(process, verb); /* a new command's queue is empty, and the sandbox had room: it fits */
}

/* The same id again: false when it is new, else the verb is dealt with. */
static bool attach_to_known(struct sandbox *sandbox, struct verb *verb, const uint8_t *hash)
{
    struct process *process = process_find(sandbox, verb->process_id);
    const struct process_tomb *tomb = process ? NULL : process_find_tomb(sandbox, verb->process_id);
    if (!process && !tomb)
        return false;
    if (!same_command(hash, process ? process->hash : tomb->hash, process ? process->hash_known : tomb->hash_known)) {
        refuse(verb, ERROR_CONFLICT, "id", "is already another command of this sandbox");
        return true;
    }
    if (process && process->state != PROCESS_ENDED && !sandbox_wake(sandbox, verb))
        return true;
    if (process) {
        if (!process->hash_known) /* the front that began it may have gone before it gave it all */
            give_input(process, verb->command);
        process_attach(process, verb->follower);
    } else {
        follower_tell_ended(verb->follower, &tomb->view);
        follower_tell_started(verb->follower, NULL, &tomb->view);
    }
    verb_finish(verb, NULL);
    return true;
}

/* Whoever keeps the audit has a word: what cannot be recorded is not done. */
static bool may_start(const struct sandbox *sandbox, const struct command *command, const char *id, struct error *err)
{
    const struct sandboxes_options *options = &sandbox->all->options;
    struct process_deed deed = {
        .sandbox_id = sandbox->facts.id, .process_id = id, .origin = command->origin, .command = command};
    return !options->command_starts || options->command_starts(options->context, &deed, err);
}

static void tell_not_started(const struct sandbox *sandbox, const struct command *command, const char *id,
                             const struct error *why)
{
    const struct sandboxes_options *options = &sandbox->all->options;
    struct process_deed deed = {
        .sandbox_id = sandbox->facts.id, .process_id = id, .origin = command->origin, .why = why};
    if (options->command_ended)
        options->command_ended(options->context, &deed);
}

/* The descriptors of a START. */
struct parcel {
    int fds[FI_START_FDS];
    size_t count;
};

static void parcel_done(struct parcel *parcel)
{
    for (size_t i = 0; i < parcel->count; i++)
        close(parcel->fds[i]);
    parcel->count = 0;
}

static bool parcel_add(struct parcel *parcel, int fd)
{
    if (fd >= 0)
        parcel->fds[parcel->count++] = fd;
    return fd >= 0;
}

static bool parcel_make(struct parcel *parcel, struct sandbox *sandbox, const struct command *command,
                        struct error *err)
{
    const struct command_ground ground = {.template_env = sandbox->facts.template_env,
                                          .sandbox_env = sandbox->facts.env,
                                          .workdir = sandbox->facts.workdir,
                                          .uid = sandbox->facts.uid};
    bool is_made = parcel_add(parcel, command_seal(command, &ground, err));
    if (is_made && command->program >= 0)
        is_made = parcel_add(parcel, programs_open(sandbox, command->program, err));
    if (is_made && command->zygote != 0)
        is_made = parcel_add(parcel, command_seal(command->zygote_command, &ground, err));
    return is_made;
}

static void fill_start(struct fi_start *start, const struct sandbox *sandbox, const struct command *command,
                       const char *id)
{
    memcpy(start->id, id, strlen(id) + 1);
    start->with_stdin = command->with_stdin;
    start->merges = command->merges;
    start->terminal = command->terminal;
    start->columns = command->terminal ? (uint16_t)command->columns : 0;
    start->rows = command->terminal ? (uint16_t)command->rows : 0;
    start->timeout_ms = command->timeout_ms;
    start->as_root = command->as_root;
    start->open_files = sandbox->facts.limits.open_files;
    start->with_program = command->program >= 0;
    start->zygote = (uint8_t)command->zygote;
}

static bool send_start(struct sandbox *sandbox, const struct command *command, const char *id, struct error *err)
{
    struct parcel parcel = {.count = 0};
    struct front_init_message message = {.type = FI_START};
    if (!parcel_make(&parcel, sandbox, command, err) || !may_start(sandbox, command, id, err)) {
        parcel_done(&parcel);
        return false;
    }
    fill_start(&message.as.start, sandbox, command, id);
    if (sandbox_send_several(sandbox, &message, parcel.fds, parcel.count, err))
        return true;
    tell_not_started(sandbox, command, id, err);
    return false;
}
static bool may_be_root(const struct sandbox *sandbox, const struct command *command, struct error *err)
{
    return !command->as_root || sandbox->facts.root_allowed ||
           error_set(err, ERROR_FORBIDDEN,
                     "this sandbox runs no commands as root: the role that asked for it, or the "
                     "node (root_user), does not allow it");
}

static struct process *start(struct sandbox *sandbox, struct verb *verb, const uint8_t *hash, struct error *err)
{
    if (!process_make_room(sandbox)) {
        error_set(err, ERROR_NO_CAPACITY,
                  "too many commands are running: at most %u in this sandbox, and fewer where the "
                  "host gives few descriptors (ulimit -n)",
                  process_commands_max(sandbox));
        return NULL;
    }
    struct command *command = verb->command;
    if (!command->cwd) /* for the record too */
        command->cwd = memory_string(sandbox->facts.workdir);
    if (!process_input_has_room(sandbox, command->input_size, err) ||
        !send_start(sandbox, command, verb->process_id, err))
        return NULL;
    struct process *process = process_new(sandbox, verb->process_id);
    command_title(command, process->view.title, sizeof process->view.title);
    process_keep_line(process, command);
    process->named = command->id[0] != 0;
    process->view.terminal = command->terminal;
    process->view.columns = command->terminal ? command->columns : 0;
    process->view.rows = command->terminal ? command->rows : 0;
    process->hash_known = true;
    process->origin = TAKE(command->origin);
    memcpy(process->hash, hash, COMMAND_HASH_BYTES);
    give_input(process, command);
    return process;
}

void process_verb_exec(struct sandbox *sandbox, struct verb *verb)
{
    uint8_t hash[COMMAND_HASH_BYTES];
    command_hash(verb->command, hash);
    if (verb->command->id[0]) {
        memcpy(verb->process_id, verb->command->id, sizeof verb->process_id);
        if (attach_to_known(sandbox, verb, hash))
            return;
    } else {
        char id[RANDOM_ID_BYTES];
        random_id(id, "exe");
        memcpy(verb->process_id, id, sizeof id);
    }
    struct error err = {0};
    if (!may_be_root(sandbox, verb->command, &err)) {
        verb_finish(verb, &err);
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    struct process *process = start(sandbox, verb, hash, &err);
    if (!process) {
        verb_finish(verb, &err);
        return;
    }
    follower_begins(verb->follower);
    process_attach(process, verb->follower);
    sandbox_touch(sandbox);
    verb_finish(verb, NULL);
}

void process_start_alone(struct sandbox *sandbox, struct verb *verb)
{
    struct error err = {0};
    uint8_t hash[COMMAND_HASH_BYTES];
    memcpy(verb->process_id, verb->command->id, sizeof verb->process_id);
    if (process_find(sandbox, verb->process_id) || process_find_tomb(sandbox, verb->process_id) || sandbox->paused)
        return;
    command_hash(verb->command, hash);
    if (!start(sandbox, verb, hash, &err))
        log_warn("sandbox", "command %s was not started: %s sandbox=%s", verb->process_id, err.message,
                 sandbox->facts.id);
}

static struct process *find_or_refuse(struct sandbox *sandbox, struct verb *verb)
{
    struct process *process = process_find(sandbox, verb->process_id);
    if (!process)
        refuse(verb, ERROR_NOT_FOUND, "command", "is not known here (output is kept 10 minutes after the end)");
    return process;
}

void process_verb_follow(struct sandbox *sandbox, struct verb *verb)
{
    struct process *process = find_or_refuse(sandbox, verb);
    if (!process)
        return;
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        const struct output *output = process->streams[i].output;
        uint64_t length = output ? output->length : 0;
        if (follower_read_to(verb->follower, (enum output_stream)i) > length) {
            struct error err = {0};
            error_set(&err, ERROR_RANGE, "%s of command %s has %llu bytes so far",
                      output_stream_name((enum output_stream)i), verb->process_id, (unsigned long long)length);
            verb_finish(verb, &err);
            return;
        }
    }
    /* Who only watches can wait for those who use it. */
    if (process->state != PROCESS_ENDED && follower_mode(verb->follower) == FOLLOWER_DRIVER &&
        !sandbox_wake(sandbox, verb))
        return;
    process_attach(process, verb->follower);
    verb_finish(verb, NULL);
}

static void send_and_finish(struct sandbox *sandbox, struct verb *verb, const struct front_init_message *message)
{
    struct error err = {0};
    bool sent = sandbox_send(sandbox, message, -1, &err);
    sandbox_touch(sandbox);
    verb_finish(verb, sent ? NULL : &err);
}

void process_verb_signal(struct sandbox *sandbox, struct verb *verb)
{
    const struct process *process = find_or_refuse(sandbox, verb);
    if (!process)
        return;
    if (process->state == PROCESS_ENDED) {
        refuse(verb, ERROR_CONFLICT, "command", "has ended");
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    if (process->terminal && terminal_signal(process->terminal, verb->signal)) {
        sandbox_touch(sandbox);
        verb_finish(verb, NULL);
        return;
    }
    struct front_init_message message = {.type = FI_SIGNAL};
    memcpy(message.as.signal.id, verb->process_id, sizeof message.as.signal.id);
    message.as.signal.number = verb->signal;
    send_and_finish(sandbox, verb, &message);
}

void process_verb_kill(struct sandbox *sandbox, struct verb *verb)
{
    if (!find_or_refuse(sandbox, verb) || !sandbox_wake(sandbox, verb))
        return;
    struct front_init_message message = {.type = FI_KILL};
    memcpy(message.as.name.id, verb->process_id, sizeof message.as.name.id);
    send_and_finish(sandbox, verb, &message);
}

void process_verb_remove(struct sandbox *sandbox, struct verb *verb)
{
    struct process *process = process_find(sandbox, verb->process_id);
    if (!process && process_drop_tomb(sandbox, verb->process_id)) {
        verb_finish(verb, NULL);
        return;
    }
    if (!find_or_refuse(sandbox, verb))
        return;
    if (process->end_told) {
        process->named = false; /* no tomb */
        process_forget(process);
        verb_finish(verb, NULL);
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    process->named = false;
    process->view.leaving = true;
    struct front_init_message message = {.type = FI_KILL};
    memcpy(message.as.name.id, verb->process_id, sizeof message.as.name.id);
    send_and_finish(sandbox, verb, &message);
}

/* Also what an ended one left behind: a child may ignore what its command heeds. */
static void kill_stopped(void *cookie)
{
    struct process *process = cookie;
    struct front_init_message message = {.type = FI_KILL};
    struct error err = {0};
    process->stop_timer = NULL;
    memcpy(message.as.name.id, process->view.id, sizeof message.as.name.id);
    if (!sandbox_send(process->sandbox, &message, -1, &err))
        log_warn("sandbox", "a command was not killed at the end of its grace: %s sandbox=%s command=%s", err.message,
                 process->sandbox->facts.id, process->view.id);
}

/* A second stop may shorten the grace. */
void process_verb_stop(struct sandbox *sandbox, struct verb *verb)
{
    struct process *process = find_or_refuse(sandbox, verb);
    if (!process)
        return;
    if (process->state == PROCESS_ENDED) {
        refuse(verb, ERROR_CONFLICT, "command", "has ended");
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    struct front_init_message message = {.type = FI_SIGNAL};
    memcpy(message.as.signal.id, verb->process_id, sizeof message.as.signal.id);
    message.as.signal.number = SIGTERM;
    uint64_t at = clock_boot_ns() + verb->grace_ms * UINT64_C(1000000);
    loop_timer_cancel(process->stop_timer);
    process->stop_timer = loop_timer_start(sandbox->loop, at, kill_stopped, process);
    send_and_finish(sandbox, verb, &message);
}

/* All of an origin but its last line. */
static void name_writer(const char *origin, uint8_t writer[static PROCESS_WRITER_BYTES])
{
    size_t length = origin ? strlen(origin) : 0, most = length > 0 ? length - 1 : 0;
    while (most > 0 && origin[most - 1] != '\n')
        most--;
    crypto_generichash(writer, PROCESS_WRITER_BYTES, (const uint8_t *)origin, most > 0 ? most : length, NULL, 0);
}

static bool knows_writer(const struct process *process, const uint8_t writer[static PROCESS_WRITER_BYTES])
{
    for (unsigned i = 0; i < PROCESS_WRITERS && i < process->writer_count; i++)
        if (memcmp(process->writers[i], writer, PROCESS_WRITER_BYTES) == 0)
            return true;
    return false;
}

static bool may_take_input(struct process *process, const struct verb *verb, struct error *err)
{
    const struct sandboxes_options *options = &process->sandbox->all->options;
    uint8_t writer[PROCESS_WRITER_BYTES];
    name_writer(verb->origin, writer);
    if (verb->of_kernel || knows_writer(process, writer))
        return true;
    struct process_deed deed = {
        .sandbox_id = process->sandbox->facts.id, .process_id = process->view.id, .origin = verb->origin};
    if (options->command_takes_input && !options->command_takes_input(options->context, &deed, err))
        return false;
    memcpy(process->writers[process->writer_count++ % PROCESS_WRITERS], writer, sizeof writer);
    return true;
}

void process_verb_input(struct sandbox *sandbox, struct verb *verb)
{
    struct process *process = find_or_refuse(sandbox, verb);
    if (!process)
        return;
    struct error err = {0};
    if (process->state != PROCESS_ENDED && !sandbox_wake(sandbox, verb))
        return;
    if (kernel_is_process(verb->process_id) && !verb->of_kernel) {
        refuse(verb, ERROR_CONFLICT, "command", "is a context: what it is to run is sent to it as such");
        return;
    }
    if (!may_take_input(process, verb, &err)) {
        verb_finish(verb, &err);
        return;
    }
    sandbox_touch(sandbox);
    process_input_write(process, verb);
}

void process_verb_resize(struct sandbox *sandbox, struct verb *verb)
{
    struct process *process = find_or_refuse(sandbox, verb);
    if (!process)
        return;
    if (!process->view.terminal) {
        refuse(verb, ERROR_CONFLICT, "command", "has no terminal");
        return;
    }
    if (process->state == PROCESS_STARTING) {
        refuse(verb, ERROR_STARTING, "command", "is being started; try again");
        return;
    }
    if (process->state == PROCESS_ENDED || !process->terminal) {
        refuse(verb, ERROR_CONFLICT, "command", "has ended, or closed its terminal");
        return;
    }
    if (!sandbox_wake(sandbox, verb))
        return;
    struct error err = {0};
    bool is_done = terminal_resize(process->terminal, verb->columns, verb->rows, &err);
    sandbox_touch(sandbox);
    verb_finish(verb, is_done ? NULL : &err);
}

void process_verb_list(struct sandbox *sandbox, struct verb *verb)
{
    if (verb->process_id[0]) {
        struct process *process = process_find(sandbox, verb->process_id);
        const struct process_tomb *tomb = process ? NULL : process_find_tomb(sandbox, verb->process_id);
        if (!process && !tomb) {
            refuse(verb, ERROR_NOT_FOUND, "command", "is not known in this sandbox");
            return;
        }
        verb->views = memory_array(1, sizeof *verb->views);
        verb->view_count = 1;
        verb->line = process && process->line ? memory_string(process->line) : NULL;
        if (process)
            process_show(process, verb->views);
        else
            verb->views[0] = tomb->view;
        verb_finish(verb, NULL);
        return;
    }
    verb->views = memory_array(sandbox->process_count + 1, sizeof *verb->views);
    for (const struct process *process = sandbox->processes; process; process = process->next)
        process_show(process, &verb->views[verb->view_count++]);
    verb_finish(verb, NULL);
}
