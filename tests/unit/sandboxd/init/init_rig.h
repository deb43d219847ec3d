/** init_rig.h - a front for parley-init's tests: it speaks front_init.h in blocking calls to an init in a small world
 *  of its own (init_world.h). */
#pragma once

#include "tests/unit/sandboxd/init/init_world.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#define RIG_PATIENCE_MS 20000 /* for a message; the machine may be busy */

/** Connects a front; the one before is closed by init. */
static UNUSED void rig_connect(struct rig *rig)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (rig->connection >= 0)
        close(rig->connection);
    rig->connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/init.sock", rig->folder);
    if (connect(rig->connection, (struct sockaddr *)&address, sizeof address) < 0)
        rig_fail("connect");
}

/** The next message within RIG_PATIENCE_MS: 1, 0 the end, -1 none or a bad one. The descriptors are the caller's. */
static UNUSED int rig_receive(struct rig *rig, struct front_init_message *message, int fds[static FI_FDS_MAX],
                              size_t *count)
{
    struct pollfd wait = {.fd = rig->connection, .events = POLLIN};
    struct error err = {0};
    *count = 0;
    if (poll(&wait, 1, RIG_PATIENCE_MS) != 1) {
        fprintf(stderr, "rig: no message\n");
        return -1;
    }
    int got = front_init_receive(rig->connection, message, FI_FROM_INIT, fds, count, &err);
    if (got < 0 && err.system_errno != ECONNRESET)
        fprintf(stderr, "rig: %s\n", err.message);
    return got < 0 && err.system_errno == ECONNRESET ? 0 : got;
}

/** All types begin with the id, but WELCOME and CURRENT. */
static const char *rig_id(const struct front_init_message *message)
{
    return message->type == FI_WELCOME || message->type == FI_CURRENT ? "" : message->as.name.id;
}

/** Skips to the message of that type (0: any) and id. False when the connection ends first. `fds` (FI_FDS_MAX, -1 where
 *  there are fewer) NULL: closed. */
static UNUSED bool rig_expect(struct rig *rig, uint32_t type, const char *id, struct front_init_message *message,
                              int *fds)
{
    for (;;) {
        int got[FI_FDS_MAX];
        size_t count;
        if (rig_receive(rig, message, got, &count) != 1)
            return false;
        bool found = (type == 0 || message->type == type) && strcmp(rig_id(message), id) == 0;
        for (size_t i = 0; i < count; i++) {
            if (found && fds)
                fds[i] = got[i];
            else
                close(got[i]);
        }
        for (size_t i = count; i < FI_FDS_MAX && found && fds; i++)
            fds[i] = -1;
        if (found)
            return true;
    }
}

static UNUSED bool rig_send(struct rig *rig, const struct front_init_message *message, int fd)
{
    struct error err = {0};
    if (front_init_send(rig->connection, message, &fd, fd >= 0 ? 1 : 0, &err))
        return true;
    fprintf(stderr, "rig: %s\n", err.message);
    return false;
}

struct rig_start {
    const char *cwd;        /* NULL: / */
    char *const *variables; /* NULL: PATH */
    int with_stdin;
    uint16_t columns, rows; /* of a terminal; 0: none */
    uint64_t timeout_ms;
    uint32_t open_files;
    int as_root;
};

static UNUSED bool rig_start(struct rig *rig, const char *id, const struct rig_start *how, char *const *arguments)
{
    static char path[] = "PATH=/usr/bin:/bin";
    static char *const variables[] = {path, NULL};
    struct front_init_command command = {.cwd = how && how->cwd ? how->cwd : "/", .arguments = arguments};
    struct front_init_message message = {.type = FI_START};
    struct error err = {0};
    command.variables = how && how->variables ? how->variables : variables;
    snprintf(message.as.start.id, sizeof message.as.start.id, "%s", id);
    message.as.start.terminal = how && how->columns > 0;
    message.as.start.with_stdin = how && (how->with_stdin || how->columns > 0);
    message.as.start.columns = how ? how->columns : 0;
    message.as.start.rows = how ? how->rows : 0;
    message.as.start.timeout_ms = how ? how->timeout_ms : 0;
    message.as.start.open_files = how ? how->open_files : 0;
    message.as.start.as_root = how && how->as_root;
    int fd = front_init_command_seal(&command, &err);
    if (fd < 0)
        fprintf(stderr, "rig: %s\n", err.message);
    bool sent = fd >= 0 && rig_send(rig, &message, fd);
    close(fd);
    return sent;
}

/** sh -c SCRIPT */
static UNUSED bool rig_start_shell(struct rig *rig, const char *id, const struct rig_start *how, const char *script)
{
    char shell[] = "/bin/sh", flag[] = "-c", *text = strdup(script), *arguments[] = {shell, flag, text, NULL};
    bool sent = rig_start(rig, id, how, arguments);
    free(text);
    return sent;
}

/** KILL, EOF, FORGET */
static UNUSED bool rig_name(struct rig *rig, uint32_t type, const char *id)
{
    struct front_init_message message = {.type = type};
    snprintf(message.as.name.id, sizeof message.as.name.id, "%s", id);
    return rig_send(rig, &message, -1);
}

static UNUSED bool rig_signal(struct rig *rig, const char *id, int number)
{
    struct front_init_message message = {.type = FI_SIGNAL, .as.signal.number = number};
    snprintf(message.as.signal.id, sizeof message.as.signal.id, "%s", id);
    return rig_send(rig, &message, -1);
}

static UNUSED bool rig_terminate(struct rig *rig, uint64_t grace_ms)
{
    struct front_init_message message = {.type = FI_TERMINATE,
                                         .as.terminate = {.grace_ms = grace_ms, .reason = "test"}};
    return rig_send(rig, &message, -1);
}

/** What a non-blocking pipe gives until its end (or until `enough` bytes came); the caller frees. */
static UNUSED char *rig_read(int fd, size_t enough)
{
    struct text all = {0};
    text_append(&all, "", 0);
    for (;;) {
        char piece[4096];
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (all.length >= enough || poll(&wait, 1, RIG_PATIENCE_MS) != 1)
            break;
        ssize_t size = read(fd, piece, sizeof piece);
        if (size <= 0)
            break;
        text_append(&all, piece, (size_t)size);
    }
    return all.data ? all.data : strdup("");
}

struct rig_result {
    struct fi_exited exited;
    struct error refused; /* kind ERROR_NONE: it ran */
    char *output, *errors;
};

/** Starts a shell script, takes all output, waits for the end and forgets it. */
static UNUSED struct rig_result rig_run(struct rig *rig, const char *id, const struct rig_start *how,
                                        const char *script)
{
    struct rig_result result = {0};
    struct front_init_message message = {0};
    int fds[FI_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1};
    CHECK(rig_start_shell(rig, id, how, script));
    CHECK(rig_expect(rig, 0, id, &message, fds));
    if (message.type == FI_REFUSED) {
        result.refused = message.as.refused.error;
    } else {
        result.output = rig_read(fds[FI_FD_STDOUT_PIPE], SIZE_MAX);
        result.errors = rig_read(fds[FI_FD_STDERR_PIPE], SIZE_MAX);
        CHECK(rig_expect(rig, FI_EXITED, id, &message, NULL));
        result.exited = message.as.exited;
        CHECK(rig_name(rig, FI_FORGET, id));
    }
    for (int i = 0; i < FI_FDS_MAX; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    return result;
}

static UNUSED void rig_result_done(struct rig_result *result)
{
    free(result->output);
    free(result->errors);
}

/** A sandbox with a connected front that was told WELCOME and CURRENT. */
static UNUSED void rig_open_connected(struct rig *rig, const struct rig_options *options)
{
    static const struct rig_options standard;
    struct error err = {0};
    struct front_init_message message;
    if (!rig_open(rig, options ? options : &standard, &err)) {
        fprintf(stderr, "rig: init: %s\n", err.message);
        rig_close(rig);
        exit(1);
    }
    rig_connect(rig);
    CHECK(rig_expect(rig, FI_WELCOME, "", &message, NULL));
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));
}
