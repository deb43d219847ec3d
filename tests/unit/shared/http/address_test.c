/* address_test.c - addresses have one form; networks; and nobody but a trusted proxy says whom a request is from. */
#include "shared/http/address.h"

#include "tests/unit/check.h"

#include <arpa/inet.h>

static const char *form(const struct address *address)
{
    static char text[ADDRESS_TEXT_BYTES];
    address_format(text, address);
    return text;
}

static const char *parsed(const char *text)
{
    struct address address;
    return address_parse(&address, text) ? form(&address) : "none";
}

static const char *hop(const char *text)
{
    struct address address;
    return address_parse_hop(&address, text, strlen(text)) ? form(&address) : "none";
}

static void test_forms(void)
{
    CHECK_TEXT(parsed("192.0.2.1"), "192.0.2.1");
    CHECK_TEXT(parsed("::ffff:192.0.2.1"), "192.0.2.1"); /* one address, one form */
    CHECK_TEXT(parsed("2001:DB8::1"), "2001:db8::1");
    const char *const bad[] = {"",           "192.0.2",      "192.0.2.256", "0xC0.0.2.1",
                               "192.0.2.1 ", "fe80::1%eth0", "localhost",   "192.0.2.01"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_TEXT(parsed(bad[i]), "none");
    CHECK_TEXT(hop("192.0.2.1"), "192.0.2.1");
    CHECK_TEXT(hop("192.0.2.1:80"), "192.0.2.1");
    CHECK_TEXT(hop("[2001:db8::1]"), "2001:db8::1");
    CHECK_TEXT(hop("[2001:db8::1]:65535"), "2001:db8::1");
    CHECK_TEXT(hop("2001:db8::1"), "2001:db8::1");
    const char *const no_hop[] = {"",       "unknown",  "_hidden",       "[192.0.2.1]", "[2001:db8::1", "[::1]x",
                                  "[::1]:", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1",  "for=1.2.3.4"};
    for (size_t i = 0; i < sizeof no_hop / sizeof *no_hop; i++)
        CHECK_TEXT(hop(no_hop[i]), "none");
    struct address address;
    CHECK(!address_parse_hop(&address, "1.2.3.4\0", 8));
}

static void test_kinds(void)
{
    struct address a, b;
    CHECK(address_parse(&a, "127.9.9.9") && address_is_loopback(&a));
    CHECK(address_parse(&a, "::1") && address_is_loopback(&a));
    CHECK(address_parse(&a, "::ffff:127.0.0.1") && address_is_loopback(&a));
    CHECK(address_parse(&a, "128.0.0.1") && !address_is_loopback(&a));
    CHECK(address_parse(&a, "7f00::") && !address_is_loopback(&a));
    CHECK(address_parse(&a, "2001:db8:0:1:aaaa::1") && address_parse(&b, "2001:db8:0:1:bbbb::2"));
    a = address_counted(&a);
    b = address_counted(&b);
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    CHECK(address_parse(&b, "2001:db8:0:2::1"));
    b = address_counted(&b);
    CHECK(memcmp(&a, &b, sizeof a) != 0);
    CHECK(address_parse(&a, "192.0.2.1") && address_parse(&b, "192.0.2.2"));
    a = address_counted(&a);
    b = address_counted(&b);
    CHECK(memcmp(&a, &b, sizeof a) != 0);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xC0000201)};
    CHECK(address_of_socket(&a, (struct sockaddr *)&in) && strcmp(form(&a), "192.0.2.1") == 0);
    struct sockaddr local = {.sa_family = AF_UNIX};
    CHECK(!address_of_socket(&a, &local));
}

static bool holds(const char *networks, const char *text)
{
    struct address address;
    struct error err = {0};
    AUTO(cidrs) *cidrs = cidrs_parse(networks, &err);
    CHECK_TEXT(err.message, "");
    return cidrs && address_parse(&address, text) && cidrs_hold(cidrs, &address);
}

static void test_networks(void)
{
    CHECK(!holds(NULL, "10.0.0.1") && !holds("", "10.0.0.1") && !holds(" , ", "10.0.0.1"));
    CHECK(holds("10.0.0.0/8", "10.255.1.2") && !holds("10.0.0.0/8", "11.0.0.0"));
    CHECK(holds("10.0.0.0/8", "::ffff:10.1.1.1"));
    CHECK(holds("192.0.2.7", "192.0.2.7") && !holds("192.0.2.7", "192.0.2.6"));
    CHECK(holds("192.0.2.128/25, 2001:db8::/33", "2001:db8:7fff::1"));
    CHECK(!holds("192.0.2.128/25, 2001:db8::/33", "2001:db8:8000::1"));
    CHECK(holds("0.0.0.0/0", "1.2.3.4") && !holds("0.0.0.0/0", "2001:db8::1"));
    CHECK(holds("::/0", "2001:db8::1"));
    const char *const bad[] = {"10.0.0.0/33", "10.0.0.1/8",     "10.0.0.0/", "10.0.0.0/08",  "10.0.0.0/-1",
                               "::/129",      "2001:db8::1/32", "nginx",     "10.0.0.0/8/8", "10.0.0.0/8;10.0.0.0/8"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = {0};
        AUTO(cidrs) *cidrs = cidrs_parse(bad[i], &err);
        CHECK(cidrs == NULL && err.kind == ERROR_INVALID && strstr(err.message, bad[i]) != NULL);
    }
}

static const char *from(const char *trusted, const char *peer, const char *const *values, size_t count)
{
    struct error err = {0};
    struct address address, found;
    AUTO(cidrs) *cidrs = cidrs_parse(trusted, &err);
    CHECK(cidrs != NULL && address_parse(&address, peer));
    found = address_forwarded(cidrs, &address, values, count);
    return form(&found);
}

#define FROM(trusted, peer, ...)                                                                                       \
    from(trusted, peer, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_forwarded(void)
{
    const char *const none = NULL;
    CHECK_TEXT(from("10.0.0.0/8", "10.0.0.1", &none, 0), "10.0.0.1");
    CHECK_TEXT(FROM("", "10.0.0.1", "192.0.2.1"), "10.0.0.1");             /* nobody is trusted */
    CHECK_TEXT(FROM("10.0.0.0/8", "192.0.2.9", "192.0.2.1"), "192.0.2.9"); /* not this one */
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "192.0.2.1"), "192.0.2.1");
    /* What the client itself wrote stands to the left of what the proxy saw. */
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "127.0.0.1, 198.51.100.7 , 192.0.2.1"), "192.0.2.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "10.0.0.9, 192.0.2.1"), "192.0.2.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "198.51.100.7, 192.0.2.1, 10.0.0.2,10.0.0.3"), "192.0.2.1");
    /* A field of the client's before the one that a proxy adds. */
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "198.51.100.7", "192.0.2.1"), "192.0.2.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "192.0.2.1", "10.0.0.2"), "192.0.2.1");
    /* All are ours: where it began. */
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "10.0.0.3, 10.0.0.2"), "10.0.0.3");
    /* What is broken where it is needed counts for nothing; to the left of that it is not looked at. */
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "192.0.2.1, unknown"), "10.0.0.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "192.0.2.1,"), "10.0.0.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", ""), "10.0.0.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", ","), "10.0.0.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "junk, 10.0.0.2"), "10.0.0.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "192.0.2.1", ""), "10.0.0.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "junk, 192.0.2.1"), "192.0.2.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "[2001:db8::1]:4711"), "2001:db8::1");
    CHECK_TEXT(FROM("10.0.0.0/8,2001:db8::/32", "10.0.0.1", "192.0.2.1, 2001:db8::5"), "192.0.2.1");
    CHECK_TEXT(FROM("10.0.0.0/8", "10.0.0.1", "::ffff:10.0.0.5"), "10.0.0.5");
}

int main(void)
{
    test_forms();
    test_kinds();
    test_networks();
    test_forwarded();
    return check_done();
}
