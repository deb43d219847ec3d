/* grep.c - FILES_GREP: lines of files that match. Each file is read through one buffer of 1 MiB, which bounds a line;
 * the memory that a pattern may take (glibc's regular expressions know no bound) is held by RLIMIT_DATA. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/glob_pattern.h"
#include "sandboxd/helpers/files/walk.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define LINE_BYTES   (1 << 20)   /* of a longer line the beginning */
#define FILE_BYTES   (64 << 20)  /* larger files are skipped */
#define BINARY_BYTES 8192        /* a NUL in the first so many: a binary file */
#define TEXT_BYTES   1024        /* of a line are told */
#define BEFORE_BYTES 256         /* of them before the match, if more follows */
#define MEMORY_BYTES (256 << 20) /* for all */
#define FLUSH_NS     100000000   /* what was found is told after 100 ms, also when a packet is not full */

struct grep {
    struct helper *helper;
    bool is_fixed; /* by memmem; else `regex` */
    regex_t regex;
    struct glob_pattern *names; /* NULL: all */
    bool has_slash;             /* names is of paths */
    char *buffer;               /* LINE_BYTES and one */
    size_t size;                /* in it */
    const char *path;           /* of the file being read */
    size_t path_size;
    uint64_t line;       /* the first in the buffer, from 1 */
    bool is_over;        /* the limit was reached */
    uint64_t flushed_ns; /* CLOCK_MONOTONIC */
};

/* What a line is compared with and where it matched. */
struct span {
    const char *line;
    size_t size, from;
    bool is_cut; /* the line goes on behind it */
};

static bool is_inside_character(const char *text, size_t at)
{
    return ((unsigned char)text[at] & 0xc0) == 0x80;
}

static bool tell(struct grep *grep, const struct span *span, uint64_t line, struct error *err)
{
    struct helper *helper = grep->helper;
    if (helper->request->limit > 0 && helper->count == helper->request->limit) {
        helper->is_truncated = grep->is_over = true;
        return true;
    }
    size_t from = 0, to = span->size;
    if (span->size > TEXT_BYTES) {
        from = span->from > BEFORE_BYTES ? span->from - BEFORE_BYTES : 0;
        from = from + TEXT_BYTES > span->size ? span->size - TEXT_BYTES : from;
        to = from + TEXT_BYTES;
        for (int i = 0; i < 3 && from > 0 && from < span->from && is_inside_character(span->line, from); i++)
            from++;
        for (int i = 0; i < 3 && to < span->size && to > span->from + 1 && is_inside_character(span->line, to); i++)
            to--;
    }
    helper->count++;
    struct files_record record = {.kind = FILES_MATCH,
                                  .path = {grep->path, grep->path_size},
                                  .line = line,
                                  .column = span->from + 1,
                                  .is_cut = span->is_cut || to - from < span->size,
                                  .text = {span->line + from, to - from}};
    return helper_record(helper, &record, err);
}

static size_t count_lines(const char *from, const char *to)
{
    size_t count = 0;
    for (; from < to && (from = memchr(from, '\n', (size_t)(to - from))); from++)
        count++;
    return count;
}

/* Lines in the buffer up to `size`, by what memmem finds in all of them. */
static bool search_fixed(struct grep *grep, size_t size, bool is_cut, struct error *err)
{
    const char *text = grep->helper->request->pattern;
    const char *at = grep->buffer, *end = grep->buffer + size;
    uint64_t line = grep->line;
    while (!grep->is_over) {
        const char *hit = memmem(at, (size_t)(end - at), text, strlen(text));
        if (hit == NULL)
            break;
        line += count_lines(at, hit);
        const char *before = memrchr(at, '\n', (size_t)(hit - at));
        const char *start = before ? before + 1 : at;
        const char *stop = memchr(hit, '\n', (size_t)(end - hit));
        struct span span = {.line = start,
                            .size = (size_t)((stop ? stop : end) - start),
                            .from = (size_t)(hit - start),
                            .is_cut = is_cut};
        if (!tell(grep, &span, line, err))
            return false;
        if (stop == NULL)
            break;
        at = stop + 1;
        line++;
    }
    return true;
}

static bool search_regex(struct grep *grep, size_t size, bool is_cut, struct error *err)
{
    char *at = grep->buffer, *end = grep->buffer + size;
    for (uint64_t line = grep->line; at < end && !grep->is_over; line++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        regmatch_t match = {.rm_so = 0, .rm_eo = (regoff_t)(stop - at)};
        char kept = *stop; /* with REG_STARTEND no NUL is needed; but ASan's regexec looks for one */
        *stop = '\0';
        int result = regexec(&grep->regex, at, 1, &match, REG_STARTEND);
        *stop = kept;
        if (result != 0 && result != REG_NOMATCH)
            return error_set(err, ERROR_TOO_LARGE, "the pattern needs more than %d MiB of memory", MEMORY_BYTES >> 20);
        struct span span = {.line = at, .size = (size_t)(stop - at), .from = (size_t)match.rm_so, .is_cut = is_cut};
        if (result == 0 && !tell(grep, &span, line, err))
            return false;
        at = stop + 1;
    }
    return true;
}

/* The first `size` bytes of the buffer are whole lines, or what there will be of one; they are searched and dropped. */
static bool search_lines(struct grep *grep, size_t size, bool is_cut, struct error *err)
{
    if (!(grep->is_fixed ? search_fixed : search_regex)(grep, size, is_cut, err))
        return false;
    grep->line += count_lines(grep->buffer, grep->buffer + size);
    grep->size -= size;
    memmove(grep->buffer, grep->buffer + size, grep->size);
    return true;
}

/* In the rest of a line that was cut: drops up to its end. False while that has not come. */
static bool drop_rest(struct grep *grep)
{
    const char *stop = memchr(grep->buffer, '\n', grep->size);
    size_t size = stop ? (size_t)(stop + 1 - grep->buffer) : grep->size;
    grep->line += stop != NULL;
    grep->size -= size;
    memmove(grep->buffer, grep->buffer + size, grep->size);
    return stop != NULL;
}

/* Reads to the end or the bound. One that cannot be read further is counted, what was found stays. */
static bool search_file(struct grep *grep, int fd, struct error *err)
{
    bool is_dropping = false;
    grep->size = 0;
    grep->line = 1;
    for (size_t total = 0; !grep->is_over && total <= FILE_BYTES;) {
        ssize_t got = read(fd, grep->buffer + grep->size, LINE_BYTES - grep->size);
        if (got < 0 && errno == EINTR)
            continue;
        grep->helper->skipped += got < 0;
        if (got <= 0)
            return grep->size == 0 || search_lines(grep, grep->size, false, err);
        size_t looked_at = (size_t)got < BINARY_BYTES ? (size_t)got : BINARY_BYTES;
        if (total == 0 && memchr(grep->buffer, '\0', looked_at)) {
            grep->helper->skipped++;
            return true;
        }
        total += (size_t)got;
        grep->size += (size_t)got;
        if (is_dropping && !drop_rest(grep))
            continue;
        const char *last = memrchr(grep->buffer, '\n', grep->size);
        bool is_full = last == NULL && grep->size == LINE_BYTES;
        size_t size = last ? (size_t)(last + 1 - grep->buffer) : is_full ? grep->size : 0;
        if (size > 0 && !search_lines(grep, size, is_full, err))
            return false;
        is_dropping = is_full;
    }
    return true;
}

static bool search_open(struct grep *grep, int fd, const struct stat *status, const char *path, size_t path_size,
                        struct error *err)
{
    if (status->st_size > FILE_BYTES) {
        grep->helper->skipped++;
        return true;
    }
    grep->path = path;
    grep->path_size = path_size;
    if (!search_file(grep, fd, err))
        return false;
    uint64_t now = clock_monotonic_ns();
    if (now - grep->flushed_ns < FLUSH_NS)
        return true;
    grep->flushed_ns = now;
    return helper_flush(grep->helper, err);
}

static bool is_wanted(const struct grep *grep, const struct walk_place *place)
{
    return grep->names == NULL || glob_pattern_matches(grep->names, grep->has_slash ? place->path : place->name, false);
}

static bool search_below(struct grep *grep, int folder, struct error *err)
{
    AUTO(walk) *walk = walk_new(folder, WALK_BEFORE, err);
    if (walk == NULL)
        return false;
    struct helper *helper = grep->helper;
    struct walk_place place;
    while (!grep->is_over && walk_next(walk, &place)) {
        if (place.type == FILES_FOLDER) {
            walk_enter(walk);
            continue;
        }
        if (place.type == FILES_SYMLINK || !is_wanted(grep, &place))
            continue;
        struct stat status;
        struct error ignored = {0};
        AUTO_FD int fd = -1;
        if (place.type == FILES_REGULAR)
            fd = open_regular_at(place.folder, place.name, O_RDONLY, helper->request->root, &status, &ignored);
        if (fd < 0)
            helper->skipped += ignored.kind != ERROR_NOT_FOUND;
        else if (!search_open(grep, fd, &status, place.path, place.path_size, err))
            return false;
    }
    helper->skipped += walk_skipped(walk);
    return true;
}

static bool search_path(struct grep *grep, struct error *err)
{
    const struct files_request *request = grep->helper->request;
    AUTO_FD int folder = resolve_open(grep->helper, request->root, request->path, O_RDONLY | O_DIRECTORY, err);
    if (folder >= 0)
        return search_below(grep, folder, err);
    if (err->system_errno != ENOTDIR)
        return false;
    *err = (struct error){0};
    struct stat status;
    AUTO_FD int fd = resolve_regular(grep->helper, request->root, request->path, O_RDONLY, &status, err);
    return fd >= 0 && search_open(grep, fd, &status, "", 0, err);
}

/* A text as a regular expression that matches it alone. */
static char *escape(const char *text)
{
    char *escaped = memory_new(strlen(text) * 2 + 1), *to = escaped;
    for (; *text; text++) {
        if (strchr("\\^$.[]|()*+?{}", *text))
            *to++ = '\\';
        *to++ = *text;
    }
    return escaped;
}

static bool compile(struct grep *grep, struct error *err)
{
    const struct files_request *request = grep->helper->request;
    if (strchr(request->pattern, '\n'))
        return error_set(err, ERROR_INVALID, "a pattern is compared with single lines: it cannot hold a newline");
    bool ignores_case = request->flags & FILES_IGNORE_CASE, is_text = request->flags & FILES_FIXED;
    grep->is_fixed = is_text && !ignores_case;
    if (grep->is_fixed)
        return true;
    /* Of the template's files; without them a character is a byte. */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    AUTO_FREE char *text = is_text ? escape(request->pattern) : memory_string(request->pattern);
    int result = regcomp(&grep->regex, text, REG_EXTENDED | (ignores_case ? REG_ICASE : 0));
    if (result == 0)
        return true;
    char message[128];
    (void)regerror(result, &grep->regex, message, sizeof message);
    return error_set(err, ERROR_INVALID, "the pattern is no POSIX extended regular expression: %s", message);
}

/* What the process has taken, by proc(5), /proc/PID/statm, sixth field; false when it cannot be known. */
static bool memory_taken(rlim_t *bytes)
{
    AUTO_FREE char *statm = fd_read_file("/proc/self/statm", 256, NULL, NULL);
    char *field = statm;
    for (int i = 0; field && i < 5; i++) {
        field = strchr(field, ' ');
        field = field ? field + 1 : NULL;
    }
    *bytes = field ? (rlim_t)strtoull(field, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE) : 0;
    return *bytes > 0;
}

/* As much beyond what is taken now: sanitizers take terabytes. */
static void limit_memory(struct rlimit *before)
{
    rlim_t taken;
    if (getrlimit(RLIMIT_DATA, before) < 0 || !memory_taken(&taken))
        return;
    struct rlimit limit = *before;
    if (taken + MEMORY_BYTES < limit.rlim_cur)
        limit.rlim_cur = taken + MEMORY_BYTES;
    (void)setrlimit(RLIMIT_DATA, &limit);
}

static bool run(struct grep *grep, struct error *err)
{
    const struct files_request *request = grep->helper->request;
    if (request->glob[0]) {
        grep->names = glob_pattern_parse(request->glob, GLOB_EXACT, err);
        grep->has_slash = strchr(request->glob, '/') != NULL;
        if (grep->names == NULL)
            return false;
    }
    if (!compile(grep, err))
        return false;
    grep->buffer = memory_new(LINE_BYTES + 1);
    bool is_done = search_path(grep, err);
    free(grep->buffer);
    if (!grep->is_fixed)
        regfree(&grep->regex);
    return is_done;
}

bool files_grep(struct helper *helper, struct error *err)
{
    if (!helper_end_with_front(helper, err))
        return false;
    struct rlimit before = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    limit_memory(&before);
    struct grep grep = {.helper = helper, .flushed_ns = clock_monotonic_ns()};
    bool is_done = run(&grep, err);
    glob_pattern_free(grep.names);
    (void)setrlimit(RLIMIT_DATA, &before);
    return is_done;
}
