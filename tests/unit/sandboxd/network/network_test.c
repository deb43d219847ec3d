/* The networks of sandboxes, on a host that is a network namespace of the test's own: what is made, what passes, pins,
 * adoption, forwarding, what is left. The attacks are tests/escape/network_test.py's. */
#include "sandboxd/network/network_internal.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint32_t FAR = 0xCB007107; /* 203.0.113.7 */
static const uint32_t OWN = 0xC6336401; /* 198.51.100.1, the host's */
static const uint64_t SECOND = 1000000000;
static char folder[] = "/tmp/parley-network-XXXXXX";
static int far_side = -1; /* the namespace behind the host's eth9 */

static const struct fl_network NONE = {.mode = FL_NETWORK_NONE};
static const struct fl_network PUBLIC = {.mode = FL_NETWORK_PUBLIC};
static const struct fl_network TO_FAR = {
    .mode = FL_NETWORK_ALLOW, .net_count = 1, .nets = {{.address = 0xCB007107, .prefix = 32}}, .names = "a.example"};
static const struct fl_network NAMES_ALONE = {.mode = FL_NETWORK_ALLOW, .names = "a.example"};

/* --- a host with a neighbour --- */

static bool says(const char *command, const char *wanted)
{
    char text[16384];
    FILE *pipe = popen(command, "r");
    size_t size = pipe ? fread(text, 1, sizeof text - 1, pipe) : 0;
    text[size] = '\0';
    bool is_done = pipe && pclose(pipe) == 0;
    return is_done && strstr(text, wanted) != NULL;
}

static void make_host(void)
{
    struct error err = {0};
    CHECK(mkdtemp(folder) != NULL);
    if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0)
        check_skip("needs root, and network namespaces");
    AUTO_FD int home = namespace_open(&err);
    far_side = namespace_make(home, &err);
    AUTO(netlink) *netlink = netlink_new(&err);
    const struct netlink_pair pair = {.name = "eth9",
                                      .peer_name = "eth0",
                                      .peer_namespace = far_side,
                                      .mac = {2, 0, 0, 0, 9, 0},
                                      .peer_mac = {2, 0, 0, 0, 9, 1}};
    if (far_side < 0 || !netlink_add_pair(netlink, &pair, &err))
        check_skip(err.message);
    uint32_t index = if_nametoindex("eth9");
    CHECK(netlink_add_address(netlink, index, OWN, &err) &&
          netlink_add_neighbour(netlink, index, FAR, pair.peer_mac, &err));
    CHECK(system("ip link set lo up; ip route add 203.0.113.7 dev eth9") == 0);
    CHECK(namespace_enter(far_side, &err));
    CHECK(system("ip link set eth0 up; ip addr add 203.0.113.7/32 dev eth0; ip route add default dev eth0") == 0);
    namespace_leave(home);
}

static struct networks *open_networks(const char *state)
{
    struct error err = {0};
    const struct networks_options options = {.state = state,
                                             .net = "100.126.0.0/20",
                                             .servers = "198.51.100.53",
                                             .shared_folder = folder,
                                             .egress_uid = 58703,
                                             .stock = 3};
    struct networks *all = networks_open(&options, &err);
    CHECK(all != NULL);
    return all;
}

/* 0, or errno of a connection from that namespace; ETIMEDOUT when nothing is said for 2 s. */
static int connect_from(int where, int home, uint32_t address, uint16_t port)
{
    struct error err = {0};
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    const struct timeval patience = {.tv_sec = 2};
    CHECK(namespace_enter(where, &err));
    AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    namespace_leave(home);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0)
        return 0;
    return errno == EINPROGRESS ? ETIMEDOUT : errno;
}

static int listen_at(int where, int home, uint32_t address, uint16_t port)
{
    struct error err = {0};
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    CHECK(namespace_enter(where, &err));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(fd, (const struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 16) == 0);
    namespace_leave(home);
    return fd;
}

static bool is_forwarding(const char *name)
{
    AUTO_FREE char *path = memory_printf("/proc/sys/net/ipv4/conf/%s/forwarding", name);
    char value = 0;
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &value, 1) == 1 && value == '1';
}

/* --- the tests --- */

static void test_stock(void)
{
    struct error err = {0};
    AUTO(networks) *all = open_networks("/a");
    pid_t maker = all->maker.pid;
    CHECK(maker > 0);
    for (int i = 0; i < 8; i++) { /* of those that are ready, made now, by the next maker */
        if (i == 5)
            CHECK(kill(maker, SIGKILL) == 0);
        AUTO_FD int taken = networks_take(all, &err);
        CHECK(taken >= 0);
        usleep(i == 5 || i == 1 ? 50000 : 0);
        CHECK(namespace_enter(taken, &err));
        CHECK(says("ip -br link; cat /proc/sys/net/ipv4/ip_unprivileged_port_start", "lo "));
        CHECK(!says("ip -br link", "eth") && says("ip -br addr show lo", "127.0.0.1/8"));
        namespace_leave(all->home);
    }
    CHECK(says("ip -br link", "eth9"));
    all->maker_boot_ns = 0; /* a second later */
    AUTO_FD int more UNUSED = networks_take(all, &err);
    CHECK(all->maker.pid > 0 && all->maker.pid != maker);
    for (int i = 0; i < 3; i++) { /* it has three ready, all different ones */
        struct pollfd ready = {.fd = all->maker.socket, .events = POLLIN};
        CHECK(poll(&ready, 1, 20000) == 1);
        AUTO_FD int taken = maker_take(&all->maker);
        CHECK(taken >= 0);
    }
}

static void test_ways(struct networks *all, int far_listener)
{
    struct error err = {0};
    AUTO_FD int where = networks_take(all, &err);
    AUTO(network) *network = network_new(all, 7);
    AUTO_FD int own UNUSED = listen_at(all->home, all->home, OWN, 80);
    CHECK(far_listener >= 0 && connect_from(all->home, all->home, FAR, 80) == 0);
    CHECK(network_apply(network, where, &NONE, &err) && !network_sockets(network));
    CHECK(connect_from(where, all->home, FAR, 80) == ECONNREFUSED ||
          connect_from(where, all->home, FAR, 80) == ENETUNREACH);
    CHECK(!says("ip -br link", "ply7"));
    CHECK(network_apply(network, where, &PUBLIC, &err) && network_sockets(network));
    CHECK(says("ip -br link", "ply7-") && is_forwarding("eth9") && !is_forwarding("lo"));
    CHECK(connect_from(where, all->home, FAR, 80) == 0);
    CHECK(connect_from(where, all->home, FAR, 22) == ECONNREFUSED); /* by our rules: there, nobody answers at all */
    CHECK(connect_from(where, all->home, OWN, 80) == ECONNREFUSED);
    CHECK(connect_from(all->home, all->home, OWN, 80) == 0);
    CHECK(connect_from(all->home, all->home, 0x7F000001, 9) == ECONNREFUSED); /* the host's own life goes on */
    CHECK(network_apply(network, where, &TO_FAR, &err) && connect_from(where, all->home, FAR, 80) == 0);
    CHECK(network_apply(network, where, &NONE, &err) && !network_sockets(network));
    CHECK(connect_from(where, all->home, FAR, 80) == ECONNREFUSED);
}

static void test_what_is_refused(struct networks *all)
{
    struct error err = {0};
    AUTO_FD int where = networks_take(all, &err);
    AUTO(network) *network = network_new(all, 8);
    CHECK(network_apply(network, where, &PUBLIC, &err));
    struct fl_network wrong = TO_FAR;
    wrong.nets[0] = (struct fl_net){.address = 0x0A000000, .prefix = 8};
    CHECK(!network_apply(network, where, &wrong, &err) && err.kind == ERROR_INVALID);
    CHECK(network_rules(network)->mode == FL_NETWORK_PUBLIC && connect_from(where, all->home, FAR, 80) == 0);
    /* The port is taken inside: what was is what is. */
    CHECK(network_apply(network, where, &NONE, &err));
    AUTO_FD int taken UNUSED = listen_at(where, all->home, RULES_LOCAL, 53);
    CHECK(!network_apply(network, where, &TO_FAR, &err) && err.kind == ERROR_CONFLICT);
    CHECK(network_rules(network)->mode == FL_NETWORK_NONE && connect_from(where, all->home, FAR, 80) != 0);
    CHECK(!network_apply(network, -1, &PUBLIC, &err));
}

static bool pin(struct network *network, uint32_t address, uint16_t port, uint32_t ttl_s, uint64_t now,
                struct error *err)
{
    const struct network_pins pins = {.rules = network_mark(network),
                                      .addresses = &address,
                                      .ports = &port,
                                      .address_count = 1,
                                      .port_count = 1,
                                      .ttl_s = ttl_s};
    return network_pin(network, &pins, now, err);
}

static void test_pins(struct networks *all, int far_ssh)
{
    struct error err = {0};
    uint64_t now = clock_boot_ns();
    AUTO_FD int where = networks_take(all, &err);
    AUTO(network) *network = network_new(all, 9);
    CHECK(!pin(network, FAR, 22, 60, now, &err) && err.kind == ERROR_FORBIDDEN);
    CHECK(network_apply(network, where, &PUBLIC, &err) && !pin(network, FAR, 22, 60, now, &err));
    CHECK(network_apply(network, where, &NAMES_ALONE, &err) && far_ssh >= 0);
    CHECK(connect_from(where, all->home, FAR, 22) == ECONNREFUSED);
    CHECK(pin(network, FAR, 22, 60, now, &err) && connect_from(where, all->home, FAR, 22) == 0);
    static const uint32_t BLOCKED[] = {0x0A000001, 0x7F000001, 0xA9FEA9FE, 0x647E0001, 0xFFFFFFFF, 0, 0xC6336401};
    for (size_t i = 0; i < sizeof BLOCKED / sizeof BLOCKED[0]; i++)
        CHECK(!pin(network, BLOCKED[i], 22, 60, now, &err) && err.kind == ERROR_FORBIDDEN);
    /* One that is there costs nothing and is never shortened. */
    CHECK(pin(network, FAR, 22, 1, now, &err) && network->pin_count == 1);
    CHECK(network->pins[0].until_boot_ns == now + 60 * SECOND);
    /* A rate, and room. */
    err = (struct error){0};
    for (uint32_t i = 0; i < NETWORK_PINS_A_S && err.kind == ERROR_NONE; i++)
        (void)!pin(network, FAR + 1 + i, 22, 60, now, &err);
    CHECK(err.kind == ERROR_RATE_LIMITED);
    bool is_full = false;
    for (uint32_t i = 0; i < NETWORK_PINS_MAX + 2 && !is_full; i++) {
        now += SECOND / 20;
        is_full = !pin(network, 0x08000000 + i, 22, 3600, now, &err);
    }
    CHECK(is_full && err.kind == ERROR_NO_CAPACITY && network->pin_count == NETWORK_PINS_MAX);
    CHECK(pin(network, FAR, 23, 60, now + 3700 * SECOND, &err) && network->pin_count == 1); /* the old ones are over */
    /* The same names keep their pins, others do not. */
    struct fl_network more = NAMES_ALONE;
    more.net_count = 1;
    more.nets[0] = (struct fl_net){.address = 0x08080808, .prefix = 32};
    CHECK(pin(network, FAR, 22, 60, now + 3702 * SECOND, &err));
    CHECK(network_apply(network, where, &more, &err) && connect_from(where, all->home, FAR, 22) == 0);
    memcpy(more.names, "b.example", 10);
    CHECK(network_apply(network, where, &more, &err) && connect_from(where, all->home, FAR, 22) == ECONNREFUSED);
}

/* Everywhere but there, by address; the most specific network decides. With a denied name 80 and 443 are the proxy's,
 * and nothing goes the straight way. */
static void test_denied(struct networks *all)
{
    struct error err = {0};
    AUTO_FD int where = networks_take(all, &err);
    AUTO(network) *network = network_new(all, 10);
    struct fl_network rules = {.mode = FL_NETWORK_PUBLIC, .denied_count = 1};
    rules.denied[0] = (struct fl_net){.address = 0xCB007200, .prefix = 24};
    CHECK(network_apply(network, where, &rules, &err) && connect_from(where, all->home, FAR, 80) == 0);
    rules.denied[0].address = 0xCB007100;
    CHECK(network_apply(network, where, &rules, &err) && connect_from(where, all->home, FAR, 80) == ECONNREFUSED);
    rules.nets[0] = (struct fl_net){.address = FAR, .prefix = 32};
    rules.net_count = 1;
    CHECK(network_apply(network, where, &rules, &err) && connect_from(where, all->home, FAR, 80) == 0);
    CHECK(connect_from(where, all->home, FAR, 22) == ECONNREFUSED); /* an exception opens nothing more */
    rules.denied[1] = (struct fl_net){.address = FAR, .prefix = 32, .port_from = 80, .port_to = 80};
    rules.denied_count = 2;
    CHECK(network_apply(network, where, &rules, &err) && connect_from(where, all->home, FAR, 80) == ECONNREFUSED);
    rules.mode = FL_NETWORK_ALLOW;
    CHECK(network_apply(network, where, &rules, &err) && connect_from(where, all->home, FAR, 80) == ECONNREFUSED);
    CHECK(connect_from(where, all->home, FAR, 22) == 0);
    rules = (struct fl_network){.mode = FL_NETWORK_ALLOW, .names = "a.example", .denied_count = 1};
    rules.denied[0] = (struct fl_net){.address = FAR, .prefix = 32};
    uint64_t now = clock_boot_ns() + 5000 * SECOND; /* test_pins has spent the rate of all before it */
    CHECK(network_apply(network, where, &rules, &err) && pin(network, FAR, 22, 60, now, &err));
    CHECK(connect_from(where, all->home, FAR, 22) == ECONNREFUSED); /* pinned, and denied */
}

static void test_denied_names(struct networks *all)
{
    struct error err = {0};
    AUTO_FD int where = networks_take(all, &err);
    AUTO(network) *network = network_new(all, 11);
    struct fl_network rules = {.mode = FL_NETWORK_PUBLIC, .denied_names = "bad.example"};
    CHECK(network_apply(network, where, &rules, &err) && network_sockets(network));
    AUTO_FD int proxy = dup(network_sockets(network)[2]);
    CHECK(connect_from(where, all->home, FAR, 80) == 0 && connect_from(where, all->home, 0x08080808, 443) == 0);
    for (int i = 0; i < 2; i++) { /* both were turned to the proxy */
        AUTO_FD int turned = accept4(proxy, NULL, NULL, SOCK_CLOEXEC);
        CHECK(turned >= 0);
    }
    CHECK(connect_from(where, all->home, FAR, 53) == ECONNREFUSED);
    CHECK(connect_from(where, all->home, OWN, 80) == ECONNREFUSED);
    CHECK(connect_from(where, all->home, 0x0A000001, 80) == ECONNREFUSED);
    rules.denied_count = 1;
    rules.denied[0] = (struct fl_net){.address = FAR, .prefix = 32};
    CHECK(network_apply(network, where, &rules, &err) && connect_from(where, all->home, FAR, 80) == ECONNREFUSED);
    CHECK(connect_from(where, all->home, 0x08080808, 80) == 0);
    AUTO_FD int turned = accept4(proxy, NULL, NULL, SOCK_CLOEXEC); /* one that waited would keep the namespace */
    CHECK(turned >= 0);
}

/* A launcher that was killed, and the next one. */
static void test_adoption(int far_listener)
{
    struct error err = {0};
    struct networks *former = open_networks("/b");
    AUTO_FD int where = networks_take(former, &err);
    struct network *its = network_new(former, 11);
    CHECK(far_listener >= 0 && network_apply(its, where, &PUBLIC, &err) &&
          connect_from(where, former->home, FAR, 80) == 0);
    network_let_go(its);
    networks_free(former);
    AUTO(networks) *all = open_networks("/b");
    CHECK(connect_from(where, all->home, FAR, 80) == 0); /* nobody is needed for it */
    struct network *network = network_new(all, 11);
    CHECK(network_adopt(network, where, &PUBLIC, false, &err) && !network_sockets(network));
    CHECK(network_open(network, where, &err) && network_sockets(network));
    CHECK(networks_start_host(all, clock_boot_ns(), &err) && connect_from(where, all->home, FAR, 80) == 0);
    CHECK(!networks_clear_host(all, &err) && err.kind == ERROR_STARTING);
    CHECK(network_apply(network, where, &NONE, &err) && connect_from(where, all->home, FAR, 80) == ECONNREFUSED);
    CHECK(network_apply(network, where, &TO_FAR, &err) && connect_from(where, all->home, FAR, 80) == 0);
    network_free(network);
    CHECK(connect_from(where, all->home, FAR, 80) == ECONNREFUSED); /* it is over: by the host's wall alone */
}

/* What an interface that was opened for us forwards: nothing else. */
static void test_forwarding(void)
{
    struct error err = {0};
    struct forwarding forwarding = {0};
    AUTO(netlink) *netlink = netlink_new(&err);
    AUTO_FREE char *file = memory_printf("%s/other", folder);
    CHECK(namespace_set("ipv4/conf/eth9/forwarding", "0", &err));
    CHECK(forwarding_plan(file, netlink, &forwarding, &err) && forwarding.count == 1 && !is_forwarding("eth9"));
    CHECK(strcmp(forwarding.opened[0], "eth9") == 0);
    CHECK(forwarding_open(&forwarding, &err) && is_forwarding("eth9"));
    CHECK(forwarding_plan(file, netlink, &forwarding, &err) && forwarding.count == 1); /* known to who comes later */
    for (int i = 0; i < 3000 && says("ip -br link", "ply"); i++)
        usleep(20000);
    CHECK(system("ip link add plyx type veth peer name plyy") == 0); /* another deployment's */
    CHECK(forwarding_close(file, &err) && is_forwarding("eth9"));
    CHECK(system("ip link del plyx") == 0 && access(file, F_OK) == 0);
    CHECK(forwarding_close(file, &err) && !is_forwarding("eth9") && access(file, F_OK) < 0);
    CHECK(forwarding_plan(file, netlink, &forwarding, &err) && forwarding.count == 1 && forwarding_close(file, &err));
    /* Somebody turns it on for all: it is left on, and open to others. */
    CHECK(forwarding_plan(file, netlink, &forwarding, &err) && forwarding.count == 1);
    CHECK(forwarding_open(&forwarding, &err) && namespace_set("ipv4/conf/all/forwarding", "1", &err));
    CHECK(forwarding_plan(file, netlink, &forwarding, &err) && forwarding.count == 0);
    CHECK(forwarding_close(file, &err) && is_forwarding("eth9"));
    CHECK(namespace_set("ipv4/conf/all/forwarding", "0", &err) && !is_forwarding("eth9"));
    /* What forwards already is nothing of ours. */
    CHECK(namespace_set("ipv4/conf/eth9/forwarding", "1", &err));
    CHECK(forwarding_plan(file, netlink, &forwarding, &err) && forwarding.count == 0);
    CHECK(forwarding_close(file, &err) && is_forwarding("eth9"));
}

static void test_clear(struct networks *all)
{
    struct error err = {0};
    CHECK(says("nft list tables", all->host.table));
    bool is_clear = false;
    for (int i = 0; i < 3000 && !is_clear; i++) {
        is_clear = networks_clear_host(all, &err);
        usleep(is_clear ? 0 : 20000);
    }
    CHECK(is_clear && !says("nft list tables", all->host.table));
}

/* kill -9 between the link and what belongs to it. */
static void test_half_a_link(int far_listener)
{
    struct error err = {0};
    struct networks *former = open_networks("/half");
    AUTO_FD int where = networks_take(former, &err);
    struct network *its = network_new(former, 12);
    CHECK(far_listener >= 0 && network_apply(its, where, &PUBLIC, &err));
    CHECK(namespace_enter(where, &err) && system("ip route del default && ip addr flush dev eth0") == 0);
    namespace_leave(former->home);
    CHECK(connect_from(where, former->home, FAR, 80) != 0);
    network_let_go(its);
    networks_free(former);
    AUTO(networks) *all = open_networks("/half");
    struct network *network = network_new(all, 12);
    CHECK(network_adopt(network, where, &PUBLIC, true, &err) && network_apply(network, where, &PUBLIC, &err));
    CHECK(connect_from(where, all->home, FAR, 80) == 0);
    CHECK(network_apply(network, where, &TO_FAR, &err) && connect_from(where, all->home, FAR, 80) == 0);
    network_free(network);
}

/* parley-egress asked before it heard of a change. */
static void test_late_pins(void)
{
    struct error err = {0};
    const uint16_t port = 22;
    struct fl_network other = NAMES_ALONE;
    AUTO(networks) *all = open_networks("/late");
    AUTO_FD int where = networks_take(all, &err);
    AUTO(network) *network = network_new(all, 13);
    CHECK(network_apply(network, where, &NAMES_ALONE, &err));
    struct network_pins pins = {.rules = network_mark(network),
                                .addresses = &FAR,
                                .ports = &port,
                                .address_count = 1,
                                .port_count = 1,
                                .ttl_s = 60};
    CHECK(network_pin(network, &pins, clock_boot_ns(), &err));
    strcpy(other.names, "b.example");
    CHECK(network_apply(network, where, &other, &err));
    CHECK(!network_pin(network, &pins, clock_boot_ns(), &err) && err.kind == ERROR_FORBIDDEN);
    pins.rules = network_mark(network);
    CHECK(network_pin(network, &pins, clock_boot_ns(), &err));
}

/* The table drops what is others' only while forwarding is ours. */
static void test_opened(void)
{
    struct error err = {0};
    AUTO(networks) *all = open_networks("/opened");
    AUTO_FREE char *list = memory_printf("nft list set inet %s opened", all->host.table);
    CHECK(namespace_set("ipv4/conf/all/forwarding", "0", &err) &&
          namespace_set("ipv4/conf/eth9/forwarding", "0", &err));
    CHECK(network_host_ready(all, SECOND, &err) && is_forwarding("eth9"));
    CHECK(says(list, "elements = { \"eth9\" }"));
    CHECK(namespace_set("ipv4/conf/all/forwarding", "1", &err) && network_host_ready(all, 3 * SECOND, &err));
    CHECK(says(list, "set opened") && !says(list, "eth9"));
    CHECK(networks_clear_host(all, &err) && is_forwarding("eth9"));
    CHECK(namespace_set("ipv4/conf/all/forwarding", "0", &err));
}

/* An init that was taken over may go to a network over which it has all rights. */
static void test_namespace_of_its_own(void)
{
    struct error err = {0};
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        char done = unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 ? '1' : '0';
        (void)!write(ready[1], &done, 1);
        (void)pause();
        _exit(0);
    }
    char done = 0;
    CHECK(read(ready[0], &done, 1) == 1 && done == '1');
    AUTO_FD int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    AUTO_FD int home = namespace_open(&err);
    struct stat before = {0}, after = {0};
    CHECK(fstat(home, &before) == 0);
    CHECK(!namespace_enter(pidfd, &err) && err.kind == ERROR_GONE);
    AUTO_FD int here = namespace_open(&err);
    CHECK(fstat(here, &after) == 0 && before.st_ino == after.st_ino);
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    make_host();
    struct error err = {0};
    test_stock();
    AUTO(networks) *all = open_networks("/a");
    AUTO_FD int web = listen_at(far_side, all->home, FAR, 80);
    AUTO_FD int ssh = listen_at(far_side, all->home, FAR, 22);
    close(ssh); /* "22 is refused" is our refusal: nobody may come that far */
    ssh = -1;
    test_ways(all, web);
    test_what_is_refused(all);
    ssh = listen_at(far_side, all->home, FAR, 22);
    test_pins(all, ssh);
    test_denied(all);
    test_denied_names(all);
    test_adoption(web);
    test_half_a_link(web);
    test_clear(all);
    test_forwarding();
    test_late_pins();
    test_opened();
    test_namespace_of_its_own();
    CHECK(fd_remove_tree(folder, &err));
    return check_done();
}
