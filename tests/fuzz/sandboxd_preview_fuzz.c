/* sandboxd_preview_fuzz.c - hosts, cookies, origins and targets of previews, read again as browsers do (RFC 6265, 5.2
 * and 5.4): no cookie of ours reaches an app, an app sets none of ours and none for another host, and none goes
 * elsewhere with a token. The first byte chooses, the rest is the text. */
#include "sandboxd/dialects/native/previews/preview_rules.h"
#include "shared/base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* As a browser reads the next of what semicolons part: its name, trimmed; the whole when there is no "=". */
static char *next_name(const char **at)
{
    size_t length = strcspn(*at, ";");
    const char *part = *at;
    *at += length + ((*at)[length] == ';');
    const char *equals = memchr(part, '=', length);
    size_t size = equals ? (size_t)(equals - part) : length;
    while (size > 0 && strchr(" \t", *part)) {
        part++;
        size--;
    }
    while (size > 0 && strchr(" \t", part[size - 1]))
        size--;
    return memory_copy(part, size);
}

static bool is_ours(const char *name)
{
    return strcasecmp(name, preview_cookie_name(false)) == 0 || strcasecmp(name, preview_cookie_name(true)) == 0;
}

static void check_label(const char *text)
{
    struct preview_label label = {0};
    struct error err = {0};
    if (!preview_label_parse(&label, text, &err)) {
        require(err.kind == ERROR_NOT_FOUND);
        return;
    }
    AUTO_FREE char *again = label.is_port_last ? memory_printf("%s-%u", label.sandbox, label.port)
                                               : memory_printf("%u-%s", label.port, label.sandbox);
    require(label.port != 0 && strcmp(again, text) == 0 && strpbrk(label.sandbox, "./@:_") == NULL);
    (void)preview_label_is_of(label.sandbox, "sbx_1a2b");
}

static void check_cookies(const char *text)
{
    AUTO_TEXT left = {0};
    preview_cookie_strip(&left, text);
    for (const char *at = left.data; at && *at;) {
        bool has_value = memchr(at, '=', strcspn(at, ";")) != NULL;
        AUTO_FREE char *name = next_name(&at);
        require(!has_value || !is_ours(name));
    }
    const char *at = text;
    size_t size = 0;
    for (const char *value; (value = preview_cookie_next(&at, preview_cookie_name(false), &size)) != NULL;)
        require(value > text && value + size <= text + strlen(text) && memchr(value, ';', size) == NULL);
}

static void check_set_cookie(const char *text)
{
    AUTO_TEXT kept = {0};
    if (!preview_set_cookie_filter(&kept, text))
        return;
    const char *at = kept.data;
    AUTO_FREE char *cookie = next_name(&at);
    require(cookie[0] && !is_ours(cookie));
    while (*at) {
        AUTO_FREE char *name = next_name(&at);
        require(strcasecmp(name, "domain") != 0);
    }
}

static void check_location(const char *text)
{
    AUTO_TEXT location = {0};
    if (text[0] != '/' || strpbrk(text, "\t\r\n"))
        return; /* no request has such a target */
    preview_location(&location, text);
    require(location.data[0] == '/' && location.data[1] != '/' && location.data[1] != '\\');
}

static void check_others(const char *text)
{
    require(!preview_origin_is_own(text, "3000-sbx.localhost:8701") ||
            strcasecmp(text, "http://3000-sbx.localhost:8701") == 0 ||
            strcasecmp(text, "https://3000-sbx.localhost:8701") == 0);
    (void)preview_is_token(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const CHECKS[])(const char *text) = {check_label, check_cookies, check_set_cookie, check_location,
                                                       check_others};
    if (size == 0)
        return 0;
    AUTO_FREE char *text = memory_copy(data + 1, size - 1);
    CHECKS[data[0] % (sizeof CHECKS / sizeof *CHECKS)](text);
    return 0;
}
