#include "sandboxd/dialects/native/previews/preview_rules.h"

#include "sandboxd/sandbox/ports/ports.h"
#include "shared/base/memory.h"
#include "shared/capability/capability.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const char PLAIN_NAME[] = "parley_preview";
static const char SECURE_NAME[] = "__Host-parley_preview"; /* browsers set such for this host alone, and over TLS */

/* ---- hosts ---- */

static bool take_label(struct preview_label *label, const char *port, size_t port_size, const char *sandbox,
                       size_t size)
{
    AUTO_FREE char *digits = memory_copy(port, port_size);
    struct error ignored;
    return ports_parse(digits, &label->port, &ignored) &&
           text_format(label->sandbox, sizeof label->sandbox, "%.*s", (int)size, sandbox) &&
           text_is_made_of(label->sandbox, sizeof label->sandbox, "-");
}

/* An id begins with a letter, so one of the two ends is none of it. */
bool preview_label_parse(struct preview_label *label, const char *text, struct error *err)
{
    const char *first = strchr(text, '-'), *last = strrchr(text, '-');
    struct preview_label made = {.port = 0};
    size_t length = strlen(text);
    bool is_label = first != NULL && length < sizeof made.sandbox + 8;
    made.is_port_last = is_label && !isdigit((unsigned char)text[0]);
    if (is_label && made.is_port_last)
        is_label = take_label(&made, last + 1, strlen(last + 1), text, (size_t)(last - text));
    else if (is_label)
        is_label = take_label(&made, text, (size_t)(first - text), first + 1, strlen(first + 1));
    if (!is_label)
        return error_set(err, ERROR_NOT_FOUND,
                         "a preview's host is PORT-SANDBOX or SANDBOX-PORT, with - for _: 3000-sbx-1a2b");
    *label = made;
    return true;
}

bool preview_label_is_of(const char *sandbox, const char *sandbox_id)
{
    size_t i = 0;
    for (; sandbox[i] != '\0' && sandbox_id[i] != '\0'; i++) {
        char c = sandbox_id[i] == '_' ? '-' : (char)tolower((unsigned char)sandbox_id[i]);
        if (sandbox[i] != c)
            return false;
    }
    return sandbox[i] == sandbox_id[i];
}

bool preview_origin_is_own(const char *origin, const char *host)
{
    const char *rest = origin != NULL ? strstr(origin, "://") : NULL;
    if (rest == NULL || host == NULL)
        return false;
    size_t scheme = (size_t)(rest - origin);
    bool is_web =
        (scheme == 4 && strncasecmp(origin, "http", 4) == 0) || (scheme == 5 && strncasecmp(origin, "https", 5) == 0);
    return is_web && strcasecmp(rest + 3, host) == 0;
}

/* ---- cookies ---- */

const char *preview_cookie_name(bool is_secure)
{
    return is_secure ? SECURE_NAME : PLAIN_NAME;
}

/* The next "name=value" of a Cookie header, or part of a Set-Cookie; NULL at the end. */
static const char *next_part(const char **at, size_t *size)
{
    const char *start = *at + strspn(*at, " \t;");
    *size = strcspn(start, ";");
    *at = start + *size;
    while (*size > 0 && (start[*size - 1] == ' ' || start[*size - 1] == '\t'))
        --*size;
    return *start != '\0' ? start : NULL;
}

/* Bytes of the name of such a part, without what stands around it. */
static size_t name_size(const char *part, size_t size)
{
    const char *equals = memchr(part, '=', size);
    size_t length = equals != NULL ? (size_t)(equals - part) : 0;
    while (length > 0 && (part[length - 1] == ' ' || part[length - 1] == '\t'))
        length--;
    return length;
}

static bool is_named(const char *part, size_t size, const char *name)
{
    return name_size(part, size) == strlen(name) && strncasecmp(part, name, strlen(name)) == 0;
}

static bool is_ours(const char *part, size_t size)
{
    return is_named(part, size, PLAIN_NAME) || is_named(part, size, SECURE_NAME);
}

const char *preview_cookie_next(const char **at, const char *name, size_t *size)
{
    size_t whole;
    for (const char *part; *at != NULL && (part = next_part(at, &whole)) != NULL;) {
        if (!is_named(part, whole, name))
            continue;
        const char *value = (const char *)memchr(part, '=', whole) + 1;
        *size = whole - (size_t)(value - part);
        return value;
    }
    return NULL;
}

void preview_cookie_strip(struct text *to, const char *cookies)
{
    size_t size, from = to->length;
    for (const char *part; cookies != NULL && (part = next_part(&cookies, &size)) != NULL;) {
        if (!is_ours(part, size))
            text_append_format(to, "%s%.*s", to->length > from ? "; " : "", (int)size, part);
    }
}

bool preview_set_cookie_filter(struct text *to, const char *cookie)
{
    const char *at = cookie;
    size_t size;
    const char *part = next_part(&at, &size);
    if (part == NULL || part != cookie + strspn(cookie, " \t") || name_size(part, size) == 0 || is_ours(part, size))
        return false;
    text_append(to, part, size);
    while ((part = next_part(&at, &size)) != NULL) {
        size_t length = memchr(part, '=', size) != NULL ? name_size(part, size) : size;
        if (length != 6 || strncasecmp(part, "domain", length) != 0)
            text_append_format(to, "; %.*s", (int)size, part);
    }
    return true;
}

/* ---- the way in ---- */

/* "//host/" and "/\host/" name another host; "/.//host/" does not (WHATWG URL, 4.4). */
void preview_location(struct text *to, const char *target)
{
    if (target[1] == '/' || target[1] == '\\')
        text_append_string(to, "/.");
    text_append_string(to, target);
}

bool preview_is_token(const char *text)
{
    char sandbox_id[CAPABILITY_ID_BYTES];
    return text != NULL && capability_addressed(text, strlen(text), sandbox_id);
}

void preview_page(struct text *to, uint16_t port, const char *why)
{
    text_append_format(
        to,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Preview</title>"
        "<meta name=\"viewport\" content=\"width=device-width\">"
        "<style>body{font:16px/1.5 system-ui,sans-serif;margin:15vh auto;max-width:34em;padding:0 1em}"
        "code{background:#eee;padding:.1em .3em;border-radius:3px}</style>"
        "<h1>This preview needs its link</h1><p>It is open to whoever has a link that still holds. %s</p>"
        "<p>A new one: <code>parley url %u</code></p></html>\n",
        why, port);
}
