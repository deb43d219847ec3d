/* target_test.c - where a webhook may lead: URLs, the list of hosts, addresses. */
#include "negotiator/webhooks/target.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return target_is_public((const struct sockaddr *)&v4);
    CHECK(inet_pton(AF_INET6, text, &v6.sin6_addr) == 1);
    return target_is_public((const struct sockaddr *)&v6);
}

static void test_addresses(void)
{
    static const char *const PUBLIC[] = {
        "1.1.1.1",    "9.255.255.255",   "11.0.0.0",       "100.63.255.255",  "100.128.0.0",  "126.255.255.255",
        "128.0.0.1",  "169.253.255.255", "172.15.255.255", "172.32.0.0",      "192.167.0.1",  "192.169.0.1",
        "198.17.0.1", "198.20.0.1",      "223.255.255.1",  "2606:4700::1111", "2a00:1450::1", "3ffe::1"};
    static const char *const INSIDE[] = {"0.0.0.0",
                                         "0.1.2.3",
                                         "10.0.0.1",
                                         "10.255.255.255",
                                         "100.64.0.1",
                                         "100.127.255.255",
                                         "127.0.0.1",
                                         "127.255.255.255",
                                         "169.254.169.254",
                                         "172.16.0.1",
                                         "172.31.255.255",
                                         "192.0.0.1",
                                         "192.168.1.1",
                                         "198.18.0.1",
                                         "198.19.255.255",
                                         "224.0.0.1",
                                         "239.1.1.1",
                                         "240.0.0.1",
                                         "255.255.255.255",
                                         "::",
                                         "::1",
                                         "::ffff:10.0.0.1",
                                         "::ffff:1.1.1.1",
                                         "64:ff9b::a00:1",
                                         "fc00::1",
                                         "fd12::1",
                                         "fe80::1",
                                         "fec0::1",
                                         "ff02::1",
                                         "2001:db8::1",
                                         "2001::1",
                                         "2002:a00:1::",
                                         "3fff::1",
                                         "100::1",
                                         "::10.0.0.1"};
    for (size_t i = 0; i < sizeof PUBLIC / sizeof *PUBLIC; i++)
        CHECK(is_public(PUBLIC[i]));
    for (size_t i = 0; i < sizeof INSIDE / sizeof *INSIDE; i++)
        CHECK(!is_public(INSIDE[i]));
    CHECK(!target_is_public(&(const struct sockaddr){.sa_family = AF_UNIX}));
}

static void test_urls(void)
{
    static const char HOSTS[] = "hooks.corp, 10.0.0.5:9000,[fd00::1]:80";
    struct error err = {0};
    CHECK(target_check("https://example.com/a?b=c", false, NULL, &err));
    CHECK(!target_check("http://example.com/", false, NULL, &err) && err.kind == ERROR_INVALID);
    CHECK(target_check("http://example.com/", true, NULL, &err));
    CHECK(target_check("http://HOOKS.corp:1234/", false, HOSTS, &err));
    CHECK(target_check("http://10.0.0.5:9000/", false, HOSTS, &err));
    CHECK(!target_check("http://10.0.0.5:9001/", false, HOSTS, &err));
    CHECK(!target_check("http://hooks.corp.example.com/", false, HOSTS, &err));
    CHECK(target_is_listed("http://[fd00::1]/", HOSTS));
    CHECK(!target_is_listed("https://[fd00::1]/", HOSTS));
    static const char *const WRONG[] = {"",
                                        "example.com",
                                        "//example.com/",
                                        "ftp://example.com/",
                                        "file:///etc/passwd",
                                        "gopher://example.com/",
                                        "https://",
                                        "https://u@example.com/",
                                        "https://u:p@example.com/",
                                        "https://example.com/#f",
                                        "https://example.com/ x",
                                        "https://example.com/\n",
                                        "https://example.com\\@evil.example/",
                                        "https://example.com:99999/",
                                        "https://\xc3\xa4.example/"};
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        CHECK(!target_check(WRONG[i], true, HOSTS, &err));
}

int main(void)
{
    test_addresses();
    test_urls();
    return 0;
}
