/* programs_test.c - what a command finds as descriptor 3, and sockets of the sandbox's own network. */
#include "tests/unit/sandboxd/init/init_rig.h"

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/mman.h>

static int open_program(const char *bytes)
{
    char path[64];
    struct error err;
    AUTO_FD int sealed = fd_sealed_memfd("program", bytes, strlen(bytes), &err);
    snprintf(path, sizeof path, "/proc/self/fd/%d", sealed);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static bool start_with_program(struct rig *rig, const struct fi_start *how, const char *script, int program)
{
    char shell[] = "/bin/sh", flag[] = "-c", *text = strdup(script), *arguments[] = {shell, flag, text, NULL};
    const struct front_init_command command = {.cwd = "/", .arguments = arguments};
    struct front_init_message message = {.type = FI_START, .as.start = *how};
    struct error err = {0};
    strcpy(message.as.start.id, "program");
    message.as.start.with_program = 1;
    const int fds[] = {front_init_command_seal(&command, &err), program};
    bool is_sent = front_init_send(rig->connection, &message, fds, 2, &err);
    close(fds[0]);
    free(text);
    return is_sent;
}

static void check_program(struct rig *rig, const struct fi_start *how, const char *script, const char *want)
{
    struct front_init_message message;
    int fds[FI_FDS_MAX], program = open_program("the program\n");
    CHECK(start_with_program(rig, how, script, program));
    close(program);
    CHECK(rig_expect(rig, FI_STARTED, "program", &message, fds));
    /* of a terminal its master */
    char *output = rig_read(fds[0], SIZE_MAX);
    CHECK_TEXT(output, want);
    CHECK(rig_expect(rig, FI_EXITED, "program", &message, NULL) && message.as.exited.wait_status == 0);
    CHECK(rig_name(rig, FI_FORGET, "program"));
    for (int i = 0; i < FI_FDS_MAX; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    free(output);
}

static void test_program(struct rig *rig)
{
    static const struct fi_start plain, with_stdin = {.with_stdin = 1}, files = {.open_files = 16},
                                        terminal = {.with_stdin = 1, .terminal = 1, .columns = 80, .rows = 24};
    CHECK(rig_wait_spare(rig) > 0); /* it becomes the first; with other limits it cannot */
    check_program(rig, &plain, "ls /proc/$$/fd; cat <&3", "0\n1\n2\n3\nthe program\n");
    CHECK(rig_wait_spare(rig) > 0);
    check_program(rig, &with_stdin, "ls /proc/$$/fd; cat <&3", "0\n1\n2\n3\nthe program\n");
    check_program(rig, &files, "ls /proc/$$/fd; cat <&3; ulimit -n", "0\n1\n2\n3\nthe program\n16\n");
    CHECK(rig_wait_spare(rig) > 0);
    check_program(rig, &files, "cat <&3; ulimit -n", "the program\n16\n");
    CHECK(rig_wait_spare(rig) > 0);
    check_program(rig, &terminal, "cat <&3; [ -t 0 ] && echo terminal", "the program\r\nterminal\r\n");
    check_program(rig, &plain,
                  "echo x 2>/dev/null >&3 || echo read-only; (echo x >/proc/self/fd/3) 2>/dev/null || echo sealed",
                  "read-only\nsealed\n");
}

static void test_unsealed(struct rig *rig)
{
    struct front_init_message message;
    AUTO_FD int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(write(loose, "x", 1) == 1);
    CHECK(start_with_program(rig, &(struct fi_start){0}, "true", loose));
    CHECK(rig_expect(rig, FI_REFUSED, "program", &message, NULL));
    CHECK(message.as.refused.error.kind == ERROR_INVALID);
}

/* ---- sockets ---- */

static uint16_t listen_at(int family, int *fd)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr *at = family == AF_INET ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
    socklen_t size = family == AF_INET ? sizeof v4 : sizeof v6;
    *fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, at, size) < 0 || listen(*fd, 4) < 0)
        return 0;
    struct sockaddr_in6 got;
    size = sizeof got;
    CHECK(getsockname(*fd, (struct sockaddr *)&got, &size) == 0);
    return ntohs(got.sin6_port); /* where sin_port is, too */
}

/* The errno of the whole attempt, and the socket. */
static int dial(struct rig *rig, uint16_t port, uint8_t family, int *fd)
{
    struct front_init_message message = {.type = FI_DIAL};
    int fds[FI_FDS_MAX] = {-1}, number = 0;
    size_t count = 0;
    socklen_t size = sizeof number;
    message.as.dial = (struct fi_dial){.number = 0x1122334455667788, .port = port, .family = family};
    CHECK(rig_send(rig, &message, -1));
    CHECK(rig_receive(rig, &message, fds, &count) == 1 && message.type == FI_DIALED);
    CHECK(message.as.dialed.number == 0x1122334455667788);
    *fd = -1;
    if (message.as.dialed.error_number != 0 || count != 1)
        return message.as.dialed.error_number;
    *fd = fds[0];
    struct pollfd wait = {.fd = *fd, .events = POLLOUT};
    CHECK((fcntl(*fd, F_GETFL) & O_NONBLOCK) != 0);
    CHECK(poll(&wait, 1, RIG_PATIENCE_MS) == 1);
    CHECK(getsockopt(*fd, SOL_SOCKET, SO_ERROR, &number, &size) == 0);
    return number;
}

static void test_dial(struct rig *rig)
{
    char text[8] = "";
    int fd, listener;
    uint16_t port = listen_at(AF_INET, &listener);
    CHECK(dial(rig, port, 4, &fd) == 0);
    int peer = accept(listener, NULL, NULL);
    CHECK(write(peer, "hello", 5) == 5);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    CHECK(poll(&wait, 1, RIG_PATIENCE_MS) == 1 && read(fd, text, sizeof text) == 5 && memcmp(text, "hello", 5) == 0);
    close(fd);
    CHECK(read(peer, text, 1) == 0); /* init keeps none */
    close(peer);
    close(listener);
    CHECK(dial(rig, port, 4, &fd) == ECONNREFUSED);
    close(fd);
    port = listen_at(AF_INET6, &listener);
    if (port != 0) {
        CHECK(dial(rig, port, 6, &fd) == 0);
        close(fd);
        CHECK(dial(rig, port, 4, &fd) == ECONNREFUSED);
        close(fd);
    }
    close(listener);
}

static void test_listeners(struct rig *rig)
{
    struct front_init_message message = {.type = FI_LISTENERS};
    int fds[FI_FDS_MAX] = {-1}, protocol = -1;
    size_t count = 0;
    socklen_t size = sizeof protocol;
    CHECK(rig_send(rig, &message, -1));
    CHECK(rig_receive(rig, &message, fds, &count) == 1 && message.type == FI_LISTENERS_IS && count == 1);
    CHECK(getsockopt(fds[0], SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == NETLINK_SOCK_DIAG);
    close(fds[0]);
}

/* A front that asks and does not read: init stops reading it, and forgets nothing of others'. */
static void test_flood(struct rig *rig)
{
    struct front_init_message message = {.type = FI_DIAL, .as.dial = {.port = 1, .family = 4}};
    struct error err;
    int sent = 0, got = 0, fds[FI_FDS_MAX];
    size_t count;
    CHECK(fcntl(rig->connection, F_SETFL, O_NONBLOCK) == 0);
    while (sent < 5000 && front_init_send(rig->connection, &message, NULL, 0, &err))
        sent++;
    CHECK(sent > 0 && sent < 5000); /* it was told to wait */
    while (got < sent && rig_receive(rig, &message, fds, &count) == 1) {
        for (size_t i = 0; i < count; i++)
            close(fds[i]);
        got += message.type == FI_DIALED;
    }
    CHECK(got == sent);
    rig_connect(rig); /* one that leaves amid its answers */
    message = (struct front_init_message){.type = FI_DIAL, .as.dial = {.port = 1, .family = 4}};
    for (int i = 0; i < 300; i++)
        CHECK(front_init_send(rig->connection, &message, NULL, 0, &err) || err.system_errno == EAGAIN);
    rig_connect(rig);
    CHECK(rig_expect(rig, FI_CURRENT, "", &message, NULL));
}

int main(void)
{
    struct rig rig;
    rig_open_connected(&rig, NULL);
    CHECK(rig_wait_spare(&rig) > 0);
    int open_at_first = rig_count_fds(&rig);
    test_program(&rig);
    test_unsealed(&rig);
    test_dial(&rig);
    test_listeners(&rig);
    test_flood(&rig);
    CHECK(rig_wait_cgroups(&rig, 0));
    CHECK(rig_wait_fds(&rig, open_at_first));
    CHECK(rig_close(&rig));
    return check_done();
}
