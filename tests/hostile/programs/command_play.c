/* command_play.c - the lies about commands: exec ["NAME", "DETAIL", ...] begins one. */
#include "tests/hostile/programs/hostile_init.h"

#include "shared/base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* An honest command that says nothing and ends with 0. */
static void be_honest(const struct play *play, const char *id)
{
    int fds[FI_FDS], writes[2];
    streams_make(fds, writes);
    started_send(play->connection, id, fds, FI_FD_STDIN_PIPE, false, false);
    exited_send(play->connection, id);
    close_all(fds, FI_FDS);
    close_all(writes, 2);
}

/* streams KIND PLACE: one of the descriptors is another thing. */
static void play_streams(const struct play *play, const char *id, const char *kind, int place, bool is_terminal)
{
    int fds[FI_FDS_MAX], writes[2];
    memset(fds, -1, sizeof fds);
    streams_make(fds, writes);
    if (is_terminal) {
        int made[FI_TERMINAL_FDS] = {open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), -1, -1, fds[2], -1, -1, fds[5]};
        if (pipe2(made + 1, O_CLOEXEC) < 0 || pipe2(made + 4, O_CLOEXEC) < 0)
            _exit(50);
        memcpy(fds, made, sizeof made);
    }
    close(fds[place]);
    fds[place] = descriptor_make(kind, play->connection);
    started_send(play->connection, id, fds, is_terminal ? FI_TERMINAL_FDS : FI_FDS, true, is_terminal);
    close_all(fds, FI_FDS_MAX); /* the last reference is the front's now */
    exited_send(play->connection, id);
    close_all(writes, 2);
}

/* memory HOW MEBIBYTES: the file that the front splices into is moved under its hands while it does. */
static void play_memory(const struct play *play, const char *id, const char *how, off_t mebibytes)
{
    static char bytes[65536];
    int fds[FI_FDS], writes[2];
    streams_make(fds, writes);
    started_send(play->connection, id, fds, FI_FD_STDIN_PIPE, false, false);
    if (fork() != 0) {
        close_all(fds, FI_FDS);
        close_all(writes, 2);
        return;
    }
    for (off_t at = 0; at < mebibytes << 4; at++) {
        while (write(writes[0], bytes, sizeof bytes) < 0)
            usleep(200);
        if (strcmp(how, "forwards") == 0)
            (void)lseek(fds[FI_FD_STDOUT_MEMORY], at << 20, SEEK_SET);
        else
            (void)lseek(fds[FI_FD_STDOUT_MEMORY], 0, SEEK_SET);
    }
    exited_send(play->connection, id);
    pause(); /* the files stay */
}

/* strangers COUNT: commands that nobody asked for, with as many descriptors as there can be. */
static void play_strangers(struct play *play, unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        char id[32];
        int fds[FI_FDS], writes[2];
        (void)snprintf(id, sizeof id, "stranger-%u", play->strangers++);
        streams_make(fds, writes);
        started_send(play->connection, id, fds, FI_FDS, true, false);
        close_all(fds, FI_FDS);
        close_all(writes, 2);
    }
}

/* nonsense COUNT: as many that are refused by the front. */
static void play_nonsense(struct play *play, unsigned long count)
{
    int null_device = open("/dev/null", O_RDWR | O_CLOEXEC),
        fds[4] = {null_device, null_device, null_device, null_device};
    for (unsigned long i = 0; i < count; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "nonsense-%u", play->strangers++);
        started_send(play->connection, id, fds, 4, false, false);
    }
    close(null_device);
}

static void play_bytes(const struct play *play, const char *what, const char *id)
{
    static char large[65536];
    struct front_init_message message = {.type = FI_EXITED};
    int fds[253];
    if (strcmp(what, "short") == 0)
        (void)raw_send(play->connection, "x", 1, NULL, 0);
    else if (strcmp(what, "huge") == 0)
        (void)raw_send(play->connection, large, sizeof large, NULL, 0);
    else if (strcmp(what, "other-way") == 0)
        (void)raw_send(play->connection, &(struct front_init_message){.type = FI_LISTENERS},
                       front_init_size(FI_LISTENERS), NULL, 0);
    else if (strcmp(what, "no-such") == 0)
        (void)raw_send(play->connection, &(struct front_init_message){.type = 4711}, front_init_size(FI_CURRENT), NULL,
                       0);
    else if (strcmp(what, "reserved") == 0)
        (void)raw_send(play->connection, &(struct front_init_message){.type = FI_CURRENT, .reserved = 1},
                       front_init_size(FI_CURRENT), NULL, 0);
    else if (strcmp(what, "no-end") == 0) {
        memset(message.as.exited.id, 'a', sizeof message.as.exited.id);
        (void)raw_send(play->connection, &message, front_init_size(FI_EXITED), NULL, 0);
    } else if (strcmp(what, "too-many") == 0 || strcmp(what, "too-many-linger") == 0) {
        fds[0] = descriptor_make(strcmp(what, "too-many") == 0 ? "null" : "linger", -1);
        for (size_t i = 1; i < 253; i++)
            fds[i] = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
        started_send(play->connection, id, fds, 253, false, false);
        close_all(fds, 253);
    }
}

/* order HOW: what should come in another order, or once. */
static void play_order(const struct play *play, const char *id, const char *how)
{
    struct front_init_message message = {.type = FI_REFUSED, .as.refused.error.kind = ERROR_TOKEN_REVOKED};
    strncpy(message.as.refused.id, id, sizeof message.as.refused.id - 1);
    strncpy(message.as.refused.error.message, "not\nat\033[2J all", sizeof message.as.refused.error.message - 1);
    if (strcmp(how, "exit-first") == 0)
        exited_send(play->connection, id);
    if (strcmp(how, "refused") == 0) {
        (void)raw_send(play->connection, &message, front_init_size(FI_REFUSED), NULL, 0);
        return;
    }
    be_honest(play, id);
    if (strcmp(how, "exit-twice") == 0)
        exited_send(play->connection, id);
    else if (strcmp(how, "start-twice") == 0)
        be_honest(play, id);
    else if (strcmp(how, "refused-late") == 0)
        (void)raw_send(play->connection, &message, front_init_size(FI_REFUSED), NULL, 0);
}

/* flood COUNT: messages that mean nothing. */
static void play_flood(const struct play *play, unsigned long count)
{
    struct front_init_message message = {.type = FI_EXITED, .as.exited.id = "nobody"};
    (void)fcntl(play->connection, F_SETFL, O_RDWR);
    for (unsigned long i = 0; i < count; i++)
        (void)raw_send(play->connection, &message, front_init_size(FI_EXITED), NULL, 0);
    (void)fcntl(play->connection, F_SETFL, O_RDWR | O_NONBLOCK);
}

/* endless: output that never ends, of a command that never ends or has ended already. */
static void play_endless(const struct play *play, const char *id, const char *how)
{
    static char bytes[65536];
    int fds[FI_FDS], writes[2];
    streams_make(fds, writes);
    started_send(play->connection, id, fds, FI_FD_STDIN_PIPE, false, false);
    if (strcmp(how, "after-exit") == 0)
        exited_send(play->connection, id);
    if (fork() == 0) {
        (void)fcntl(writes[0], F_SETFL, O_WRONLY);
        while (write(writes[0], bytes, sizeof bytes) > 0) {
        }
        _exit(0);
    }
    close_all(fds, FI_FDS);
    close_all(writes, 2);
}

static void copy_mode(char to[static MODE_BYTES], const char *from)
{
    memset(to, 0, MODE_BYTES);
    if (from)
        strncpy(to, from, MODE_BYTES - 1);
}

/* What is chosen for later; itself an honest command. */
static bool choose(struct play *play, char *const *arguments)
{
    const char *name = arguments[0], *detail = arguments[1];
    if (strcmp(name, "helper") == 0) {
        copy_mode(play->modes.helper, detail);
        copy_mode(play->modes.helper_detail, detail ? arguments[2] : NULL);
    } else if (strcmp(name, "dial") == 0) {
        copy_mode(play->modes.dial, detail);
    } else if (strcmp(name, "listeners") == 0) {
        copy_mode(play->modes.listeners, detail);
    } else if (strcmp(name, "driver") == 0) {
        copy_mode(play->modes.driver, detail);
    } else {
        return strcmp(name, "honest") == 0;
    }
    return true;
}

/* Attacks upon the connection rather than with a command. */
static bool play_connection(struct play *play, const char *id, char *const *arguments)
{
    const char *name = arguments[0], *detail = arguments[1];
    if (strcmp(name, "silent") == 0) {
        play->is_silent = true;
    } else if (strcmp(name, "close") == 0) {
        close(TAKE_FD(play->connection));
    } else if (strcmp(name, "behind") == 0) { /* in the queue when the front gives the connection up */
        int fd = descriptor_make("linger", -1);
        (void)raw_send(play->connection, "x", 1, NULL, 0);
        for (int i = 0; i < 4; i++)
            started_send(play->connection, id, &fd, 1, false, false);
        close(fd);
    } else if (strcmp(name, "bytes") == 0) {
        play_bytes(play, detail, id);
    } else if (strcmp(name, "flood") == 0) {
        play_flood(play, strtoul(detail, NULL, 10));
        be_honest(play, id);
    } else {
        return false;
    }
    return true;
}

void command_play(struct play *play, const struct fi_start *start, char *const *arguments)
{
    const char *id = start->id, *name = arguments[0];
    if (choose(play, arguments)) {
        be_honest(play, id);
    } else if (play_connection(play, id, arguments)) {
        return;
    } else if (strcmp(name, "streams") == 0 || strcmp(name, "terminal") == 0) {
        play_streams(play, id, arguments[1], atoi(arguments[2]), name[0] == 't');
    } else if (strcmp(name, "memory") == 0) {
        play_memory(play, id, arguments[1], atoi(arguments[2]));
    } else if (strcmp(name, "order") == 0) {
        play_order(play, id, arguments[1]);
    } else if (strcmp(name, "endless") == 0) {
        play_endless(play, id, arguments[1]);
    } else if (strcmp(name, "strangers") == 0) {
        play_strangers(play, strtoul(arguments[1], NULL, 10));
        be_honest(play, id);
    } else if (strcmp(name, "nonsense") == 0) {
        play_nonsense(play, strtoul(arguments[1], NULL, 10));
        be_honest(play, id);
    } else {
        _exit(51);
    }
}
