/* glob_pattern.c - see glob_pattern.h. Braces are written out first; then a pattern is its parts, and where a path is
 * in them a set of bits, so that `**` costs no backtracking. Within a name only the last `*` is gone back to: whatever
 * an earlier one took more, the last could take as well. */
#include "sandboxd/helpers/files/glob_pattern.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

#define WRITTEN_OUT_MAX (64 << 10) /* bytes of all alternatives */
#define BRACKETS_MAX    256        /* bytes between brackets; so that looking for their end costs little */
#define LISTS_MAX       64         /* in braces */

struct alternative {
    char *text; /* its parts, each NUL-terminated; "**" alone is any folders */
    const char *parts[GLOB_PATTERN_PARTS_MAX];
    size_t count;
};

struct glob_pattern {
    struct alternative alternatives[GLOB_PATTERN_ALTERNATIVES_MAX];
    size_t count;
    size_t written; /* bytes */
    bool folders_only, shows_hidden;
    enum glob_case letters; /* GLOB_ANY_CASE: the alternatives are in lower case */
};

void glob_pattern_free(struct glob_pattern *pattern)
{
    if (pattern == NULL)
        return;
    for (size_t i = 0; i < pattern->count; i++)
        free(pattern->alternatives[i].text);
    free(pattern);
}

void glob_pattern_show_hidden(struct glob_pattern *pattern)
{
    pattern->shows_hidden = true;
}

static bool is_any_folders(const char *part)
{
    return part[0] == '*' && part[1] == '*' && part[2] == '\0';
}

static bool add_part(struct alternative *alternative, const char *part, struct error *err)
{
    if (part[0] == '\0' || strcmp(part, ".") == 0 || strcmp(part, "..") == 0)
        return error_set(err, ERROR_INVALID, "a pattern has no empty, . or .. part and does not begin with a slash");
    if (alternative->count > 0 && is_any_folders(part) && is_any_folders(alternative->parts[alternative->count - 1]))
        return true;
    if (alternative->count == GLOB_PATTERN_PARTS_MAX)
        return error_set(err, ERROR_INVALID, "a pattern has at most %d parts between slashes", GLOB_PATTERN_PARTS_MAX);
    alternative->parts[alternative->count++] = part;
    return true;
}

static bool fail_alternatives(struct error *err)
{
    return error_set(err, ERROR_INVALID, "the braces of a pattern come to at most %d alternatives",
                     GLOB_PATTERN_ALTERNATIVES_MAX);
}

/* Cuts one pattern without braces into its parts. */
static bool add_alternative(struct glob_pattern *pattern, const char *text, struct error *err)
{
    size_t size = strlen(text);
    if (pattern->count == GLOB_PATTERN_ALTERNATIVES_MAX || pattern->written + size > WRITTEN_OUT_MAX)
        return fail_alternatives(err);
    pattern->written += size;
    struct alternative *alternative = &pattern->alternatives[pattern->count++];
    *alternative = (struct alternative){.text = memory_copy(text, size)};
    for (char *at = alternative->text; at;) {
        char *slash = strchr(at, '/');
        if (slash)
            *slash++ = '\0';
        if (!add_part(alternative, at, err))
            return false;
        at = slash;
    }
    if (!is_any_folders(alternative->parts[alternative->count - 1]))
        return true;
    /* At the end it is everything below, not the folder itself: as with a star behind it. */
    return add_part(alternative, "*", err);
}

/* Where the brackets that begin at `at` end: their `]`; NULL when they do not, and are just a character. */
static const char *end_of_brackets(const char *at)
{
    const char *limit = at++ + BRACKETS_MAX;
    if (*at == '!' || *at == '^')
        at++;
    if (*at == ']')
        at++;
    for (; *at && *at != '/' && at < limit; at++) {
        if (*at == ']')
            return at;
        if (*at == '\\' && at[1] && at[1] != '/')
            at++;
    }
    return NULL;
}

/* The next character with a meaning for braces from `at` on, at the same depth; NULL when there is none. */
static const char *next_brace(const char *at, const char *wanted)
{
    unsigned depth = 0;
    for (; *at; at++) {
        if (depth == 0 && strchr(wanted, *at))
            return at;
        if (*at == '\\' && at[1])
            at++;
        else if (*at == '[' && end_of_brackets(at))
            at = end_of_brackets(at);
        else if (*at == '{')
            depth++;
        else if (*at == '}' && depth > 0)
            depth--;
    }
    return NULL;
}

/* Where a list {a,b} begins; one without a comma or an end is just characters. */
static const char *find_list(const char *text, const char **end)
{
    const char *open = next_brace(text, "{");
    for (size_t tried = 0; open && tried < LISTS_MAX; open = next_brace(open + 1, "{"), tried++) {
        *end = next_brace(open + 1, "}");
        const char *comma = next_brace(open + 1, ",}");
        if (*end && comma && comma < *end)
            return open;
    }
    return NULL;
}

/* Patterns that may have lists still. */
struct unwritten {
    char *texts[GLOB_PATTERN_ALTERNATIVES_MAX + 1];
    size_t count;
};

/* Writes the first list of `text` out: each result goes back to the others. False: too many. */
static bool write_list(struct unwritten *unwritten, const char *text, const char *open, const char *end)
{
    for (const char *at = open + 1; at <= end;) {
        const char *comma = next_brace(at, ",}");
        if (unwritten->count == GLOB_PATTERN_ALTERNATIVES_MAX)
            return false;
        unwritten->texts[unwritten->count++] =
            memory_printf("%.*s%.*s%s", (int)(open - text), text, (int)(comma - at), at, end + 1);
        at = comma + 1;
    }
    return true;
}

/* Each step writes out a list or ends an alternative, and each text comes to one at least: so both are bounded. */
static bool write_out(struct glob_pattern *pattern, const char *text, struct error *err)
{
    struct unwritten unwritten = {.texts = {memory_string(text)}, .count = 1};
    bool is_written = true;
    while (unwritten.count > 0) {
        AUTO_FREE char *one = unwritten.texts[--unwritten.count];
        const char *end, *open = is_written ? find_list(one, &end) : NULL;
        if (is_written && open == NULL)
            is_written = add_alternative(pattern, one, err);
        else if (is_written && !write_list(&unwritten, one, open, end))
            is_written = fail_alternatives(err);
    }
    return is_written;
}

static void lower(char *text)
{
    for (; *text; text++) {
        if (*text >= 'A' && *text <= 'Z')
            *text = (char)(*text - 'A' + 'a');
    }
}

struct glob_pattern *glob_pattern_parse(const char *text, enum glob_case letters, struct error *err)
{
    size_t size = strlen(text);
    if (size == 0 || size > FRONT_FILES_TEXT_MAX) {
        error_set(err, ERROR_INVALID, "a pattern has 1 to %d bytes", FRONT_FILES_TEXT_MAX);
        return NULL;
    }
    AUTO(glob_pattern) *pattern = memory_new(sizeof *pattern);
    AUTO_FREE char *copy = memory_copy(text, size);
    pattern->letters = letters;
    if (letters == GLOB_ANY_CASE)
        lower(copy);
    if (size > 1 && copy[size - 1] == '/') {
        pattern->folders_only = true;
        copy[size - 1] = '\0';
    }
    if (!write_out(pattern, copy, err))
        return NULL;
    return TAKE(pattern);
}

/* One character of UTF-8, else a byte as a number that is no character's. */
static uint32_t take_character(const char **at)
{
    const unsigned char *text = (const void *)*at;
    size_t size = text[0] < 0x80 ? 1 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    if (size == 1 || strnlen(*at, size) < size || text_utf8_prefix(*at, size) != size) {
        *at += 1;
        return text[0] < 0x80 ? text[0] : 0x110000U + text[0];
    }
    uint32_t value = text[0] & (0x7fU >> size);
    for (size_t i = 1; i < size; i++)
        value = value << 6 | (text[i] & 0x3fU);
    *at += size;
    return value;
}

static uint32_t take_escaped(const char **at)
{
    if (**at == '\\' && (*at)[1])
        *at += 1;
    return take_character(at);
}

/* *pattern is at the `[`; moves it behind the `]`. */
static bool matches_brackets(const char **pattern, const char *end, uint32_t character)
{
    const char *at = *pattern + 1;
    bool is_negated = *at == '!' || *at == '^', found = false;
    at += is_negated;
    while (at < end) {
        uint32_t low = take_escaped(&at), high = low;
        if (*at == '-' && at + 1 < end) {
            at++;
            high = take_escaped(&at);
        }
        found = found || (low <= character && character <= high);
    }
    *pattern = end + 1;
    return found != is_negated;
}

/* One character of the name with what is at *pattern, no star; moves both on when it matches. */
static bool matches_one(const char **pattern, const char **name)
{
    const char *at = *pattern, *rest = *name, *end = *at == '[' ? end_of_brackets(at) : NULL;
    uint32_t character = take_character(&rest);
    bool is_match = *at != '\0';
    if (end)
        is_match = matches_brackets(&at, end, character);
    else if (*at == '?')
        at++;
    else if (is_match)
        is_match = take_escaped(&at) == character;
    if (!is_match)
        return false;
    *pattern = at;
    *name = rest;
    return true;
}

static bool matches_name(const char *pattern, const char *name)
{
    const char *behind_star = NULL, *star_name = NULL;
    while (*name) {
        if (*pattern == '*') {
            behind_star = ++pattern;
            star_name = name;
        } else if (!matches_one(&pattern, &name)) {
            if (behind_star == NULL)
                return false;
            (void)take_character(&star_name);
            pattern = behind_star;
            name = star_name;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static bool matches_part(const char *part, const char *name, bool shows_hidden)
{
    bool names_dot = shows_hidden || part[0] == '.' || (part[0] == '\\' && part[1] == '.');
    return (name[0] != '.' || names_dot) && matches_name(part, name);
}

/* `**` may be no folder: who is before it is also behind it. */
static uint64_t widen(const struct alternative *alternative, uint64_t parts)
{
    for (size_t i = 0; i < alternative->count; i++) {
        if ((parts >> i & 1) && is_any_folders(alternative->parts[i]))
            parts |= UINT64_C(1) << (i + 1);
    }
    return parts;
}

void glob_pattern_begin(const struct glob_pattern *pattern, struct glob_position *position)
{
    for (size_t i = 0; i < pattern->count; i++)
        position->parts[i] = widen(&pattern->alternatives[i], 1);
}

static uint64_t step_alternative(const struct alternative *alternative, uint64_t from, const char *name,
                                 bool shows_hidden)
{
    uint64_t to = 0;
    for (size_t i = 0; i < alternative->count && from >> i; i++) {
        if (!(from >> i & 1))
            continue;
        if (!is_any_folders(alternative->parts[i]))
            to |= (uint64_t)matches_part(alternative->parts[i], name, shows_hidden) << (i + 1);
        else if (name[0] != '.' || shows_hidden)
            to |= UINT64_C(1) << i;
    }
    return widen(alternative, to);
}

struct glob_step glob_pattern_step(const struct glob_pattern *pattern, const struct glob_position *from,
                                   const char *name, bool is_folder, struct glob_position *to)
{
    struct glob_step step = {0};
    char lowered[FRONT_FILES_NAME_MAX + 1];
    if (pattern->letters == GLOB_ANY_CASE && text_copy(lowered, sizeof lowered, name)) {
        lower(lowered);
        name = lowered;
    }
    for (size_t i = 0; i < pattern->count; i++) {
        const struct alternative *alternative = &pattern->alternatives[i];
        uint64_t end = UINT64_C(1) << alternative->count;
        uint64_t parts = step_alternative(alternative, from->parts[i], name, pattern->shows_hidden);
        step.is_match = step.is_match || ((parts & end) && (is_folder || !pattern->folders_only));
        to->parts[i] = parts & ~end;
        step.goes_on = step.goes_on || (is_folder && to->parts[i]);
    }
    return step;
}

bool glob_pattern_matches(const struct glob_pattern *pattern, const char *path, bool is_folder)
{
    struct glob_position position;
    glob_pattern_begin(pattern, &position);
    for (;;) {
        char name[FRONT_FILES_NAME_MAX + 1];
        size_t size = strcspn(path, "/");
        if (size > FRONT_FILES_NAME_MAX)
            return false;
        memcpy(name, path, size);
        name[size] = '\0';
        bool is_last = path[size] == '\0';
        struct glob_step step = glob_pattern_step(pattern, &position, name, !is_last || is_folder, &position);
        if (is_last || !step.goes_on)
            return is_last && step.is_match;
        path += size + 1;
    }
}
