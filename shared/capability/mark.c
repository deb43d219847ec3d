#include "shared/capability/mark.h"

#include "shared/base/text.h"
#include "shared/capability/claims.h"
#include "shared/capability/jws.h"

#include <string.h>

#define LINK_PREFIX "lnk_"

static const char *const KIND_NAMES[] = {
    [MARK_JTI] = "jti",         [MARK_LINK] = "link",     [MARK_FAMILY] = "family",       [MARK_LEASE] = "lease",
    [MARK_SANDBOX] = "sandbox", [MARK_THREAD] = "thread", [MARK_PRINCIPAL] = "principal", [MARK_SCOPE] = "scope",
    [MARK_ALL] = "all",
};
_Static_assert(sizeof KIND_NAMES / sizeof *KIND_NAMES == MARK_KINDS, "every kind has a name");

const char *mark_kind_name(enum mark_kind kind)
{
    return (unsigned)kind < MARK_KINDS ? KIND_NAMES[kind] : "unknown";
}

bool mark_kind_parse(const char *name, enum mark_kind *kind)
{
    for (unsigned i = 0; i < MARK_KINDS; i++) {
        if (strcmp(KIND_NAMES[i], name) == 0) {
            *kind = (enum mark_kind)i;
            return true;
        }
    }
    return false;
}

static bool is_link_id(const char *text)
{
    const size_t prefix = sizeof LINK_PREFIX - 1;
    return strlen(text) == CAPABILITY_LINK_ID_BYTES - 1 && text_starts_with(text, LINK_PREFIX) &&
           text_is_made_of(text + prefix, CAPABILITY_LINK_ID_BYTES - 1 - prefix, "_-");
}

static bool is_principal(const char *text)
{
    return strlen(text) < sizeof((struct mark *)NULL)->principal && claims_is_printable(text);
}

static bool check_scope(const char *text, struct error *err)
{
    struct scope_set set;
    set.count = 0;
    if (!scope_parse(&set, text, strlen(text), SCOPE_UNKNOWN_REFUSED, err))
        return false;
    return set.count == 1 || error_set(err, ERROR_INVALID, "a mark has exactly one scope");
}

static bool check_value(const struct mark *mark, struct error *err)
{
    const char *name = mark_kind_name(mark->kind);
    switch (mark->kind) {
    case MARK_JTI:
    case MARK_FAMILY:
    case MARK_LEASE:
    case MARK_SANDBOX:
        return jws_is_id(mark->value) || error_set(err, ERROR_INVALID, "%s is an id: 1 to %d letters, digits, _ or -",
                                                   name, CAPABILITY_ID_BYTES - 1);
    case MARK_LINK:
        return is_link_id(mark->value) ||
               error_set(err, ERROR_INVALID, "a link's id is " LINK_PREFIX " and 22 letters, digits, _ or -");
    case MARK_THREAD:
        return claims_is_thread(mark->value) ||
               error_set(err, ERROR_INVALID, "a thread's id is 1 to %d letters, digits, ., _, : or -",
                         CAPABILITY_THREAD_BYTES - 1);
    case MARK_PRINCIPAL:
        return is_principal(mark->value) ||
               error_set(err, ERROR_INVALID, "a principal is 1 to 128 printable characters without \" and \\");
    case MARK_SCOPE:
        return check_scope(mark->value, err);
    case MARK_ALL:
        return mark->value[0] == '\0' || error_set(err, ERROR_INVALID, "a mark of all has no value");
    case MARK_KINDS:
        break;
    }
    return error_set(err, ERROR_INVALID, "a mark of an unknown kind");
}

bool mark_check(const struct mark *mark, struct error *err)
{
    if (!check_value(mark, err))
        return false;
    if (mark->kind == MARK_THREAD && mark->principal[0] == '\0')
        return error_set(err, ERROR_INVALID, "a mark of a thread names its principal");
    if (mark->principal[0] != '\0' && !is_principal(mark->principal))
        return error_set(err, ERROR_INVALID, "a principal is 1 to 128 printable characters without \" and \\");
    if (mark->epoch != 0 && mark->kind != MARK_SANDBOX)
        return error_set(err, ERROR_INVALID, "only a mark of a sandbox has an epoch");
    return true;
}

static bool has_link(const struct capability_claims *claims, const char *id)
{
    for (size_t i = 0; i < claims->link_count; i++) {
        if (strcmp(claims->link_ids[i], id) == 0)
            return true;
    }
    return false;
}

bool mark_matches(const struct mark *mark, const struct capability_claims *claims)
{
    if (mark->principal[0] != '\0' && strcmp(mark->principal, claims->principal) != 0)
        return false;
    switch (mark->kind) {
    case MARK_JTI:
        return strcmp(mark->value, claims->jti) == 0;
    case MARK_LINK:
        return has_link(claims, mark->value);
    case MARK_FAMILY:
        return strcmp(mark->value, claims->family) == 0;
    case MARK_LEASE:
        return strcmp(mark->value, claims->lease) == 0;
    case MARK_SANDBOX:
        return strcmp(mark->value, claims->sandbox_id) == 0;
    case MARK_THREAD: /* one without a principal would mix up threads: mark_check lets none pass */
        return mark->principal[0] != '\0' && strcmp(mark->value, claims->thread_id) == 0;
    case MARK_PRINCIPAL:
        return strcmp(mark->value, claims->principal) == 0;
    case MARK_SCOPE:
        return scope_allows(&claims->root_scopes, mark->value);
    case MARK_ALL:
        return true;
    case MARK_KINDS:
        break;
    }
    return false;
}

/* A token of a lower epoch is refused whenever it says it was issued: no verifier takes it once the epoch is raised. */
bool mark_refuses(const struct mark *mark, const struct capability_claims *claims, int64_t now_ms)
{
    if (now_ms < mark->from_ms || !mark_matches(mark, claims))
        return false;
    return claims->issued_at <= mark->before || claims->epoch < mark->epoch;
}

json_t *mark_format(const struct mark *mark)
{
    json_t *json = json_pack("{s:I, s:s, s:s, s:I}", "n", (json_int_t)mark->number, "kind", mark_kind_name(mark->kind),
                             "value", mark->value, "until", (json_int_t)mark->until);
    if (mark->principal[0] != '\0')
        (void)json_object_set_new(json, "principal", json_string(mark->principal));
    if (mark->before != MARK_ANY_TIME)
        (void)json_object_set_new(json, "before", json_integer(mark->before));
    if (mark->from_ms != 0)
        (void)json_object_set_new(json, "from", json_integer(mark->from_ms));
    if (mark->epoch != 0)
        (void)json_object_set_new(json, "epoch", json_integer(mark->epoch));
    return json;
}

/* What is left to read of a mark: how many of the fields were known. */
struct reader {
    const json_t *json;
    size_t known;
    struct error *err;
};

/* A number that may be missing: then *to stays. */
static bool read_number(struct reader *reader, const char *name, int64_t min, int64_t max, int64_t *to)
{
    const json_t *field = json_object_get(reader->json, name);
    if (!field)
        return true;
    reader->known++;
    if (!json_is_integer(field) || json_integer_value(field) < min || json_integer_value(field) > max)
        return error_set(reader->err, ERROR_INVALID, "a mark's %s is a whole number from %lld to %lld", name,
                         (long long)min, (long long)max);
    *to = json_integer_value(field);
    return true;
}

/* A text that may be missing: then `to` stays. */
static bool read_text(struct reader *reader, const char *name, char *to, size_t size)
{
    const json_t *field = json_object_get(reader->json, name);
    if (!field)
        return true;
    reader->known++;
    const char *text = json_string_value(field);
    bool fits = text && strlen(text) == json_string_length(field) && text_copy(to, size, text);
    return fits || error_set(reader->err, ERROR_INVALID, "a mark's %s is a text of at most %zu bytes", name, size - 1);
}

static bool read_kind(struct reader *reader, struct mark *mark)
{
    char name[16] = "";
    if (!read_text(reader, "kind", name, sizeof name))
        return false;
    return mark_kind_parse(name, &mark->kind) || error_set(reader->err, ERROR_INVALID, "a mark of an unknown kind");
}

bool mark_parse(struct mark *mark, const json_t *json, struct error *err)
{
    struct reader reader = {.json = json, .err = err};
    struct mark read = {.before = MARK_ANY_TIME};
    int64_t number = 0, until = -1, epoch = 0;
    if (!json_is_object(json))
        return error_set(err, ERROR_INVALID, "a mark is a JSON object");
    if (!read_number(&reader, "n", 1, INT64_MAX, &number) || !read_kind(&reader, &read) ||
        !read_text(&reader, "value", read.value, sizeof read.value) ||
        !read_text(&reader, "principal", read.principal, sizeof read.principal) ||
        !read_number(&reader, "before", 0, CLAIMS_TIME_MAX, &read.before) ||
        !read_number(&reader, "from", 0, CLAIMS_TIME_MAX * 1000, &read.from_ms) ||
        !read_number(&reader, "until", 0, CLAIMS_TIME_MAX, &until) ||
        !read_number(&reader, "epoch", 0, UINT32_MAX, &epoch))
        return false;
    if (number == 0 || until < 0)
        return error_set(err, ERROR_INVALID, "a mark has an n and an until");
    if (reader.known != json_object_size(json))
        return error_set(err, ERROR_INVALID, "a mark has an unknown field");
    read.number = (uint64_t)number;
    read.until = until;
    read.epoch = (uint32_t)epoch;
    if (!mark_check(&read, err))
        return false;
    *mark = read;
    return true;
}
