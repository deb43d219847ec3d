/* notify_test.c - what a service manager is told, and what it may say in the environment. */
#include "shared/base/notify.h"

#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A manager of that abstract name. */
static int manager(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = (socklen_t)(sizeof address.sun_family + 1 + strlen(name));
    strcpy(address.sun_path + 1, name);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (const struct sockaddr *)&address, size) == 0);
    return fd;
}

static const char *heard(int fd)
{
    static char text[512];
    ssize_t size = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    text[size > 0 ? size : 0] = '\0';
    return text;
}

static void test_nobody(void)
{
    struct notify notify;
    struct error err = {0};
    unsetenv("NOTIFY_SOCKET");
    setenv("WATCHDOG_USEC", "1000000", 1);
    CHECK(notify_open(&notify, &err) && notify.socket == -1 && notify.every_ns == 0);
    notify_ready(&notify);
    notify_close(&notify);
}

static void test_told(void)
{
    char name[64], variable[66], pid[16], longer[400];
    struct notify notify;
    struct error err = {0};
    snprintf(name, sizeof name, "parley-notify-%d", (int)getpid());
    snprintf(variable, sizeof variable, "@%s", name);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    int fd = manager(name);
    setenv("NOTIFY_SOCKET", variable, 1);
    setenv("WATCHDOG_USEC", "30000000", 1);
    setenv("WATCHDOG_PID", pid, 1);
    CHECK(notify_open(&notify, &err) && notify.every_ns == 15000000000);
    CHECK(!getenv("NOTIFY_SOCKET") && !getenv("WATCHDOG_USEC") && !getenv("WATCHDOG_PID"));
    notify_ready(&notify);
    CHECK_TEXT(heard(fd), "READY=1");
    notify_alive(&notify);
    CHECK_TEXT(heard(fd), "WATCHDOG=1");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    notify_status(&notify, longer);
    CHECK(strlen(heard(fd)) == 207);
    notify_status(&notify, "one\nREADY=1"); /* one word, not two */
    CHECK_TEXT(heard(fd), "STATUS=one");
    for (int i = 0; i < 5000; i++)
        notify_alive(&notify); /* a full queue blocks nobody */
    close(fd);
    notify_stopping(&notify); /* a manager that went, too */
    notify_close(&notify);
}

static void test_not_for_us(void)
{
    char name[64], variable[66];
    struct notify notify;
    struct error err = {0};
    snprintf(name, sizeof name, "parley-notify-other-%d", (int)getpid());
    snprintf(variable, sizeof variable, "@%s", name);
    int fd = manager(name);
    setenv("NOTIFY_SOCKET", variable, 1);
    setenv("WATCHDOG_USEC", "30000000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    CHECK(notify_open(&notify, &err) && notify.socket >= 0 && notify.every_ns == 0);
    notify_close(&notify);
    close(fd);
}

static void test_bad_addresses(void)
{
    char longer[200] = "/";
    memset(longer + 1, 'x', sizeof longer - 2);
    const char *const BAD[] = {"relative", "@", "/", longer, "vsock:2:1"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct notify notify;
        struct error err = {0};
        setenv("NOTIFY_SOCKET", BAD[i], 1);
        CHECK(!notify_open(&notify, &err) && err.kind == ERROR_INVALID && notify.socket == -1);
    }
    struct notify notify;
    struct error err = {0};
    setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
    CHECK(!notify_open(&notify, &err) && err.kind == ERROR_INTERNAL);
    setenv("NOTIFY_SOCKET", "", 1);
    CHECK(notify_open(&notify, &err) && notify.socket == -1);
}

int main(void)
{
    test_nobody();
    test_told();
    test_not_for_us();
    test_bad_addresses();
    return check_done();
}
