/* Each message over a socket pair, whole and with its descriptors; and each way in which one is refused. */
#include "sandboxd/launcher_egress/launcher_egress.h"

#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

static int ends[2]; /* [0] the launcher's */

static struct launcher_egress_message config_of(void)
{
    struct launcher_egress_message message = {.type = EG_CONFIG};
    message.as.config = (struct eg_config){.uid = 991,
                                           .gid = 991,
                                           .log_level = 1,
                                           .server_count = 1,
                                           .servers = {{.address = htonl(0xcb007135), .port = 53}}};
    return message;
}

static struct launcher_egress_message sandbox_of(uint32_t mode, const char *names)
{
    struct launcher_egress_message message = {.type = EG_SANDBOX};
    message.as.sandbox = (struct eg_sandbox){.id = "sbx_0123456789abcdefghij", .number = 7, .mode = mode};
    memcpy(message.as.sandbox.allow, names, strlen(names));
    return message;
}

static struct launcher_egress_message pin_of(void)
{
    struct launcher_egress_message message = {.type = EG_PIN, .request = 3};
    message.as.pin = (struct eg_pin){
        .number = 7, .count = 2, .ttl_s = 60, .addresses = {htonl(0xcb007101), htonl(0xcb007102)}, .ports = {80, 443}};
    return message;
}

static bool passes(const struct launcher_egress_message *message, size_t fds, enum launcher_egress_end sender)
{
    struct error err = {0};
    bool good = launcher_egress_check(message, launcher_egress_size(message->type), fds, sender, &err);
    CHECK(good || err.kind == ERROR_INVALID);
    return good;
}

static void test_whole_way(const struct launcher_egress_message *message, size_t fds, enum launcher_egress_end sender)
{
    struct error err = {0};
    struct launcher_egress_message got;
    int taken[EG_FDS];
    size_t count = 99;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int sent[EG_FDS] = {null, null, null};
    int from = sender == EG_FROM_LAUNCHER ? 0 : 1;
    CHECK(launcher_egress_send(ends[from], message, sent, fds, &err));
    CHECK(launcher_egress_receive(ends[!from], &got, sender, taken, &count, &err) == 1);
    CHECK(count == fds && memcmp(&got, message, launcher_egress_size(message->type)) == 0);
    for (size_t i = 0; i < count; i++)
        close(taken[i]);
    CHECK(launcher_egress_send(ends[!from], message, sent, fds, &err)); /* the other way */
    CHECK(launcher_egress_receive(ends[from], &got, sender == EG_FROM_LAUNCHER ? EG_FROM_EGRESS : EG_FROM_LAUNCHER,
                                  taken, &count, &err) == -1);
    CHECK(err.kind == ERROR_INVALID);
    close(null);
}

static void test_messages(void)
{
    struct launcher_egress_message message = config_of();
    test_whole_way(&message, 0, EG_FROM_LAUNCHER);
    message = sandbox_of(EG_ALLOW, "pypi.org *.example.com github.com:22");
    test_whole_way(&message, EG_FDS, EG_FROM_LAUNCHER);
    test_whole_way(&message, 0, EG_FROM_LAUNCHER);
    message = (struct launcher_egress_message){.type = EG_GONE, .as.gone.number = 7};
    test_whole_way(&message, 0, EG_FROM_LAUNCHER);
    message = (struct launcher_egress_message){.type = EG_PINNED, .request = 3, .as.pinned = {.number = 7, .ok = 1}};
    test_whole_way(&message, 0, EG_FROM_LAUNCHER);
    message = (struct launcher_egress_message){.type = EG_READY};
    test_whole_way(&message, 0, EG_FROM_EGRESS);
    message = pin_of();
    test_whole_way(&message, 0, EG_FROM_EGRESS);
    struct error err = {0};
    int fds[EG_FDS];
    size_t count = 0;
    CHECK(launcher_egress_receive(ends[0], &message, EG_FROM_EGRESS, fds, &count, &err) == -1 &&
          err.system_errno == EAGAIN);
    message.type = 7;
    CHECK(!launcher_egress_send(ends[1], &message, NULL, 0, &err));
}

static void test_config(void)
{
    struct launcher_egress_message message = config_of();
    CHECK(passes(&message, 0, EG_FROM_LAUNCHER) && !passes(&message, 1, EG_FROM_LAUNCHER));
    message.as.config.server_count = 2;
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message.as.config.server_count = LAUNCHER_EGRESS_SERVERS + 1;
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message.as.config.server_count = 0; /* but one is there */
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message.as.config.servers[0] = (struct eg_server){0};
    CHECK(passes(&message, 0, EG_FROM_LAUNCHER));
    message = config_of();
    message.as.config.uid = 0;
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = config_of();
    message.as.config.log_level = 4;
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = config_of();
    message.request = 1;
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
}

static void test_sandbox(void)
{
    struct launcher_egress_message message = sandbox_of(EG_PUBLIC, "");
    CHECK(passes(&message, EG_FDS, EG_FROM_LAUNCHER) && passes(&message, 0, EG_FROM_LAUNCHER));
    CHECK(!passes(&message, 1, EG_FROM_LAUNCHER) && !passes(&message, EG_FDS + 1, EG_FROM_LAUNCHER));
    message = sandbox_of(EG_PUBLIC, "pypi.org");
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = sandbox_of(EG_ALLOW, "");
    CHECK(passes(&message, 0, EG_FROM_LAUNCHER));
    message = sandbox_of(EG_PUBLIC, "good.bad.org 203.0.113.7");
    memcpy(message.as.sandbox.deny, "*.bad.org 203.0.113.0/24:53/udp", 32);
    CHECK(passes(&message, 0, EG_FROM_LAUNCHER));
    message.as.sandbox.deny[3] = '\n';
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = sandbox_of(EG_PUBLIC, "");
    message.as.sandbox.deny[100] = 'y'; /* behind the end */
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = sandbox_of(EG_ALLOW, "a\nb");
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = sandbox_of(3, "");
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = sandbox_of(EG_ALLOW, "x");
    memset(message.as.sandbox.allow, 'a', sizeof message.as.sandbox.allow); /* no NUL */
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = sandbox_of(EG_ALLOW, "x");
    message.as.sandbox.allow[100] = 'y'; /* behind the end */
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = sandbox_of(EG_ALLOW, "x");
    message.as.sandbox.number = 0;
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
    message = sandbox_of(EG_ALLOW, "x");
    message.as.sandbox.id[0] = '\0';
    CHECK(!passes(&message, 0, EG_FROM_LAUNCHER));
}

static void test_pin(void)
{
    struct launcher_egress_message message = pin_of();
    CHECK(passes(&message, 0, EG_FROM_EGRESS) && !passes(&message, EG_FDS, EG_FROM_EGRESS));
    message.request = 0;
    CHECK(!passes(&message, 0, EG_FROM_EGRESS));
    message = pin_of();
    message.as.pin.count = 3;
    CHECK(!passes(&message, 0, EG_FROM_EGRESS));
    message.as.pin.count = LAUNCHER_EGRESS_PINS + 1;
    CHECK(!passes(&message, 0, EG_FROM_EGRESS));
    message = pin_of();
    message.as.pin.ttl_s = 86401;
    CHECK(!passes(&message, 0, EG_FROM_EGRESS));
    message = pin_of();
    message.as.pin.ports[0] = 0; /* 443 behind the end */
    CHECK(!passes(&message, 0, EG_FROM_EGRESS));
    message.as.pin.ports[1] = 0;
    CHECK(!passes(&message, 0, EG_FROM_EGRESS));
    struct launcher_egress_message pinned = {.type = EG_PINNED, .request = 3, .as.pinned = {.number = 7, .ok = 2}};
    CHECK(!passes(&pinned, 0, EG_FROM_LAUNCHER));
    struct launcher_egress_message ready = {.type = EG_READY};
    CHECK(!launcher_egress_check(&ready, 15, 0, EG_FROM_EGRESS, NULL) && passes(&ready, 0, EG_FROM_EGRESS));
}

int main(void)
{
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    test_messages();
    test_config();
    test_sandbox();
    test_pin();
    close(ends[0]);
    close(ends[1]);
    return check_done();
}
