#include "shared/capability/scope.h"

#include "shared/base/text.h"

#include <string.h>

enum resource { RESOURCE_NONE, RESOURCE_PATH, RESOURCE_PORT };

static const struct {
    const char *name;
    enum resource resource;
} VERBS[] = {
    [SCOPE_FS_RW] = {"fs:rw", RESOURCE_PATH},     [SCOPE_FS_RO] = {"fs:ro", RESOURCE_PATH},
    [SCOPE_SHELL] = {"shell", RESOURCE_NONE},     [SCOPE_SHELL_RO] = {"shell:ro", RESOURCE_NONE},
    [SCOPE_PROCESS] = {"process", RESOURCE_NONE}, [SCOPE_CODE] = {"code", RESOURCE_NONE},
    [SCOPE_PORT] = {"port", RESOURCE_PORT},       [SCOPE_SNAPSHOT] = {"snapshot", RESOURCE_NONE},
    [SCOPE_NETWORK] = {"network", RESOURCE_NONE},
};
#define VERB_COUNT (sizeof VERBS / sizeof *VERBS)

static bool find_verb(enum scope_verb *verb, const char *name, size_t length)
{
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strlen(VERBS[i].name) == length && memcmp(VERBS[i].name, name, length) == 0) {
            *verb = (enum scope_verb)i;
            return true;
        }
    }
    return false;
}

/* What may stand in a resource without a percent sign: "/" and pchar (RFC 3986, 3.3). Writing encodes exactly the rest,
 * so a text never grows by being read and written, and never holds a quote or a backslash. */
static bool is_plain(unsigned char c)
{
    bool is_alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return is_alphanumeric || (c != '\0' && strchr("/-._~!$&'()*+,;=:@", c));
}

static bool decode_percent(unsigned char *to, const char *text, size_t left)
{
    return left >= 3 && text_hex_decode(to, 1, text + 1, 2);
}

/* Decodes into at most SCOPE_ATOM_BYTES - 1 bytes and a NUL: the encoded text is never shorter. */
static bool decode_resource(char *to, const char *text, size_t length)
{
    size_t size = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '%') {
            if (!decode_percent(&c, text + i, length - i) || c < 0x20 || c == 0x7f)
                return false;
            i += 2;
        } else if (!is_plain(c)) {
            return false;
        }
        to[size++] = (char)c;
    }
    to[size] = '\0';
    return true;
}

/* Absolute; no empty, "." or ".." component; no slash at the end but in "/". */
static bool is_normal_path(const char *path)
{
    if (strcmp(path, "/") == 0)
        return true;
    while (*path == '/') {
        const char *name = path + 1;
        size_t length = strcspn(name, "/");
        bool dots = (length == 1 && name[0] == '.') || (length == 2 && name[0] == '.' && name[1] == '.');
        if (length == 0 || dots)
            return false;
        path = name + length;
        if (*path == '\0')
            return true;
    }
    return false;
}

static bool parse_resource(struct scope_atom *atom, const char *text, size_t length)
{
    uint64_t port = 0;
    switch (VERBS[atom->verb].resource) {
    case RESOURCE_PATH:
        return decode_resource(atom->resource, text, length) && is_normal_path(atom->resource);
    case RESOURCE_PORT:
        if (!text_parse_u64(text, length, 65535, &port) || port == 0)
            return false;
        memcpy(atom->resource, text, length);
        atom->resource[length] = '\0';
        return true;
    case RESOURCE_NONE:
        break;
    }
    return false;
}

/* `length` < SCOPE_ATOM_BYTES. */
static bool parse_atom(struct scope_atom *atom, const char *text, size_t length)
{
    const char *at = memchr(text, '@', length);
    size_t name = at ? (size_t)(at - text) : length;
    atom->resource[0] = '\0';
    if (!find_verb(&atom->verb, text, name))
        return false;
    return !at || parse_resource(atom, at + 1, length - name - 1);
}

static bool is_printable(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] <= 0x20 || text[i] >= 0x7f)
            return false;
    }
    return true;
}

static bool add_atom(struct scope_set *set, const char *text, size_t length, enum scope_unknown unknown,
                     struct error *err)
{
    if (length == 0)
        return error_set(err, ERROR_INVALID, "scopes are separated by exactly one space");
    if (length >= SCOPE_ATOM_BYTES)
        return error_set(err, ERROR_INVALID, "a scope is at most %d bytes long", SCOPE_ATOM_BYTES - 1);
    if (!is_printable(text, length))
        return error_set(err, ERROR_INVALID, "a scope is printable ASCII, its resource percent-encoded");
    struct scope_atom atom = {.verb = SCOPE_FS_RW};
    if (!parse_atom(&atom, text, length)) {
        if (unknown == SCOPE_UNKNOWN_DROPPED)
            return true;
        return error_set(err, ERROR_INVALID, "unknown scope \"%.*s\"", (int)length, text);
    }
    if (set->count == SCOPE_ATOMS_MAX)
        return error_set(err, ERROR_INVALID, "at most %d scopes", SCOPE_ATOMS_MAX);
    set->atoms[set->count++] = atom;
    return true;
}

static bool has_directory_beside_code(const struct scope_set *set)
{
    bool directory = false, runs_code = false;
    for (size_t i = 0; i < set->count; i++) {
        const struct scope_atom *atom = &set->atoms[i];
        directory |= VERBS[atom->verb].resource == RESOURCE_PATH && atom->resource[0];
        runs_code |= atom->verb == SCOPE_PROCESS || atom->verb == SCOPE_SHELL || atom->verb == SCOPE_CODE;
    }
    return directory && runs_code;
}

bool scope_parse(struct scope_set *set, const char *text, size_t length, enum scope_unknown unknown, struct error *err)
{
    if (length >= SCOPE_TEXT_BYTES)
        return error_set(err, ERROR_INVALID, "scopes are at most %d bytes long", SCOPE_TEXT_BYTES - 1);
    struct scope_set parsed;
    parsed.count = 0;
    for (size_t at = 0; at < length;) {
        const char *space = memchr(text + at, ' ', length - at);
        size_t end = space ? (size_t)(space - text) : length;
        if (!add_atom(&parsed, text + at, end - at, unknown, err))
            return false;
        if (end + 1 == length)
            return error_set(err, ERROR_INVALID, "scopes end without a space");
        at = end + 1;
    }
    if (has_directory_beside_code(&parsed))
        return error_set(err, ERROR_INVALID, "fs with a directory means nothing beside process, shell or code");
    scope_copy(set, &parsed);
    return true;
}

void scope_copy(struct scope_set *to, const struct scope_set *from)
{
    to->count = from->count;
    memmove(to->atoms, from->atoms, from->count * sizeof *from->atoms);
}

/* The atom's text with a NUL; false when it does not fit. */
static bool format_atom(char *to, size_t room, size_t *length, const struct scope_atom *atom)
{
    static const char HEX[] = "0123456789ABCDEF";
    const char *name = VERBS[atom->verb].name;
    size_t size = strlen(name);
    if (size + 2 > room)
        return false;
    memcpy(to, name, size);
    if (atom->resource[0])
        to[size++] = '@';
    for (const char *from = atom->resource; *from; from++) {
        unsigned char c = (unsigned char)*from;
        if (size + 4 > room)
            return false;
        if (is_plain(c)) {
            to[size++] = (char)c;
            continue;
        }
        to[size++] = '%';
        to[size++] = HEX[c >> 4];
        to[size++] = HEX[c & 15];
    }
    to[size] = '\0';
    *length = size;
    return true;
}

void scope_format(const struct scope_set *set, char to[static SCOPE_TEXT_BYTES])
{
    size_t size = 0;
    for (size_t i = 0; i < set->count; i++) {
        char atom[3 * SCOPE_ATOM_BYTES + 16];
        size_t length = 0;
        if (!format_atom(atom, sizeof atom, &length, &set->atoms[i]) || size + 1 + length >= SCOPE_TEXT_BYTES)
            continue;
        if (size > 0)
            to[size++] = ' ';
        memcpy(to + size, atom, length);
        size += length;
    }
    to[size] = '\0';
}

static bool implies(enum scope_verb a, enum scope_verb b)
{
    return a == b || (a == SCOPE_FS_RW && b == SCOPE_FS_RO) || (a == SCOPE_SHELL && b == SCOPE_SHELL_RO) ||
           (a == SCOPE_PROCESS && b == SCOPE_CODE);
}

/* Component-wise: "/a" is a prefix of "/a" and "/a/b", not of "/ab". Both are normalised. */
static bool is_path_prefix(const char *prefix, const char *path)
{
    if (strcmp(prefix, "/") == 0)
        return path[0] == '/';
    size_t length = strlen(prefix);
    return strncmp(prefix, path, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

bool scope_atom_covers(const struct scope_atom *a, const struct scope_atom *b)
{
    if (!implies(a->verb, b->verb))
        return false;
    if (a->resource[0] == '\0')
        return true;
    if (VERBS[a->verb].resource == RESOURCE_PATH)
        return is_path_prefix(a->resource, b->resource);
    return strcmp(a->resource, b->resource) == 0;
}

static bool covers_atom(const struct scope_set *set, const struct scope_atom *atom)
{
    for (size_t i = 0; i < set->count; i++) {
        if (scope_atom_covers(&set->atoms[i], atom))
            return true;
    }
    return false;
}

bool scope_set_covers(const struct scope_set *outer, const struct scope_set *inner)
{
    for (size_t i = 0; i < inner->count; i++) {
        if (!covers_atom(outer, &inner->atoms[i]))
            return false;
    }
    return true;
}

/* What both atoms allow: a verb of one, a resource of one. */
static bool meet_atoms(struct scope_atom *to, const struct scope_atom *a, const struct scope_atom *b)
{
    const struct scope_atom *const verbs[] = {a, b, a, b}, *const resources[] = {a, b, b, a};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        *to = *resources[i];
        to->verb = verbs[i]->verb;
        if (scope_atom_covers(a, to) && scope_atom_covers(b, to))
            return true;
    }
    return false;
}

void scope_meet(struct scope_set *to, const struct scope_set *a, const struct scope_set *b)
{
    struct scope_set met = {.count = 0}; /* apart: `to` may be one of the two */
    for (size_t i = 0; i < a->count; i++) {
        bool is_covered = covers_atom(b, &a->atoms[i]);
        if (is_covered && met.count < SCOPE_ATOMS_MAX)
            met.atoms[met.count++] = a->atoms[i];
        for (size_t j = 0; !is_covered && j < b->count && met.count < SCOPE_ATOMS_MAX; j++) {
            struct scope_atom both;
            if (meet_atoms(&both, &a->atoms[i], &b->atoms[j]) && !covers_atom(&met, &both))
                met.atoms[met.count++] = both;
        }
    }
    scope_copy(to, &met);
}

void scope_intersect(struct scope_set *to, const struct scope_set *asked, const struct scope_set *allowed)
{
    struct scope_set granted; /* apart: `to` may be one of the two */
    granted.count = 0;
    for (size_t i = 0; i < asked->count; i++) {
        if (covers_atom(allowed, &asked->atoms[i]))
            granted.atoms[granted.count++] = asked->atoms[i];
    }
    scope_copy(to, &granted);
}

void scope_by_default(struct scope_set *to, const struct scope_set *allowed)
{
    struct scope_set given; /* apart: `to` may be the other */
    given.count = 0;
    for (size_t i = 0; i < allowed->count; i++) {
        if (allowed->atoms[i].verb != SCOPE_NETWORK)
            given.atoms[given.count++] = allowed->atoms[i];
    }
    scope_copy(to, &given);
}

bool scope_allows(const struct scope_set *set, const char *needed)
{
    size_t length = strlen(needed);
    if (length == 0)
        return true;
    struct scope_atom atom = {.verb = SCOPE_FS_RW};
    if (length >= SCOPE_ATOM_BYTES || !parse_atom(&atom, needed, length))
        return false;
    for (size_t i = 0; i < set->count; i++) {
        const struct scope_atom *held = &set->atoms[i];
        bool is_met = atom.resource[0] ? scope_atom_covers(held, &atom) : implies(held->verb, atom.verb);
        if (is_met)
            return true;
    }
    return false;
}

const char *scope_folder(const struct scope_set *set, enum scope_verb verb, const char *path)
{
    const char *widest = NULL;
    for (size_t i = 0; i < set->count; i++) {
        const struct scope_atom *held = &set->atoms[i];
        if (!implies(held->verb, verb))
            continue;
        if (held->resource[0] == '\0' || strcmp(held->resource, "/") == 0)
            return "";
        /* All that hold the path are prefixes of it, so that the shortest holds the others. */
        bool is_wider = !widest || strlen(held->resource) < strlen(widest);
        if (is_path_prefix(held->resource, path) && is_wider)
            widest = held->resource;
    }
    return widest;
}
