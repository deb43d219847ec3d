/* launcher_play.c - the lies to the launcher; the sandbox's name says which. */
#include "tests/hostile/programs/hostile_init.h"

#include "sandboxd/init/inherit.h"
#include "sandboxd/launcher_init/launcher_init.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool say(uint32_t type, const int *fds, size_t count)
{
    struct launcher_init_message message = {.type = type};
    return raw_send(INHERIT_FD_CONTROL, &message, launcher_init_size(type), fds, count);
}

/* A failure whose sentence is these bytes, 'a' behind them, and no end if `is_endless`. */
static void fail(const char *text, int kind, bool is_endless)
{
    struct launcher_init_message message = {.type = LI_FAILED};
    size_t size = strlen(text);
    memcpy(&message.as.failed.kind, &kind, sizeof kind);
    if (is_endless)
        memset(message.as.failed.message, 'a', sizeof message.as.failed.message);
    memcpy(message.as.failed.message, text, size);
    (void)raw_send(INHERIT_FD_CONTROL, &message, launcher_init_size(LI_FAILED), NULL, 0);
}

static void say_with(const char *kind, size_t count, uint32_t type)
{
    int fds[253];
    for (size_t i = 0; i < count; i++)
        fds[i] = i == 0 || strcmp(kind, "linger") != 0 ? descriptor_make(kind, -1) : dup(fds[0]);
    bool is_said = say(type, fds, count);
    for (size_t i = 0; is_said && i < count; i++) /* else we would be who waits */
        close(fds[i]);
}

static bool lie_in_words(const char *name)
{
    static const struct {
        const char *name, *text;
        int kind;
        bool is_endless;
    } FAILURES[] = {{"li-failed-control", "one\nERROR launcher: two\033[2J\r\x01", ERROR_INTERNAL, false},
                    {"li-failed-utf8", "\xff\xfe\xc0\x80", ERROR_INTERNAL, false},
                    {"li-failed-endless", "", ERROR_INTERNAL, true},
                    {"li-failed-kind", "of no kind", 4711, false},
                    {"li-failed-token", "your token was revoked", ERROR_TOKEN_REVOKED, false},
                    {"li-failed-plain", "as it should be said", ERROR_DISK_FULL, false}};
    for (size_t i = 0; i < sizeof FAILURES / sizeof *FAILURES; i++) {
        if (strcmp(name, FAILURES[i].name) != 0)
            continue;
        fail(FAILURES[i].text, FAILURES[i].kind, FAILURES[i].is_endless);
        return true;
    }
    return false;
}

static bool lie_in_bytes(const char *name)
{
    static char long_packet[65536];
    if (strcmp(name, "li-short") == 0)
        (void)raw_send(INHERIT_FD_CONTROL, "x", 1, NULL, 0);
    else if (strcmp(name, "li-long") == 0)
        (void)raw_send(INHERIT_FD_CONTROL, long_packet, sizeof long_packet, NULL, 0);
    else if (strcmp(name, "li-become") == 0)
        (void)say(LI_BECOME, NULL, 0);
    else if (strcmp(name, "li-unknown") == 0)
        (void)raw_send(INHERIT_FD_CONTROL, &(uint64_t){77}, sizeof(uint64_t), NULL, 0);
    else if (strcmp(name, "li-twice") == 0)
        (void)(say(LI_BARRIER, NULL, 0) && say(LI_BARRIER, NULL, 0) && say(LI_BARRIER, NULL, 0));
    else if (strcmp(name, "li-flood") == 0)
        while (say(LI_BARRIER, NULL, 0)) {
        }
    else
        return false;
    return true;
}

static bool lie_in_descriptors(const char *name)
{
    if (strcmp(name, "li-few-fds") == 0)
        say_with("null", 9, LI_BARRIER);
    else if (strcmp(name, "li-many-fds") == 0)
        say_with("null", 253, LI_BARRIER);
    else if (strcmp(name, "li-linger") == 0)
        say_with("linger", 1, LI_BARRIER);
    else if (strcmp(name, "li-linger-cut") == 0) /* beyond what a message may carry */
        say_with("linger", 40, LI_BARRIER);
    else
        return false;
    return true;
}

static void wait_for_it(char name[static LAUNCHER_INIT_NAME_BYTES])
{
    static struct launcher_init_message message;
    struct pollfd control = {.fd = INHERIT_FD_CONTROL, .events = POLLIN};
    if (poll(&control, 1, 2000) == 0) /* a host where it is told only after it has asked */
        (void)say(LI_BARRIER, NULL, 0);
    if (recv(INHERIT_FD_CONTROL, &message, sizeof message, 0) <= 0)
        _exit(1);
    memcpy(name, message.as.become.hostname, LAUNCHER_INIT_NAME_BYTES);
    name[LAUNCHER_INIT_NAME_BYTES - 1] = 0;
}

void launcher_play(void)
{
    char name[LAUNCHER_INIT_NAME_BYTES];
    wait_for_it(name);
    if (strcmp(name, "li-die") == 0)
        _exit(7);
    if (strcmp(name, "li-close") == 0)
        close(INHERIT_FD_CONTROL);
    if (strcmp(name, "li-silent") == 0 || strcmp(name, "li-close") == 0)
        pause();
    if (lie_in_words(name) || lie_in_bytes(name) || lie_in_descriptors(name))
        pause();
    int behind = strcmp(name, "li-behind") == 0 ? descriptor_make("linger", -1) : -1;
    if (listen(INHERIT_FD_LISTEN, 8) < 0 || !say(LI_BARRIER, NULL, 0) || !say(LI_READY, NULL, 0))
        _exit(1);
    if (behind >= 0 && say(LI_READY, &behind, 1)) /* in the queue that the launcher closes unread */
        close(behind);
    close(INHERIT_FD_CONTROL);
}
