/* Addresses as operators write them. */
#include "sandboxd/network/servers.h"

#include "shared/base/fd.h"
#include "tests/unit/check.h"

static bool parses(const char *text, struct rules_server servers[static RULES_SERVERS], size_t *count)
{
    struct error err = {0};
    bool parsed = servers_parse(text, servers, count, &err);
    CHECK(parsed || (err.kind == ERROR_INVALID && strstr(err.message, "dns_servers")));
    return parsed;
}

static void test_servers(void)
{
    static const char *const WRONG[] = {"",          ",",        "9.9.9.9,",        ",9.9.9.9", "9.9.9.9:0",
                                        "9.9.9.9:",  "9.9.9",    "9.9.9.9:65536",   "::1",      "dns.example",
                                        "9.9.9.9 ",  "0.0.0.0",  "9.9.9.9:53:53",   "9.9.9.9,8.8.8.8,7.7.7.7,6.6.6.6",
                                        "9.9.9.9:+5", "256.1.1.1", "1111111111111111111111111111111111111111"};
    struct rules_server servers[RULES_SERVERS] = {{0}};
    size_t count = 0;
    CHECK(parses("9.9.9.9", servers, &count) && count == 1 && servers[0].address == 0x09090909 && servers[0].port == 53);
    CHECK(parses("127.0.0.1:5353,198.51.100.7", servers, &count) && count == 2);
    CHECK(servers[0].address == 0x7F000001 && servers[0].port == 5353 && servers[1].address == 0xC6336407);
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        count = 77;
        CHECK(!parses(WRONG[i], servers, &count) && count == 77);
    }
}

static void test_servers_of_the_host(void)
{
    static const char TEXT[] = "# nameserver 1.1.1.1\nsearch a.example\nnameserver 192.0.2.1\nnameserver\t10.0.0.2 # us\n"
                               "nameserver fd00::1\nnameserverx 1.2.3.4\nnameserver 8.8.8.8\nnameserver 8.8.4.4\n";
    struct error err = {0};
    struct rules_server servers[RULES_SERVERS] = {{0}};
    char path[] = "/tmp/parley-resolv-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && fd_write_all(fd, TEXT, sizeof TEXT - 1, &err));
    close(fd);
    CHECK(servers_of_host(path, servers) == 3);
    CHECK(servers[0].address == 0xC0000201 && servers[1].address == 0x0A000002 && servers[2].address == 0x08080808);
    unlink(path);
    CHECK(servers_of_host(path, servers) == 0);
}

static void test_net(void)
{
    static const char *const WRONG[] = {"",           "100.126.0.0",    "100.126.0.0/21", "100.126.0.1/20", "8.0.0.0/20",
                                        "/20",        "100.126.0.0/",   "127.0.0.0/8",    "fd00::/20",      "10.0.0.0/7",
                                        "100.126.0.0/20/20", "203.0.113.0/20", "192.168.0.0/x"};
    struct error err = {0};
    uint32_t net = 0;
    CHECK(servers_parse_net("100.126.0.0/20", &net, &err) && net == 0x647E0000);
    CHECK(servers_parse_net("10.77.0.0/16", &net, &err) && net == 0x0A4D0000);
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        err = (struct error){0};
        CHECK(!servers_parse_net(WRONG[i], &net, &err) && err.kind == ERROR_INVALID && net == 0x0A4D0000);
    }
}

int main(void)
{
    test_servers();
    test_servers_of_the_host();
    test_net();
    return check_done();
}
