/* The messages between front and launcher: what is whole passes with its descriptors; everything else is refused. */
#include "sandboxd/front_launcher/front_launcher.h"

#include "negotiator/leasing/wanted.h"
#include "shared/base/fd.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

/* What the negotiator lets through, a node can keep. */
_Static_assert(WANTED_ENV_BYTES < ENV_BYTES, "the last byte is the empty text's");

static const char ID[] = "sbx_0123456789abcdefghij";

static struct front_launcher_message prepare(void)
{
    struct front_launcher_message message = {.type = FL_PREPARE, .request = 7};
    memcpy(message.as.prepare.id, ID, sizeof ID);
    memcpy(message.as.prepare.hostname, "brisk-otter", 12);
    memcpy(message.as.prepare.template_name, "base", 5);
    memcpy(message.as.prepare.isolation, "auto", 5);
    message.as.prepare.limits = (struct fl_limits){.cpu_milli = 1000, .pids = 256, .memory_bytes = 512 << 20};
    message.as.prepare.deadline_wall_ms = 1;
    message.as.prepare.epoch = 1;
    return message;
}

static struct front_launcher_message sandbox(void)
{
    struct front_launcher_message message = {.type = FL_SANDBOX, .request = 7};
    struct fl_sandbox *as = &message.as.sandbox;
    memcpy(as->id, ID, sizeof ID);
    memcpy(as->hostname, "box", 4);
    memcpy(as->template_name, "base", 5);
    memcpy(as->isolation, "namespaces", 11);
    memcpy(as->storage, "tmpfs", 6);
    memcpy(as->socket_path, "12/init.sock", 13);
    memcpy(as->workdir, "/workspace", 11);
    as->init_pid = 4711;
    as->epoch = as->uid = 1;
    return message;
}

static bool passes(const struct front_launcher_message *message, size_t fds, enum front_launcher_end sender)
{
    struct error err = {0};
    bool passed = front_launcher_check(message, front_launcher_size(message->type), fds, sender, &err);
    CHECK(passed == (err.kind == ERROR_NONE));
    CHECK(passed || err.kind == ERROR_INVALID);
    return passed;
}

static void test_sizes(void)
{
    struct error err = {0};
    struct front_launcher_message message = prepare();
    size_t size = front_launcher_size(FL_PREPARE);
    CHECK(size > 0 && size <= sizeof message);
    CHECK(front_launcher_check(&message, size, 0, FL_FROM_FRONT, &err));
    CHECK(!front_launcher_check(&message, size - 1, 0, FL_FROM_FRONT, &err));
    CHECK(!front_launcher_check(&message, size + 1, 0, FL_FROM_FRONT, &err));
    CHECK(!front_launcher_check(&message, 3, 0, FL_FROM_FRONT, &err));
    CHECK(front_launcher_size(0) == 0);
    CHECK(front_launcher_size(FL_EVIDENT + 1) == 0);
    for (uint32_t type = FL_READY; type <= FL_EVIDENT; type++)
        CHECK(front_launcher_size(type) >= 16 && front_launcher_size(type) <= sizeof message);
}

static void test_directions(void)
{
    struct front_launcher_message message = prepare();
    CHECK(passes(&message, 0, FL_FROM_FRONT));
    CHECK(!passes(&message, 0, FL_FROM_LAUNCHER));
    message = sandbox();
    CHECK(passes(&message, FL_FDS, FL_FROM_LAUNCHER));
    CHECK(passes(&message, 0, FL_FROM_LAUNCHER));
    CHECK(!passes(&message, FL_FDS - 1, FL_FROM_LAUNCHER));
    CHECK(!passes(&message, FL_FDS, FL_FROM_FRONT));
    message = (struct front_launcher_message){.type = FL_READY};
    CHECK(passes(&message, 0, FL_FROM_FRONT));
    CHECK(!passes(&message, 1, FL_FROM_FRONT));
    message = (struct front_launcher_message){.type = FL_EVIDENT};
    CHECK(passes(&message, 1, FL_FROM_LAUNCHER) && !passes(&message, 0, FL_FROM_LAUNCHER));
    CHECK(!passes(&message, 2, FL_FROM_LAUNCHER) && !passes(&message, 1, FL_FROM_FRONT));
    message = (struct front_launcher_message){.type = FL_EVIDENCE, .as.evidence.part = FL_EVIDENCE_FILES};
    memcpy(message.as.evidence.id, ID, sizeof ID);
    CHECK(passes(&message, 0, FL_FROM_FRONT) && !passes(&message, 1, FL_FROM_FRONT));
    message.as.evidence.part = FL_EVIDENCE_FILES + 1;
    CHECK(!passes(&message, 0, FL_FROM_FRONT));
}

static void test_texts(void)
{
    struct front_launcher_message message = prepare();
    memset(message.as.prepare.hostname, 'a', sizeof message.as.prepare.hostname); /* no end */
    CHECK(!passes(&message, 0, FL_FROM_FRONT));
    static const char *const HOSTNAMES[] = {"", "a/b", "Box", "a b", "a\nb", ".."};
    for (size_t i = 0; i < sizeof HOSTNAMES / sizeof HOSTNAMES[0]; i++) {
        message = prepare();
        memset(message.as.prepare.hostname, 0, sizeof message.as.prepare.hostname);
        memcpy(message.as.prepare.hostname, HOSTNAMES[i], strlen(HOSTNAMES[i]));
        CHECK(!passes(&message, 0, FL_FROM_FRONT));
    }
    static const char *const IDS[] = {"",
                                      "sbx_",
                                      "sbx_0123456789abcdefghi",
                                      "sbx_0123456789abcdefghijk",
                                      "sbx_0123456789ABCDEFGHIJ",
                                      "lse_0123456789abcdefghij",
                                      "../../../../etc"};
    for (size_t i = 0; i < sizeof IDS / sizeof IDS[0]; i++) {
        message = prepare();
        memset(message.as.prepare.id, 0, sizeof message.as.prepare.id);
        memcpy(message.as.prepare.id, IDS[i], strlen(IDS[i]));
        CHECK(!passes(&message, 0, FL_FROM_FRONT));
    }
    message = prepare();
    message.as.prepare.id[30] = 'x'; /* hidden behind the NUL */
    CHECK(!passes(&message, 0, FL_FROM_FRONT));
    message = prepare();
    message.as.prepare.deadline_wall_ms = -1;
    CHECK(!passes(&message, 0, FL_FROM_FRONT));
    message = prepare();
    message.reserved = 1;
    CHECK(!passes(&message, 0, FL_FROM_FRONT));
}

/* `size` bytes at the beginning of the field. */
static bool env_passes(const void *bytes, size_t size)
{
    struct front_launcher_message asked = prepare(), told = sandbox();
    memcpy(asked.as.prepare.env, bytes, size);
    memcpy(told.as.sandbox.env, bytes, size);
    bool passed = passes(&asked, 0, FL_FROM_FRONT);
    CHECK(passes(&told, FL_FDS, FL_FROM_LAUNCHER) == passed);
    return passed;
}

#define ENV_PASSES(literal) env_passes(literal, sizeof(literal))

static void test_rekey(void)
{
    struct front_launcher_message message = {.type = FL_REKEY, .request = 3, .as.rekey.epoch = 2};
    memset(&message.as.rekey.box, 0xa5, sizeof message.as.rekey.box); /* bytes of any kind */
    CHECK(passes(&message, 0, FL_FROM_FRONT));
    CHECK(!passes(&message, 0, FL_FROM_LAUNCHER) && !passes(&message, FL_FDS, FL_FROM_FRONT));
    struct error err = {0};
    size_t size = front_launcher_size(FL_REKEY);
    CHECK(!front_launcher_check(&message, size - 1, 0, FL_FROM_FRONT, &err));
    CHECK(!front_launcher_check(&message, size + 1, 0, FL_FROM_FRONT, &err));
    for (message.as.rekey.epoch = 0; message.as.rekey.epoch < 2; message.as.rekey.epoch++)
        CHECK(!passes(&message, 0, FL_FROM_FRONT)); /* the first key comes by enrolment */
    struct front_launcher_message done = {.type = FL_REKEYED, .request = 3};
    CHECK(passes(&done, 0, FL_FROM_LAUNCHER) && !passes(&done, 0, FL_FROM_FRONT));
}

static void test_env(void)
{
    CHECK(ENV_PASSES("A=1\0_b2=\0C=x=y \n\xc3\xa4\0"));
    CHECK(!ENV_PASSES("A") && !ENV_PASSES("=1") && !ENV_PASSES("1A=1") && !ENV_PASSES("A-B=1") && !ENV_PASSES("A B=1"));
    CHECK(!ENV_PASSES("\xc3\xa4=1") && !ENV_PASSES("A=\xff") && !ENV_PASSES("A=\xc3"));
    CHECK(!ENV_PASSES("A=1\0\0B=2") && !ENV_PASSES("\0A=1")); /* hidden behind the end */
    char full[ENV_BYTES];
    memset(full, 'a', sizeof full);
    full[1] = '=';
    CHECK(!env_passes(full, sizeof full)); /* no end */
    full[sizeof full - 1] = '\0';
    CHECK(!env_passes(full, sizeof full)); /* of the text, not of all */
    full[sizeof full - 2] = '\0';
    CHECK(env_passes(full, sizeof full));
    struct front_launcher_message message = prepare();
    message.as.prepare.epoch = 0;
    CHECK(!passes(&message, 0, FL_FROM_FRONT));
    message = sandbox();
    message.as.sandbox.epoch = 0;
    CHECK(!passes(&message, FL_FDS, FL_FROM_LAUNCHER));
}

static void test_env_add(void)
{
    struct error err = {0};
    char env[ENV_BYTES] = "", before[ENV_BYTES];
    CHECK(env_add(env, "A", "1", &err) && env_add(env, "_B2", "", &err));
    CHECK(memcmp(env, "A=1\0_B2=\0", 10) == 0 && env_is_whole(env));
    memcpy(before, env, sizeof env);
    CHECK(!env_add(env, "2B", "1", &err) && !env_add(env, "", "1", &err) && !env_add(env, "A=B", "1", &err));
    CHECK(!env_add(env, "C", "\xff", &err) && err.kind == ERROR_INVALID);
    char rest[ENV_BYTES] = "";
    memset(rest, 'x', ENV_BYTES - 1 - 9 - 3 + 1); /* what is left but for "C=" and the end, and one more */
    CHECK(!env_add(env, "C", rest, &err) && strstr(err.message, "env has more than 4095 bytes") != NULL);
    CHECK(memcmp(before, env, sizeof env) == 0);
    CHECK(env_add(env, "C", rest + 1, &err) && env_is_whole(env));
    CHECK(!env_add(env, "D", "", &err));
}

/* In a prepare, in a change, and in what the launcher tells. */
static bool network_passes(const struct fl_network *network)
{
    struct front_launcher_message asked = prepare(), told = sandbox(), change = {.type = FL_NETWORK, .request = 1};
    memcpy(change.as.network.id, ID, sizeof ID);
    asked.as.prepare.network = change.as.network.network = told.as.sandbox.network = *network;
    bool passed = passes(&asked, 0, FL_FROM_FRONT);
    CHECK(passes(&change, 0, FL_FROM_FRONT) == passed && passes(&told, FL_FDS, FL_FROM_LAUNCHER) == passed);
    CHECK(!passes(&change, 0, FL_FROM_LAUNCHER) && !passes(&change, 1, FL_FROM_FRONT));
    return passed;
}

static bool net_passes(struct fl_net net)
{
    struct fl_network network = {.mode = FL_NETWORK_ALLOW, .net_count = 1, .nets = {net}};
    return network_passes(&network);
}

static bool names_pass(const char *names)
{
    struct fl_network network = {.mode = FL_NETWORK_ALLOW};
    memcpy(network.names, names, strlen(names));
    return network_passes(&network);
}

static void test_network(void)
{
    struct fl_network network = {.mode = FL_NETWORK_PUBLIC};
    CHECK(network_passes(&network));
    network.names[0] = 'a';
    CHECK(!network_passes(&network));
    network = (struct fl_network){.mode = FL_NETWORK_ALLOW + 1};
    CHECK(!network_passes(&network));
    network = (struct fl_network){.net_count = 1};
    CHECK(!network_passes(&network));
    network = (struct fl_network){.mode = FL_NETWORK_ALLOW, .net_count = FRONT_LAUNCHER_NETS + 1};
    CHECK(!network_passes(&network));
    network = (struct fl_network){.mode = FL_NETWORK_ALLOW, .nets[3].prefix = 1}; /* hidden behind the count */
    CHECK(!network_passes(&network));
    CHECK(net_passes((struct fl_net){.address = 0xCB007100, .prefix = 24}) && net_passes((struct fl_net){0}));
    CHECK(net_passes(
        (struct fl_net){.address = 0xCB007107, .prefix = 32, .protocol = 17, .port_from = 1, .port_to = 65535}));
    CHECK(!net_passes((struct fl_net){.address = 0xCB007107, .prefix = 24}) &&
          !net_passes((struct fl_net){.prefix = 33}));
    CHECK(!net_passes((struct fl_net){.protocol = 1}) && !net_passes((struct fl_net){.port_from = 2, .port_to = 1}));
    CHECK(!net_passes((struct fl_net){.port_to = 1}) && !net_passes((struct fl_net){.reserved = 1}));
    CHECK(names_pass("pypi.org *.x-1.example github.com:22") && names_pass(""));
    CHECK(!names_pass("PyPI.org") && !names_pass(" a.b") && !names_pass("a.b ") && !names_pass("a.b  c.d"));
    CHECK(!names_pass("a.b\n") && !names_pass("a;b") && !names_pass("a\"b") && !names_pass("{") &&
          !names_pass("a\xc3\xa4"));
    memset(network.names, 'a', sizeof network.names); /* no end */
    network.nets[3].prefix = 0;
    CHECK(!network_passes(&network));
    network.names[sizeof network.names - 1] = '\0';
    CHECK(network_passes(&network));
}

static void test_denied(void)
{
    const struct fl_network some = {.mode = FL_NETWORK_PUBLIC,
                                    .net_count = 1,
                                    .nets = {{.address = 0xCB007107, .prefix = 32}},
                                    .names = "good.bad.org",
                                    .denied_count = 1,
                                    .denied = {{.address = 0xCB007100, .prefix = 24, .port_from = 53, .port_to = 53}},
                                    .denied_names = "*.bad.org"};
    struct fl_network network = some;
    CHECK(network_passes(&network));
    network.mode = FL_NETWORK_ALLOW;
    CHECK(network_passes(&network));
    network.mode = FL_NETWORK_NONE;
    CHECK(!network_passes(&network));
    network = some;
    network.nets[0].port_from = network.nets[0].port_to = 22; /* an exception has none */
    CHECK(!network_passes(&network));
    network = some;
    network.denied_count = 2;
    network.denied[1].prefix = 33;
    CHECK(!network_passes(&network));
    network.denied_count = FRONT_LAUNCHER_NETS + 1;
    CHECK(!network_passes(&network));
    network = some;
    network.denied[5].prefix = 1; /* hidden behind the count */
    CHECK(!network_passes(&network));
    network = some;
    network.denied_names[0] = ';';
    CHECK(!network_passes(&network));
    network = some;
    memset(network.denied_names, 'a', sizeof network.denied_names); /* no end */
    CHECK(!network_passes(&network));
    network = some;
    network.reserved = 1;
    CHECK(!network_passes(&network));
}

static void test_paths_and_errors(void)
{
    static const char *const PATHS[] = {"", "/etc/passwd", "../x", "1/../../x", "1 2"};
    for (size_t i = 0; i < sizeof PATHS / sizeof PATHS[0]; i++) {
        struct front_launcher_message message = sandbox();
        memset(message.as.sandbox.socket_path, 0, sizeof message.as.sandbox.socket_path);
        memcpy(message.as.sandbox.socket_path, PATHS[i], strlen(PATHS[i]));
        CHECK(!passes(&message, FL_FDS, FL_FROM_LAUNCHER));
    }
    struct front_launcher_message message = {.type = FL_REFUSED};
    CHECK(!passes(&message, 0, FL_FROM_LAUNCHER)); /* refused with "no error" */
    error_set(&message.as.refused, ERROR_NO_CAPACITY, "full");
    CHECK(passes(&message, 0, FL_FROM_LAUNCHER));
    int beyond = ERROR_KINDS;
    memcpy(&message.as.refused.kind, &beyond, sizeof beyond);
    CHECK(!passes(&message, 0, FL_FROM_LAUNCHER));
    error_set(&message.as.refused, ERROR_NO_CAPACITY, "full");
    memset(message.as.refused.message, 'a', sizeof message.as.refused.message);
    CHECK(!passes(&message, 0, FL_FROM_LAUNCHER));
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_over_a_socket(void)
{
    struct error err = {0};
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    int fds[FL_FDS];
    for (int i = 0; i < FL_FDS; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    size_t before = count_descriptors();
    struct front_launcher_message sent = sandbox();
    struct front_launcher_message got = {0};
    int received[FL_FDS];
    size_t count = 0;
    CHECK(front_launcher_receive(pair[1], &got, FL_FROM_LAUNCHER, received, &count, &err) == -1);
    CHECK(err.system_errno == EAGAIN);
    CHECK(front_launcher_send(pair[0], &sent, fds, FL_FDS, &err));
    CHECK(front_launcher_receive(pair[1], &got, FL_FROM_LAUNCHER, received, &count, &err) == 1);
    CHECK(count == FL_FDS);
    CHECK(memcmp(&got, &sent, front_launcher_size(FL_SANDBOX)) == 0);
    CHECK(fcntl(received[0], F_GETFD) == FD_CLOEXEC);
    for (size_t i = 0; i < count; i++)
        close(received[i]);
    /* What is refused leaves no descriptor behind. */
    sent.as.sandbox.init_pid = 0;
    CHECK(front_launcher_send(pair[0], &sent, fds, FL_FDS, &err));
    CHECK(front_launcher_receive(pair[1], &got, FL_FROM_LAUNCHER, received, &count, &err) == -1);
    CHECK(err.kind == ERROR_INVALID);
    CHECK(count_descriptors() == before);
    sent.type = 99;
    CHECK(!front_launcher_send(pair[0], &sent, NULL, 0, &err));
    close(pair[0]);
    CHECK(front_launcher_receive(pair[1], &got, FL_FROM_LAUNCHER, received, &count, &err) == 0);
    close(pair[1]);
    for (int i = 0; i < FL_FDS; i++)
        close(fds[i]);
}

/* Whatever the negotiator gives as a reason: a front that passes it on must not be ended for it. */
static void test_reasons(void)
{
    static const char *const REASONS[] = {
        "deleted", "", "failed: the sandbox is not ready yet; try again", "\n\033[2J\xff\"",
        "a reason that is far longer than the sixty-three bytes that a message has for it"};
    for (size_t i = 0; i < sizeof REASONS / sizeof *REASONS; i++) {
        struct front_launcher_message message = {.type = FL_DESTROY, .request = 7};
        memcpy(message.as.destroy.id, ID, sizeof ID);
        front_launcher_reason(message.as.destroy.reason, REASONS[i]);
        CHECK(passes(&message, 0, FL_FROM_FRONT));
    }
    char told[FRONT_LAUNCHER_NAME_BYTES];
    front_launcher_reason(told, "max_lifetime");
    CHECK(strcmp(told, "max_lifetime") == 0);
    front_launcher_reason(told, "failed: not ready; again");
    CHECK(strcmp(told, "failed: not ready_ again") == 0);
}

int main(void)
{
    test_sizes();
    test_directions();
    test_rekey();
    test_texts();
    test_reasons();
    test_env();
    test_env_add();
    test_network();
    test_denied();
    test_paths_and_errors();
    test_over_a_socket();
    return check_done();
}
