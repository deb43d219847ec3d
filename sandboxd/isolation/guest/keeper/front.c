/* front.c - the front asks for connections, moves the deadline, ends the sandbox (front_init.h); all else is refused.
 */
#include "sandboxd/isolation/guest/keeper/keeper.h"

#include "sandboxd/front_init/front_init.h"
#include "shared/base/fd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool front_listen(struct keeper *keeper, struct error *err)
{
    keeper->listener = INHERIT_FD_LISTEN;
    if (listen(keeper->listener, 16) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "listen");
    /* A channel that is full is told the front; nothing waits. */
    if (keeper->channel >= 0 && !fd_set_nonblocking(keeper->channel, err))
        return false;
    return keeper_watch(keeper, keeper->listener, err);
}

static void drop(struct keeper *keeper)
{
    if (keeper->front >= 0)
        close(keeper->front);
    keeper->front = -1;
}

/* A front that does not read is parted with: it comes again. */
static void say(struct keeper *keeper, const struct front_init_message *message, int fd)
{
    struct error ignored = {0};
    if (keeper->front >= 0 && !front_init_send(keeper->front, message, &fd, fd >= 0, &ignored))
        drop(keeper);
}

void front_accept(struct keeper *keeper)
{
    int socket = accept4(keeper->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct error ignored = {0};
    if (socket < 0)
        return;
    drop(keeper);
    keeper->front = socket;
    if (!keeper_watch(keeper, socket, &ignored)) {
        drop(keeper);
        return;
    }
    struct front_init_message welcome = {.type = FI_WELCOME}, current = {.type = FI_CURRENT};
    welcome.as.welcome =
        (struct fi_welcome){.version = FRONT_INIT_VERSION, .deadline_boot_ns = keeper->deadline_boot_ns};
    say(keeper, &welcome, -1);
    say(keeper, &current, -1);
}

static void dial(struct keeper *keeper, const struct fi_dial *asked)
{
    struct front_init_message answer = {.type = FI_DIALED};
    errno = EPROTONOSUPPORT;
    int fd = asked->family == FI_FAMILY_GUEST ? monitor_connect(keeper) : -1;
    answer.as.dialed = (struct fi_dialed){.number = asked->number, .error_number = fd < 0 ? errno : 0};
    say(keeper, &answer, fd);
    if (fd >= 0)
        close(fd);
}

static void refuse_start(struct keeper *keeper, const struct fi_start *start)
{
    struct front_init_message answer = {.type = FI_REFUSED};
    memcpy(answer.as.refused.id, start->id, sizeof answer.as.refused.id);
    error_set(&answer.as.refused.error, ERROR_INVALID, "commands of this sandbox are its guest's to start");
    say(keeper, &answer, -1);
}

static void take(struct keeper *keeper, const struct front_init_message *message)
{
    struct front_init_message answer = {.type = FI_LISTENERS_IS};
    if (message->type == FI_DIAL) {
        dial(keeper, &message->as.dial);
    } else if (message->type == FI_DEADLINE) {
        keeper->deadline_boot_ns = message->as.deadline.boot_ns;
        keeper_arm(keeper);
    } else if (message->type == FI_TERMINATE) {
        monitor_terminate(keeper, message->as.terminate.grace_ms, 0);
    } else if (message->type == FI_START) {
        refuse_start(keeper, &message->as.start);
    } else if (message->type == FI_LISTENERS) {
        answer.as.listeners.error_number = EPROTONOSUPPORT;
        say(keeper, &answer, -1);
    }
}

void front_hear(struct keeper *keeper)
{
    struct front_init_message message;
    int fds[FI_FDS_MAX];
    size_t count = 0;
    struct error err = {0};
    int got = front_init_receive(keeper->front, &message, FI_FROM_FRONT, fds, &count, &err);
    if (got < 0 && err.system_errno == EAGAIN)
        return;
    if (got <= 0) {
        drop(keeper);
        return;
    }
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    take(keeper, &message);
}
