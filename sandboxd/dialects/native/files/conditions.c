/* conditions.c - entity tags, dates and ranges, each read by one small function. */
#include "sandboxd/dialects/native/files/conditions.h"

#include "shared/base/text.h"

#include <string.h>
#include <time.h>

static const int64_t SECOND_NS = 1000000000;
static const int64_t LAST_SECOND = 253402300799; /* of the year 9999 */

/* ---- entity tags ---- */

void conditions_etag(char to[static CONDITIONS_ETAG_BYTES], const struct files_version *version)
{
    snprintf(to, CONDITIONS_ETAG_BYTES, "\"%llx-%llx-%llx-%llx\"", (unsigned long long)version->inode,
             (unsigned long long)version->size, (unsigned long long)version->mtime_ns,
             (unsigned long long)version->ctime_ns);
}

/* 1..16 lower-case hex digits without leading zeros, then `end`. */
static bool read_hex(const char **at, char end, uint64_t *value)
{
    static const char DIGITS[] = "0123456789abcdef";
    size_t length = strspn(*at, DIGITS);
    if (length == 0 || length > 16 || (length > 1 && **at == '0') || (*at)[length] != end)
        return false;
    *value = 0;
    for (size_t i = 0; i < length; i++)
        *value = *value << 4 | (uint64_t)(strchr(DIGITS, (*at)[i]) - DIGITS);
    *at += length + 1;
    return true;
}

bool conditions_etag_read(const char *text, struct files_version *version)
{
    uint64_t inode, size, mtime, ctime_ns;
    const char *at = text + 1;
    if (text[0] != '"' || !read_hex(&at, '-', &inode) || !read_hex(&at, '-', &size) || !read_hex(&at, '-', &mtime) ||
        !read_hex(&at, '"', &ctime_ns) || *at != '\0')
        return false;
    *version =
        (struct files_version){.inode = inode, .size = size, .mtime_ns = (int64_t)mtime, .ctime_ns = (int64_t)ctime_ns};
    return true;
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

/* The length of the tag, with W/ and quotes, that stands at `text`; 0 for none. */
static size_t tag_length(const char *text)
{
    size_t start = strncmp(text, "W/", 2) == 0 ? 2 : 0;
    if (text[start] != '"')
        return 0;
    const char *end = strchr(text + start + 1, '"');
    return end ? (size_t)(end - text) + 1 : 0;
}

/* Whether a list of tags (or "*") has the one of `version`. Weak tags count only when `is_weak`. */
static bool list_has(const char *list, const struct files_version *version, bool is_weak)
{
    char own[CONDITIONS_ETAG_BYTES];
    conditions_etag(own, version);
    const char *at = skip_blanks(list);
    if (at[0] == '*' && *skip_blanks(at + 1) == '\0')
        return true;
    for (size_t length; (length = tag_length(at)) > 0; at = skip_blanks(at + 1)) {
        size_t mark = at[0] == 'W' ? 2 : 0;
        if ((mark == 0 || is_weak) && length - mark == strlen(own) && strncmp(at + mark, own, length - mark) == 0)
            return true;
        at = skip_blanks(at + length);
        if (*at != ',')
            break;
    }
    return false;
}

/* ---- dates ---- */

static const char DAYS[] = "SunMonTueWedThuFriSat", MONTHS[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

/* Seconds since 1970, rounded down, within what a date can say. */
static int64_t seconds_of(int64_t ns)
{
    int64_t seconds = ns / SECOND_NS - (ns % SECOND_NS < 0);
    return seconds < 0 ? 0 : seconds > LAST_SECOND ? LAST_SECOND : seconds;
}

void conditions_date(char to[static CONDITIONS_DATE_BYTES], int64_t mtime_ns)
{
    time_t seconds = (time_t)seconds_of(mtime_ns);
    struct tm day = {0};
    (void)gmtime_r(&seconds, &day);
    unsigned year = (unsigned)(day.tm_year + 1900) % 10000;
    snprintf(to, CONDITIONS_DATE_BYTES, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT", DAYS + (day.tm_wday % 7) * 3,
             (unsigned)day.tm_mday % 100, MONTHS + (day.tm_mon % 12) * 3, year, (unsigned)day.tm_hour % 100,
             (unsigned)day.tm_min % 100, (unsigned)day.tm_sec % 100);
}

/* Exactly `length` digits. */
static bool read_digits(const char *text, size_t length, int *value)
{
    *value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *value = *value * 10 + (text[i] - '0');
    }
    return true;
}

static bool read_month(const char *text, int *month)
{
    for (*month = 0; *month < 12; (*month)++)
        if (strncmp(text, MONTHS + *month * 3, 3) == 0)
            return true;
    return false;
}

bool conditions_date_read(const char *text, int64_t *seconds)
{
    struct tm day = {0};
    if (strlen(text) != CONDITIONS_DATE_BYTES - 1 || !read_digits(text + 5, 2, &day.tm_mday) ||
        !read_month(text + 8, &day.tm_mon) || !read_digits(text + 12, 4, &day.tm_year) ||
        !read_digits(text + 17, 2, &day.tm_hour) || !read_digits(text + 20, 2, &day.tm_min) ||
        !read_digits(text + 23, 2, &day.tm_sec))
        return false;
    if (day.tm_year < 1970 || day.tm_mday < 1 || day.tm_mday > 31 || day.tm_hour > 23 || day.tm_min > 59 ||
        day.tm_sec > 60)
        return false;
    day.tm_year -= 1900;
    int64_t told = timegm(&day);
    char again[CONDITIONS_DATE_BYTES];
    conditions_date(again, told * SECOND_NS);
    if (strcmp(again, text) != 0) /* day of the week, blanks, 31 February */
        return false;
    *seconds = told;
    return true;
}

/* ---- preconditions ---- */

static bool is_modified_since(const char *text, const struct files_version *version, bool unless_told)
{
    int64_t since;
    if (!conditions_date_read(text, &since))
        return unless_told;
    return seconds_of(version->mtime_ns) > since;
}

enum conditions_verdict conditions_judge(const struct conditions *asked, const struct files_version *version)
{
    if (asked->if_match) {
        if (!list_has(asked->if_match, version, false))
            return CONDITIONS_FAILED;
    } else if (asked->if_unmodified_since && is_modified_since(asked->if_unmodified_since, version, false)) {
        return CONDITIONS_FAILED;
    }
    if (asked->if_none_match)
        return list_has(asked->if_none_match, version, true) ? CONDITIONS_NOT_MODIFIED : CONDITIONS_GO;
    if (asked->if_modified_since && !is_modified_since(asked->if_modified_since, version, true))
        return CONDITIONS_NOT_MODIFIED;
    return CONDITIONS_GO;
}

/* "*" or one tag; *is_any tells which. */
static bool read_one_tag(const char *text, bool *is_any, struct files_version *version, struct error *err)
{
    *is_any = strcmp(text, "*") == 0;
    if (*is_any)
        return true;
    size_t length = tag_length(text);
    if (length == 0 || text[length] != '\0')
        return error_set(err, ERROR_INVALID, "If-Match: * or one entity tag in quotes");
    if (!conditions_etag_read(text, version))
        return error_set(err, ERROR_PRECONDITION, "If-Match: no file here has that entity tag");
    return true;
}

bool conditions_for_change(const struct conditions *asked, struct files_request *request, struct error *err)
{
    bool is_any = false;
    struct files_version version = {0};
    if (asked->if_match && asked->if_none_match)
        return error_set(err, ERROR_INVALID, "If-Match and If-None-Match exclude each other");
    if (asked->if_unmodified_since)
        return error_set(err, ERROR_INVALID, "If-Unmodified-Since is not served for a change: send If-Match");
    if (asked->if_none_match && strcmp(asked->if_none_match, "*") != 0)
        return error_set(err, ERROR_INVALID, "If-None-Match: only * is served for a change");
    if (asked->if_match && !read_one_tag(asked->if_match, &is_any, &version, err))
        return false;
    if (asked->if_none_match)
        request->flags |= FILES_IF_NONE;
    if (asked->if_match) {
        request->flags |= is_any ? FILES_IF_ANY : FILES_IF_MATCH;
        request->match = version;
    }
    return true;
}

/* ---- ranges ---- */

/* A number from `text` to its end, or to `end`. */
static bool read_number(const char **at, char end, uint64_t *value)
{
    size_t length = strspn(*at, "0123456789");
    if ((*at)[length] != end || !text_parse_u64(*at, length, INT64_MAX, value))
        return false;
    *at += length + (end != '\0');
    return true;
}

static bool is_of_version(const char *if_range, const struct files_version *version)
{
    char own[CONDITIONS_ETAG_BYTES], date[CONDITIONS_DATE_BYTES];
    conditions_etag(own, version);
    conditions_date(date, version->mtime_ns);
    return strcmp(if_range, own) == 0 || strcmp(if_range, date) == 0;
}

static enum conditions_part cut_suffix(const char *text, uint64_t length, uint64_t *offset, uint64_t *size)
{
    uint64_t wanted;
    if (!read_number(&text, '\0', &wanted) || (wanted > 0 && length == 0))
        return CONDITIONS_WHOLE;
    if (wanted == 0)
        return CONDITIONS_UNSATISFIABLE;
    *size = wanted < length ? wanted : length;
    *offset = length - *size;
    return CONDITIONS_PART;
}

enum conditions_part conditions_range(const struct conditions *asked, const struct files_version *version,
                                      uint64_t *offset, uint64_t *size)
{
    if (!asked->range || strncmp(asked->range, "bytes=", 6) != 0 ||
        (asked->if_range && !is_of_version(asked->if_range, version)))
        return CONDITIONS_WHOLE;
    const char *at = asked->range + 6;
    uint64_t length = version->size, first, last = INT64_MAX;
    if (at[0] == '-')
        return cut_suffix(at + 1, length, offset, size);
    if (!read_number(&at, '-', &first) || (*at && !read_number(&at, '\0', &last)) || last < first)
        return CONDITIONS_WHOLE;
    if (first >= length)
        return CONDITIONS_UNSATISFIABLE;
    *offset = first;
    *size = (last < length - 1 ? last : length - 1) - first + 1;
    return CONDITIONS_PART;
}

bool conditions_piece_read(const char *text, struct conditions_piece *piece, struct error *err)
{
    uint64_t first = 0, last = 0, total = 0;
    const char *at = text + 6;
    bool is_question = strncmp(text, "bytes */", 8) == 0;
    bool is_read = strncmp(text, "bytes ", 6) == 0;
    if (is_question)
        at += 2;
    else
        is_read = is_read && read_number(&at, '-', &first) && read_number(&at, '/', &last);
    if (!is_read || !read_number(&at, '\0', &total) || total == 0 || (!is_question && (last < first || last >= total)))
        return error_set(err, ERROR_INVALID, "Content-Range: \"bytes A-B/T\" (A <= B < T), or \"bytes */T\"");
    *piece = (struct conditions_piece){.offset = first, .size = is_question ? 0 : last - first + 1, .total = total};
    return true;
}
