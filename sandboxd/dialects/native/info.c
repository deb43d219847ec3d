/* info.c - see info.h. */
#include "sandboxd/dialects/native/info.h"

#include "sandboxd/dialects/native/events.h"
#include "shared/base/clock.h"

#include <string.h>

enum { DIGITS_MAX = 20 }; /* of a 64-bit number */

/* "name": with what separates it from the member before; `name` is a constant of ours. */
static void put_name(struct text *to, const char *name)
{
    if (to->data[to->length - 1] != '{')
        text_append(to, ",", 1);
    text_append(to, "\"", 1);
    text_append_string(to, name);
    text_append(to, "\":", 2);
}

static void put_string(struct text *to, const char *string, size_t length)
{
    text_append(to, "\"", 1);
    events_append_escaped(to, string, text_utf8_prefix(string, length));
    text_append(to, "\"", 1);
}

static void put_text(struct text *to, const char *name, const char *string)
{
    put_name(to, name);
    put_string(to, string, strlen(string));
}

static void put_digits(struct text *to, uint64_t number)
{
    char digits[DIGITS_MAX];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    text_append(to, digits + at, sizeof digits - at);
}

static void put_number(struct text *to, const char *name, uint64_t number)
{
    put_name(to, name);
    put_digits(to, number);
}

/* 1500 -> 1.5, 2000 -> 2.0 */
static void put_thousandths(struct text *to, const char *name, uint64_t thousandths)
{
    put_name(to, name);
    put_digits(to, thousandths / 1000);
    const char decimals[] = {'.', (char)('0' + thousandths / 100 % 10), (char)('0' + thousandths / 10 % 10),
                             (char)('0' + thousandths % 10)};
    size_t length = sizeof decimals;
    while (length > 2 && decimals[length - 1] == '0')
        length--;
    text_append(to, decimals, length);
}

static void put_time(struct text *to, const char *name, int64_t wall_ms)
{
    char time[CLOCK_TEXT_BYTES];
    clock_format(time, wall_ms);
    put_text(to, name, time);
}

static void put_sandbox(struct text *to, const struct registry_view *view)
{
    text_append(to, "{", 1);
    put_text(to, "id", view->id);
    put_text(to, "name", view->name);
    put_text(to, "state", view->state != REGISTRY_LIVE ? "terminating" : view->paused ? "paused" : "active");
    put_text(to, "template", view->template_name);
    put_text(to, "isolation", view->isolation);
    if (view->isolation_detail[0])
        put_text(to, "isolation_detail", view->isolation_detail);
    put_text(to, "storage", view->storage);
    put_name(to, "resources");
    text_append(to, "{", 1);
    put_thousandths(to, "cpu", view->limits.cpu_milli);
    put_number(to, "memory_mb", view->limits.memory_bytes >> 20);
    put_number(to, "disk_mb", view->limits.disk_bytes >> 20);
    put_number(to, "pids", view->limits.pids);
    if (view->limits.open_files)
        put_number(to, "open_files", view->limits.open_files);
    if (view->limits.commands)
        put_number(to, "processes", view->limits.commands);
    if (view->limits.output_bytes >> 20)
        put_number(to, "output_mb", view->limits.output_bytes >> 20);
    text_append(to, "}", 1);
    put_time(to, "created_at", view->created_ms);
    put_time(to, "max_expires_at", view->deadline_ms);
    text_append(to, "}", 1);
}

static void put_scopes(struct text *to, const struct scope_set *set)
{
    char text[SCOPE_TEXT_BYTES];
    scope_format(set, text);
    put_name(to, "scopes");
    text_append(to, "[", 1);
    for (const char *atom = text; *atom;) {
        size_t length = strcspn(atom, " ");
        if (atom > text)
            text_append(to, ",", 1);
        put_string(to, atom, length);
        atom += length + (atom[length] == ' ');
    }
    text_append(to, "]", 1);
}

static void put_token(struct text *to, const struct capability_claims *claims)
{
    text_append(to, "{", 1);
    put_text(to, "jti", claims->jti);
    put_text(to, "principal", claims->principal);
    put_text(to, "thread_id", claims->thread_id);
    put_text(to, "lease", claims->lease);
    if (claims->actor[0])
        put_text(to, "actor", claims->actor);
    put_scopes(to, &claims->scopes);
    put_time(to, "issued_at", claims->issued_at * 1000);
    put_time(to, "expires_at", claims->expires_at * 1000);
    put_name(to, "links");
    text_append(to, "[", 1);
    for (size_t i = 0; i < claims->link_count; i++) {
        if (i > 0)
            text_append(to, ",", 1);
        put_string(to, claims->link_ids[i], strlen(claims->link_ids[i]));
    }
    text_append(to, "]}", 2);
}

void info_append(struct text *to, const struct registry_view *view, const struct capability_claims *claims)
{
    text_append(to, "{", 1);
    put_name(to, "sandbox");
    put_sandbox(to, view);
    put_name(to, "token");
    put_token(to, claims);
    text_append(to, "}", 1);
}

/* ":8701" of "http://127.0.0.1:8701/x"; "" when it says none. */
static const char *find_port(const char *url, int *length)
{
    const char *host = strstr(url, "://");
    host = host != NULL ? host + 3 : url;
    const char *end = host + strcspn(host, "/");
    const char *port = end;
    while (port > host && port[-1] >= '0' && port[-1] <= '9')
        port--;
    bool has_port = port > host && port < end && port[-1] == ':';
    *length = has_port ? (int)(end - port) + 1 : 0;
    return has_port ? port - 1 : "";
}

void info_append_previews(struct text *to, const char *url, const char *domain, const char *sandbox_id)
{
    char label[CAPABILITY_ID_BYTES];
    int length;
    const char *port = find_port(url, &length);
    if (!text_copy(label, sizeof label, sandbox_id))
        return;
    for (char *c = label; *c != '\0'; c++)
        *c = *c == '_' ? '-' : *c;
    AUTO_TEXT link = {0};
    text_append_format(&link, "%s://{port}-%s.%s%.*s/", text_starts_with(url, "https://") ? "https" : "http", label,
                       domain, length, port);
    to->data[--to->length] = '\0'; /* the closing brace */
    put_text(to, "previews", link.data);
    text_append(to, "}", 1);
}
