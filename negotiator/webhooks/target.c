#include "negotiator/webhooks/target.h"

#include "shared/base/text.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { URL_MAX = 2048, PLACE_BYTES = 300 };

static void url_cleanup(CURLU **url)
{
    curl_url_cleanup(*url);
}

static void curl_text_cleanup(char **text)
{
    curl_free(*text);
}
#define AUTO_CURL_TEXT __attribute__((cleanup(curl_text_cleanup))) char

static char *part(CURLU *url, CURLUPart which)
{
    char *text = NULL;
    return curl_url_get(url, which, &text, which == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) == CURLUE_OK ? text : NULL;
}

/* --- the list --- */

static bool is_place(const char *word, size_t length, const char *host, const char *port)
{
    char with_port[PLACE_BYTES];
    snprintf(with_port, sizeof with_port, "%s:%s", host, port);
    return (strlen(host) == length && strncasecmp(word, host, length) == 0) ||
           (strlen(with_port) == length && strncasecmp(word, with_port, length) == 0);
}

static bool is_in(const char *hosts, const char *host, const char *port)
{
    for (const char *at = hosts; at && *at;) {
        at += strspn(at, ", \t");
        size_t length = strcspn(at, ", \t");
        if (length > 0 && is_place(at, length, host, port))
            return true;
        at += length;
    }
    return false;
}

static CURLU *parse(const char *text)
{
    CURLU *url = curl_url();
    if (url && curl_url_set(url, CURLUPART_URL, text, CURLU_DISALLOW_USER) == CURLUE_OK)
        return url;
    curl_url_cleanup(url);
    return NULL;
}

bool target_is_listed(const char *text, const char *hosts)
{
    __attribute__((cleanup(url_cleanup))) CURLU *url = parse(text);
    AUTO_CURL_TEXT *host = url ? part(url, CURLUPART_HOST) : NULL;
    AUTO_CURL_TEXT *port = url ? part(url, CURLUPART_PORT) : NULL;
    return host && port && is_in(hosts, host, port);
}

/* --- the form --- */

static bool is_plain(const char *text)
{
    size_t length = strlen(text), at = 0;
    while (at < length && text[at] > 0x20 && text[at] < 0x7f && text[at] != '\\')
        at++;
    return length > 0 && length <= URL_MAX && at == length;
}

bool target_check(const char *text, bool is_free, const char *hosts, struct error *err)
{
    __attribute__((cleanup(url_cleanup))) CURLU *url = is_plain(text) ? parse(text) : NULL;
    AUTO_CURL_TEXT *scheme = url ? part(url, CURLUPART_SCHEME) : NULL;
    AUTO_CURL_TEXT *host = url ? part(url, CURLUPART_HOST) : NULL;
    AUTO_CURL_TEXT *port = url ? part(url, CURLUPART_PORT) : NULL;
    AUTO_CURL_TEXT *fragment = url ? part(url, CURLUPART_FRAGMENT) : NULL;
    if (!scheme || !host || !port || fragment || !strstr(text, "://"))
        return error_set(err, ERROR_INVALID,
                         "url must be a whole one of at most %d visible ASCII characters, without user and fragment",
                         URL_MAX);
    bool is_listed = is_in(hosts, host, port);
    if (strcmp(scheme, "https") == 0)
        return true;
    return (strcmp(scheme, "http") == 0 && (is_free || is_listed)) ||
           error_set(err, ERROR_INVALID, "url must be https; http is for admins, and for hosts in webhook_hosts");
}

/* --- addresses --- */

struct range {
    uint8_t bytes[16];
    unsigned bits;
};

static bool is_within(const uint8_t *address, const struct range *range)
{
    unsigned whole = range->bits / 8, rest = range->bits % 8;
    return memcmp(address, range->bytes, whole) == 0 &&
           (rest == 0 || ((address[whole] ^ range->bytes[whole]) >> (8 - rest)) == 0);
}

static bool is_in_one(const uint8_t *address, const struct range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_within(address, &ranges[i]))
            return true;
    }
    return false;
}

/* IANA IPv4 Special-Purpose Address Registry, multicast and what is above it. */
static const struct range V4[] = {
    {{0}, 8},
    {{10}, 8},
    {{100, 64}, 10},
    {{127}, 8},
    {{169, 254}, 16},
    {{172, 16}, 12},
    {{192, 0, 0}, 24},
    {{192, 0, 2}, 24},
    {{192, 31, 196}, 24},
    {{192, 52, 193}, 24},
    {{192, 88, 99}, 24},
    {{192, 168}, 16},
    {{192, 175, 48}, 24},
    {{198, 18}, 15},
    {{198, 51, 100}, 24},
    {{203, 0, 113}, 24},
    {{224}, 3}, /* 224/4 and 240/4 */
};

/* Within 2000::/3, the only ones that are public at all. */
static const struct range V6[] = {
    {{0x20, 0x01}, 23},             /* 2001::/23: Teredo, ORCHID, benchmarking ... */
    {{0x20, 0x01, 0x0d, 0xb8}, 32}, /* documentation */
    {{0x20, 0x02}, 16},             /* 6to4 */
    {{0x3f, 0xff}, 20},             /* documentation */
};

bool target_is_public(const struct sockaddr *address)
{
    static const struct range UNICAST = {{0x20}, 3};
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        uint8_t bytes[4];
        memcpy(&v4, address, sizeof v4);
        memcpy(bytes, &v4.sin_addr, sizeof bytes);
        return !is_in_one(bytes, V4, sizeof V4 / sizeof *V4);
    }
    if (address->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 v6;
    memcpy(&v6, address, sizeof v6);
    return is_within(v6.sin6_addr.s6_addr, &UNICAST) && !is_in_one(v6.sin6_addr.s6_addr, V6, sizeof V6 / sizeof *V6);
}
