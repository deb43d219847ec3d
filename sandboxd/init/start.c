/* start.c - from FI_START to a cloned child: streams, cgroup, clone3(2). The child's own part is child.c; what a zygote
 * forks, orders.c. */
#include "sandboxd/init/child.h"
#include "sandboxd/init/command.h"
#include "sandboxd/init/connection.h"
#include "sandboxd/init/deadline.h"
#include "sandboxd/init/family.h"
#include "sandboxd/init/orders.h"
#include "sandboxd/init/spare.h"
#include "sandboxd/init/terminal.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    SPARE_FDS = 16 /* stay free for the front's connections and messages */
};

/* The arguments with blanks between them, cut, and what a terminal would obey made harmless. */
static void write_title(char *to, size_t size, char *const *arguments)
{
    size_t used = 0;
    for (char *const *argument = arguments; *argument && used < size - 1; argument++) {
        if (argument != arguments)
            to[used++] = ' ';
        size_t length = strnlen(*argument, size - 1 - used);
        memcpy(to + used, *argument, length);
        used += length;
    }
    to[used] = 0;
    for (size_t at = 0; at < used; at++) {
        if ((unsigned char)to[at] < ' ' || to[at] == 0x7f)
            to[at] = '?';
    }
    size_t valid = text_utf8_prefix(to, used);
    while (valid < used) { /* a letter cut at the end disappears, one that is none within becomes ? */
        if (used == size - 1 && used - valid < 4) {
            to[valid] = 0;
            return;
        }
        to[valid] = '?';
        valid += text_utf8_prefix(to + valid, used - valid);
    }
}

static uint64_t due_after(uint64_t start_boot_ns, uint64_t timeout_ms)
{
    if (timeout_ms == 0 || timeout_ms > (UINT64_MAX - start_boot_ns) / 1000000)
        return 0;
    return start_boot_ns + timeout_ms * 1000000;
}

static void on_refusal_pipe(struct init *init, struct watch *watch, uint32_t events)
{
    (void)events;
    command_settle(watch->owner, init);
}

static struct command *new_command(const char *id)
{
    struct command *command = memory_new(sizeof *command);
    *command = (struct command){
        .watch = {.fd = -1, .owner = command, .ready = on_refusal_pipe},
        .streams = STREAMS_NONE,
    };
    memcpy(command->id, id, sizeof command->id);
    return command;
}

static void refuse_start(struct init *init, const char *id, const struct error *why)
{
    struct command *command = new_command(id);
    command->state = COMMAND_REFUSED;
    command->refusal = *why;
    connection_tell(init, command);
}

static bool launch_alone(struct init *init, struct command *command, const struct child_plan *plan,
                         const struct child_order *order, struct error *err)
{
    command->pid = family_clone(init, &command->serial, err);
    if (command->pid == 0) {
        struct child_plan own = *plan;
        own.mark = family_mark(init, command->serial);
        child_run(&own, order);
    }
    return command->pid > 0;
}

/* Of the START; borrowed. */
struct start_fds {
    int memory;
    int program; /* -1: none */
};

/* Has the spare child become it, or a new one; either tells through the pipe that the command then watches. */
static bool launch(struct init *init, struct command *command, const struct child_plan *plan,
                   const struct front_init_command *what, const struct start_fds *given, struct error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_set_errno(err, errno == EMFILE ? ERROR_NO_CAPACITY : ERROR_INTERNAL, "pipe");
    AUTO_FD int refusal = ends[1];
    if (!watch_add(init, &command->watch, ends[0], EPOLLIN, err))
        return false;
    const struct child_order order = {
        .command = what,
        .terminal_end = command->streams.terminal_end,
        .stdin_end = command->streams.stdin_end,
        .stdout_end = command->streams.stdout_end,
        .stderr_end = command->streams.stderr_end,
        .program = given->program,
        .order_socket = -1,
        .refusal = refusal,
    };
    bool is_launched =
        spare_take(init, command, plan, &order, given->memory) || launch_alone(init, command, plan, &order, err);
    streams_close_child_ends(&command->streams);
    return is_launched;
}

static bool may_start(const struct init *init, const struct fi_start *start, const int *fds, struct error *err)
{
    if (init->end_boot_ns != 0)
        return error_set(err, ERROR_GONE, "the sandbox is ending");
    if (start->as_root && !init->root_allowed)
        return error_set(err, ERROR_FORBIDDEN, "this sandbox runs no commands as root; leave out \"user\"");
    if (start->zygote != 0 && family_is_marked(init))
        return error_set(err, ERROR_INVALID,
                         "this sandbox starts no command from a process that waits for it: it is a "
                         "guest, without cgroups");
    if (init->count == FRONT_INIT_COMMANDS)
        return error_set(err, ERROR_NO_CAPACITY, "%d commands are kept; forget ended ones, or kill what they left",
                         FRONT_INIT_COMMANDS);
    return !start->with_program || front_init_program_check(fds[FI_START_FD_PROGRAM], err);
}

static bool open_streams(struct init *init, struct command *command, const struct fi_start *start,
                         const struct child_plan *plan, struct error *err)
{
    int limit = init->files_limit - SPARE_FDS;
    unsigned with = (start->with_stdin ? STREAMS_STDIN : 0) | (start->merges ? STREAMS_MERGED : 0);
    const struct terminal_order terminal = {
        .columns = start->columns, .rows = start->rows, .uid = plan->uid, .gid = plan->gid};
    return start->terminal ? terminal_open(&command->streams, &terminal, limit, err)
                           : streams_open(&command->streams, with, limit, err);
}

/* By a process of its own, or by an order to a zygote, which is only written down here. */
static bool begin(struct init *init, struct command *command, const struct fi_start *start,
                  const struct front_init_command *what, const int *fds, struct error *err)
{
    const struct child_plan plan = child_plan_of(init, start);
    const struct start_fds given = {.memory = fds[FI_START_FD_COMMAND],
                                    .program = start->with_program ? fds[FI_START_FD_PROGRAM] : -1};
    command->start_boot_ns = clock_boot_ns();
    command->start_wall_ms = clock_wall_ms();
    if (!open_streams(init, command, start, &plan, err))
        return false;
    if (start->zygote == 0)
        return launch(init, command, &plan, what, &given, err);
    const struct zygote_wish wish = {.number = start->zygote,
                                     .program = given.program,
                                     .command = fds[FI_START_FD_ZYGOTE],
                                     .open_files = start->open_files};
    return order_make(command, &wish, given.memory, err);
}

static bool start(struct init *init, const struct fi_start *start, const int *fds, struct error *err)
{
    struct front_init_command what;
    AUTO_FREE void *held = NULL;
    if (!may_start(init, start, fds, err) || !front_init_command_read(fds[FI_START_FD_COMMAND], &what, &held, err))
        return false;
    struct command *command = new_command(start->id);
    if (!begin(init, command, start, &what, fds, err)) {
        command_free(command, init);
        return false;
    }
    command->timeout_ms = start->timeout_ms;
    command->due_boot_ns = due_after(command->start_boot_ns, start->timeout_ms);
    write_title(command->title, sizeof command->title, what.arguments);
    command_add(command, init);
    init->childless = false;
    if (command->order)
        order_give(command, init);
    return true;
}

void command_start(struct init *init, const struct fi_start *message, const int *fds)
{
    struct error err = {0};
    struct command *known = command_find(init, message->id);
    if (known != NULL) {
        known->started_told = known->end_told = false;
        connection_tell(init, known);
        return;
    }
    if (!start(init, message, fds, &err))
        refuse_start(init, message->id, &err);
}
