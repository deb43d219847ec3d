#include "shared/base/notify.h"

#include "shared/base/text.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char *const VARIABLES[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};

/* "/path", or "@name" of an abstract one (unix(7)). */
static bool read_address(const char *text, struct sockaddr_un *address, socklen_t *size, struct error *err)
{
    size_t length = strlen(text);
    if ((text[0] != '/' && text[0] != '@') || length < 2 || length >= sizeof address->sun_path)
        return error_set(err, ERROR_INVALID, "NOTIFY_SOCKET must be /path or @name of at most %zu bytes",
                         sizeof address->sun_path - 1);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, text, length);
    if (text[0] == '@')
        address->sun_path[0] = '\0';
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return true;
}

/* Half of what the manager waits, when it waits for us. */
static uint64_t interval_ns(void)
{
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t microseconds = 0, who = 0;
    if (us == NULL || !text_parse_u64(us, strlen(us), UINT64_MAX / 1000, &microseconds))
        return 0;
    if (pid && (!text_parse_u64(pid, strlen(pid), INT32_MAX, &who) || who != (uint64_t)getpid()))
        return 0;
    return microseconds * 1000 / 2;
}

bool notify_open(struct notify *notify, struct error *err)
{
    struct sockaddr_un address;
    socklen_t size = 0;
    const char *text = getenv("NOTIFY_SOCKET");
    *notify = NOTIFY_NONE;
    if (text == NULL || text[0] == '\0')
        return true;
    if (!read_address(text, &address, &size, err))
        return false;
    uint64_t every_ns = interval_ns();
    AUTO_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, size) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "NOTIFY_SOCKET %s", text);
    for (size_t i = 0; i < sizeof VARIABLES / sizeof VARIABLES[0]; i++)
        unsetenv(VARIABLES[i]);
    *notify = (struct notify){.socket = TAKE_FD(fd), .every_ns = every_ns};
    return true;
}

void notify_close(struct notify *notify)
{
    if (notify->socket >= 0)
        close(notify->socket);
    *notify = NOTIFY_NONE;
}

/* A manager that takes nothing must not hold us up; the next sign of life comes soon. */
static void tell(const struct notify *notify, const char *state)
{
    if (notify->socket >= 0)
        (void)!send(notify->socket, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void notify_ready(const struct notify *notify)
{
    tell(notify, "READY=1");
}

void notify_stopping(const struct notify *notify)
{
    tell(notify, "STOPPING=1");
}

void notify_alive(const struct notify *notify)
{
    tell(notify, "WATCHDOG=1");
}

void notify_status(const struct notify *notify, const char *text)
{
    char line[224];
    (void)snprintf(line, sizeof line, "STATUS=%.200s", text); /* cut on purpose */
    line[strcspn(line, "\n")] = '\0';
    tell(notify, line);
}
