/* front_init.c - the codec of front_init.h: sizes, checks, one message through the socket, and a command in a memfd. */
#include "sandboxd/front_init/front_init.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define HEAD_BYTES offsetof(struct front_init_message, as)

enum {
    TEXT_BYTES_MAX = 131072, /* one text with its NUL: MAX_ARG_STRLEN */
    ERRNO_MAX = 4095
};

/* What stands at the memfd's start; the texts follow. */
#define BLOB_IS_LINE 0x80000000U /* in `arguments` */

struct blob_head {
    uint32_t arguments, variables;
};

size_t front_init_size(uint32_t type)
{
    static const size_t bodies[] = {
        [FI_START] = sizeof(struct fi_start),
        [FI_SIGNAL] = sizeof(struct fi_signal),
        [FI_KILL] = sizeof(struct fi_name),
        [FI_EOF] = sizeof(struct fi_name),
        [FI_FORGET] = sizeof(struct fi_name),
        [FI_TERMINATE] = sizeof(struct fi_terminate),
        [FI_DEADLINE] = sizeof(struct fi_deadline),
        [FI_WELCOME] = sizeof(struct fi_welcome),
        [FI_STARTED] = sizeof(struct fi_started),
        [FI_REFUSED] = sizeof(struct fi_refused),
        [FI_EXITED] = sizeof(struct fi_exited),
        [FI_CURRENT] = 0,
        [FI_HELPER] = sizeof(struct fi_helper),
        [FI_DIAL] = sizeof(struct fi_dial),
        [FI_LISTENERS] = 0,
        [FI_DIALED] = sizeof(struct fi_dialed),
        [FI_LISTENERS_IS] = sizeof(struct fi_listeners),
    };
    if (type < FI_START || type > FI_LISTENERS_IS)
        return 0;
    return HEAD_BYTES + bodies[type];
}

static bool is_terminated(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
}

/* Texts that reach JSON and logs. */
static bool is_sentence(const char *text, size_t size)
{
    return is_terminated(text, size) && text_utf8_prefix(text, strlen(text)) == strlen(text);
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
    uint8_t all = 0;
    for (size_t i = 0; i < size; i++)
        all |= bytes[i];
    return all == 0;
}

static bool check_id(const char *id, struct error *err)
{
    if (!is_terminated(id, FRONT_INIT_ID_BYTES) || !text_is_made_of(id, FRONT_INIT_ID_BYTES - 1, "._-"))
        return error_set(err, ERROR_INVALID, "a command's id must be 1..64 of A-Za-z0-9._-");
    return true;
}

static bool is_in_cells(uint16_t count, uint8_t terminal)
{
    return terminal ? count >= 1 && count <= FRONT_INIT_CELLS_MAX : count == 0;
}

/* What a zygote has become can be made neither root nor the owner of a terminal. */
static bool check_program(const struct fi_start *start, struct error *err)
{
    if (start->with_program > 1 || start->zygote > FRONT_INIT_ZYGOTES)
        return error_set(err, ERROR_INVALID, "start: with_program must be 0 or 1, the zygote 0..%d",
                         FRONT_INIT_ZYGOTES);
    if (start->zygote != 0 && (!start->with_program || start->terminal || start->as_root))
        return error_set(err, ERROR_INVALID, "start: a zygote wants a program, no terminal, and not to be root");
    return true;
}

static bool check_start(const struct fi_start *start, struct error *err)
{
    if (!check_id(start->id, err) || !check_program(start, err))
        return false;
    if (start->with_stdin > 1 || start->terminal > start->with_stdin || start->as_root > 1 ||
        start->merges + start->terminal > 1 || !is_zero(start->reserved, sizeof start->reserved))
        return error_set(err, ERROR_INVALID,
                         "start: with_stdin, terminal with it, merges without it, and as_root must be 0 or 1, reserved 0");
    if (start->open_files != 0 &&
        (start->open_files < FRONT_INIT_FILES_MIN || start->open_files > FRONT_INIT_FILES_MAX))
        return error_set(err, ERROR_INVALID, "start: open_files must be 0 or %d..%d", FRONT_INIT_FILES_MIN,
                         FRONT_INIT_FILES_MAX);
    if (!is_in_cells(start->columns, start->terminal) || !is_in_cells(start->rows, start->terminal))
        return error_set(err, ERROR_INVALID, "start: a terminal has 1..%d columns and rows", FRONT_INIT_CELLS_MAX);
    return true;
}

static bool check_signal(const struct fi_signal *signal, struct error *err)
{
    if (!check_id(signal->id, err))
        return false;
    if (signal->number < 1 || signal->number > 64 || !is_zero(signal->reserved, sizeof signal->reserved))
        return error_set(err, ERROR_INVALID, "signal: the number must be 1..64, reserved bytes 0");
    return true;
}

static bool check_terminate(const struct fi_terminate *terminate, struct error *err)
{
    if (!is_sentence(terminate->reason, sizeof terminate->reason))
        return error_set(err, ERROR_INVALID, "terminate: the reason is not a text");
    return true;
}

static bool check_welcome(const struct fi_welcome *welcome, struct error *err)
{
    if (welcome->version != FRONT_INIT_VERSION)
        return error_set(err, ERROR_INVALID, "welcome: version %u, want %d", welcome->version, FRONT_INIT_VERSION);
    if (welcome->commands > FRONT_INIT_COMMANDS)
        return error_set(err, ERROR_INVALID, "welcome: %u commands, at most %d", welcome->commands,
                         FRONT_INIT_COMMANDS);
    return true;
}

static bool check_started(const struct fi_started *started, struct error *err)
{
    if (!check_id(started->id, err))
        return false;
    if (started->has_stdin > 1 || started->terminal > 1 || started->reserved[0] != 0)
        return error_set(err, ERROR_INVALID, "started: has_stdin and terminal must be 0 or 1, reserved 0");
    if (started->has_stdin && started->stdin_bytes != 0)
        return error_set(err, ERROR_INVALID, "started: an open stdin tells its bytes itself");
    if (started->pid < 1 || !is_sentence(started->title, sizeof started->title))
        return error_set(err, ERROR_INVALID, "started: the pid must be positive, the title a text");
    return true;
}

static bool check_refused(const struct fi_refused *refused, struct error *err)
{
    if (!check_id(refused->id, err))
        return false;
    if (refused->error.kind <= ERROR_NONE || refused->error.kind >= ERROR_KINDS ||
        !is_sentence(refused->error.message, sizeof refused->error.message))
        return error_set(err, ERROR_INVALID, "refused: not an error");
    return is_zero(refused->reserved, sizeof refused->reserved) ||
           error_set(err, ERROR_INVALID, "refused: reserved bytes must be 0");
}

static bool check_exited(const struct fi_exited *exited, struct error *err)
{
    if (!check_id(exited->id, err))
        return false;
    if (exited->timed_out > 1 || exited->killed > 1 || exited->reserved != 0)
        return error_set(err, ERROR_INVALID, "exited: flags must be 0 or 1, reserved bytes 0");
    if (!WIFEXITED(exited->wait_status) && !WIFSIGNALED(exited->wait_status))
        return error_set(err, ERROR_INVALID, "exited: wait status %d is not an end", exited->wait_status);
    return true;
}

static bool check_dial(const struct fi_dial *dial, struct error *err)
{
    bool is_guest = dial->family == FI_FAMILY_GUEST && dial->port == 0;
    bool is_port = (dial->family == 4 || dial->family == 6) && dial->port != 0;
    if (!(is_guest || is_port) || !is_zero(dial->reserved, sizeof dial->reserved))
        return error_set(err, ERROR_INVALID, "dial: the port must be 1..65535, the family 4 or 6, reserved bytes 0");
    return true;
}

/* Of what comes with a descriptor or with the reason why not. */
static bool check_gift(int32_t error_number, uint32_t reserved, struct error *err)
{
    if (error_number < 0 || error_number > ERRNO_MAX || reserved != 0)
        return error_set(err, ERROR_INVALID, "dialed, listeners: the errno must be 0..%d, reserved bytes 0", ERRNO_MAX);
    return true;
}

static bool check_body(const struct front_init_message *message, struct error *err)
{
    switch ((enum front_init_type)message->type) {
    case FI_START:
        return check_start(&message->as.start, err);
    case FI_SIGNAL:
        return check_signal(&message->as.signal, err);
    case FI_KILL:
    case FI_EOF:
    case FI_FORGET:
        return check_id(message->as.name.id, err);
    case FI_TERMINATE:
        return check_terminate(&message->as.terminate, err);
    case FI_WELCOME:
        return check_welcome(&message->as.welcome, err);
    case FI_STARTED:
        return check_started(&message->as.started, err);
    case FI_REFUSED:
        return check_refused(&message->as.refused, err);
    case FI_EXITED:
        return check_exited(&message->as.exited, err);
    case FI_HELPER:
        return message->as.helper.kind == 1 || error_set(err, ERROR_INVALID, "helper: unknown kind");
    case FI_DIAL:
        return check_dial(&message->as.dial, err);
    case FI_DIALED:
        return check_gift(message->as.dialed.error_number, message->as.dialed.reserved, err);
    case FI_LISTENERS_IS:
        return check_gift(message->as.listeners.error_number, message->as.listeners.reserved, err);
    case FI_DEADLINE:
    case FI_CURRENT:
    case FI_LISTENERS:
        return true;
    }
    return error_set(err, ERROR_INVALID, "unknown message type %u", message->type);
}

static size_t expected_fds(const struct front_init_message *message)
{
    if (message->type == FI_START)
        return 1U + message->as.start.with_program + (message->as.start.zygote != 0);
    if (message->type == FI_HELPER)
        return 1;
    if (message->type == FI_DIALED)
        return message->as.dialed.error_number == 0;
    if (message->type == FI_LISTENERS_IS)
        return message->as.listeners.error_number == 0;
    if (message->type == FI_STARTED && message->as.started.terminal)
        return message->as.started.has_stdin ? FI_TERMINAL_FDS : FI_TERMINAL_OVER_FDS;
    if (message->type == FI_STARTED)
        return message->as.started.has_stdin ? FI_FDS : FI_FD_STDIN_PIPE;
    return 0;
}

bool front_init_check(const struct front_init_message *message, size_t size, size_t fd_count,
                      enum front_init_end sender, struct error *err)
{
    if (size < HEAD_BYTES)
        return error_set(err, ERROR_INVALID, "a packet of %zu bytes is no message", size);
    size_t expected = front_init_size(message->type);
    if (expected == 0)
        return error_set(err, ERROR_INVALID, "unknown message type %u", message->type);
    if (size != expected || message->reserved != 0)
        return error_set(err, ERROR_INVALID, "message type %u: %zu bytes, want %zu, reserved %u", message->type, size,
                         expected, message->reserved);
    if ((message->type < FI_WELCOME) != (sender == FI_FROM_FRONT))
        return error_set(err, ERROR_INVALID, "message type %u goes the other way", message->type);
    if (!check_body(message, err))
        return false;
    if (fd_count != expected_fds(message))
        return error_set(err, ERROR_INVALID, "message type %u with %zu descriptors, want %zu", message->type, fd_count,
                         expected_fds(message));
    return true;
}

bool front_init_send(int socket, const struct front_init_message *message, const int *fds, size_t fd_count,
                     struct error *err)
{
    size_t size = front_init_size(message->type);
    if (size == 0)
        return error_set(err, ERROR_INVALID, "unknown message type %u", message->type);
    return fd_send_message(socket, message, size, fds, fd_count, err);
}

int front_init_receive(int socket, struct front_init_message *message, enum front_init_end sender, int *fds,
                       size_t *fd_count, struct error *err)
{
    struct front_init_message got = {0};
    int received[FD_MESSAGE_FDS];
    size_t count = 0;
    ssize_t size = fd_receive_message(socket, &got, sizeof got, received, &count, err);
    if (size == 0)
        return 0;
    if (size < 0)
        return -1;
    if (!front_init_check(&got, (size_t)size, count, sender, err)) {
        fd_drop_all(received, count);
        return -1;
    }
    *message = got;
    *fd_count = count;
    memcpy(fds, received, count * sizeof *fds);
    return 1;
}

/* Adds one text with its NUL, bounded as execve(2) bounds it. */
static bool seal_text(struct text *blob, const char *text, struct error *err)
{
    size_t size = strlen(text) + 1;
    if (size > TEXT_BYTES_MAX || blob->length + size > FRONT_INIT_BLOB_MAX)
        return error_set(err, ERROR_TOO_LARGE, "the command is too large: at most %d bytes a text, %d together",
                         TEXT_BYTES_MAX - 1, FRONT_INIT_BLOB_MAX);
    text_append(blob, text, size);
    return true;
}

static bool seal_texts(struct text *blob, char *const *texts, uint32_t *count, struct error *err)
{
    for (*count = 0; texts[*count] != NULL; ++*count) {
        if (*count == FRONT_INIT_TEXTS_MAX)
            return error_set(err, ERROR_TOO_LARGE, "the command has over %d texts", FRONT_INIT_TEXTS_MAX);
        if (!seal_text(blob, texts[*count], err))
            return false;
    }
    return true;
}

static bool check_command(const struct front_init_command *command, struct error *err)
{
    if (command->arguments == NULL || command->arguments[0] == NULL)
        return error_set(err, ERROR_INVALID, "the command has no arguments");
    if (command->is_line && (!command->arguments[1] || !command->arguments[2] || command->arguments[3]))
        return error_set(err, ERROR_INVALID, "a shell's line has three arguments");
    if (command->cwd == NULL || command->cwd[0] != '/')
        return error_set(err, ERROR_INVALID, "cwd must be an absolute path");
    for (char *const *variable = command->variables; variable && *variable; variable++) {
        if (strchr(*variable, '=') == NULL || **variable == '=')
            return error_set(err, ERROR_INVALID, "a variable must be NAME=value");
    }
    return true;
}

int front_init_command_seal(const struct front_init_command *command, struct error *err)
{
    static char *const none[] = {NULL};
    AUTO_TEXT blob = {0};
    struct blob_head head = {0};
    if (!check_command(command, err))
        return -1;
    text_append(&blob, &head, sizeof head);
    if (!seal_text(&blob, command->cwd, err) || !seal_texts(&blob, command->arguments, &head.arguments, err) ||
        !seal_texts(&blob, command->variables ? command->variables : none, &head.variables, err))
        return -1;
    head.arguments |= command->is_line ? BLOB_IS_LINE : 0;
    memcpy(blob.data, &head, sizeof head);
    return fd_sealed_memfd("command", blob.data, blob.length, err);
}

/* The size of a memfd that can neither be written nor cut any more: `min` to `max`, else 0 with an error. */
static size_t sealed_size(int fd, const char *what, size_t min, size_t max, struct error *err)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & (F_SEAL_WRITE | F_SEAL_SHRINK)) != (F_SEAL_WRITE | F_SEAL_SHRINK)) {
        error_set(err, ERROR_INVALID, "the %s's memory is not sealed", what);
        return 0;
    }
    if (fstat(fd, &status) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "fstat of the %s's memory", what);
        return 0;
    }
    if (status.st_size > (off_t)max) {
        error_set(err, ERROR_TOO_LARGE, "the %s is over %zu bytes", what, max);
        return 0;
    }
    if (status.st_size < (off_t)min) {
        error_set(err, ERROR_INVALID, "the %s's memory is too short", what);
        return 0;
    }
    return (size_t)status.st_size;
}

bool front_init_program_check(int fd, struct error *err)
{
    return sealed_size(fd, "program", 1, FRONT_INIT_PROGRAM_MAX, err) != 0;
}

/* pread(2): the descriptor's position is shared with the sender. */
static bool read_blob(int fd, char *to, size_t size, struct error *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, to + done, size - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, ERROR_INTERNAL, "reading the command");
        if (got == 0)
            return error_set(err, ERROR_INVALID, "the command's memory ended early");
        done += (size_t)got;
    }
    return true;
}

/* Points `to` at the next `count` texts, and ends it with NULL. `at` moves on; it never passes `end`. */
static bool point_at_texts(char **to, uint32_t count, char **at, const char *end, struct error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        char *nul = memchr(*at, 0, (size_t)(end - *at));
        if (nul == NULL)
            return error_set(err, ERROR_INVALID, "the command has fewer texts than it says");
        if (nul - *at >= TEXT_BYTES_MAX)
            return error_set(err, ERROR_TOO_LARGE, "a text of the command is over %d bytes", TEXT_BYTES_MAX - 1);
        to[i] = *at;
        *at = nul + 1;
    }
    to[count] = NULL;
    return true;
}

bool front_init_command_read(int fd, struct front_init_command *command, void **memory, struct error *err)
{
    struct blob_head head;
    size_t size = sealed_size(fd, "command", sizeof head + 1, FRONT_INIT_BLOB_MAX, err);
    if (size == 0 || !read_blob(fd, (char *)&head, sizeof head, err))
        return false;
    const bool is_line = head.arguments & BLOB_IS_LINE;
    head.arguments &= ~BLOB_IS_LINE;
    if (head.arguments > FRONT_INIT_TEXTS_MAX || head.variables > FRONT_INIT_TEXTS_MAX)
        return error_set(err, ERROR_TOO_LARGE, "the command has over %d texts", FRONT_INIT_TEXTS_MAX);

    size_t pointers = 2 + (size_t)head.arguments + 1 + (size_t)head.variables + 1; /* cwd NULL arguments NULL ... */
    AUTO_FREE char **held = memory_new(pointers * sizeof *held + size);
    char **arguments = held + 2, **variables = arguments + head.arguments + 1;
    char *texts = (char *)(held + pointers), *at = texts + sizeof head;
    if (!read_blob(fd, texts, size, err))
        return false;
    if (!point_at_texts(held, 1, &at, texts + size, err) ||
        !point_at_texts(arguments, head.arguments, &at, texts + size, err) ||
        !point_at_texts(variables, head.variables, &at, texts + size, err))
        return false;
    if (at != texts + size)
        return error_set(err, ERROR_INVALID, "the command has more texts than it says");
    struct front_init_command got = {
        .cwd = held[0], .arguments = arguments, .variables = variables, .is_line = is_line};
    if (!check_command(&got, err))
        return false;
    *command = got;
    *memory = TAKE(held);
    return true;
}
