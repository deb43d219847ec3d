#include "clients/cli/files_session.h"

#include "clients/cli/amount.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char WORKSPACE[] = "/workspace";
static const uint64_t DRAW_NS = 100000000, PATIENCE_NS = 500000000; /* what is quick needs no bar */

/* ---- names ---- */

void files_name_done(struct files_name *name)
{
    free(name->sandbox);
    free(name->path);
    *name = (struct files_name){0};
}

/* Appends the segments of `path`; false when .. leads above /. */
static bool append_segments(struct text *to, const char *path)
{
    for (const char *at = path; *at;) {
        size_t length = strcspn(at, "/");
        if (length == 2 && memcmp(at, "..", 2) == 0) {
            char *slash = to->length ? strrchr(to->data, '/') : NULL;
            if (!slash)
                return false;
            to->length = (size_t)(slash - to->data);
            *slash = 0;
        } else if (length > 0 && !(length == 1 && *at == '.')) {
            text_append(to, "/", 1);
            text_append(to, at, length);
        }
        at += length + (at[length] == '/');
    }
    return true;
}

bool files_name_parse(struct files_name *name, const char *given, struct error *err)
{
    size_t colon = strcspn(given, ":/");
    if (given[colon] != ':') {
        *name = (struct files_name){.path = memory_string(given)};
        return true;
    }
    const char *path = given + colon + 1;
    struct text absolute = {0};
    bool is_inside = (path[0] == '/' || append_segments(&absolute, WORKSPACE)) && append_segments(&absolute, path);
    if (is_inside)
        *name = (struct files_name){.sandbox = memory_copy(given, colon + 1),
                                    .path = memory_string(absolute.length ? absolute.data : "/")};
    if (is_inside)
        name->sandbox[colon] = 0;
    text_done(&absolute);
    return is_inside || error_set(err, ERROR_INVALID, "%s leads above /", given);
}

const char *files_name_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *files_name_join(const char *folder, const char *name)
{
    if (!*name)
        return memory_string(folder);
    size_t length = strlen(folder);
    bool has_slash = length > 0 && folder[length - 1] == '/';
    return memory_printf("%s%s%s", folder, has_slash ? "" : "/", name);
}

bool files_option(struct files_options *options, int option, const char *help)
{
    if (cli_common(&options->common, option, help))
        return true;
    switch (option) {
    case FILES_OPTION_THREAD:
        options->thread = optarg;
        return true;
    case FILES_OPTION_SCOPES:
        options->scopes = optarg;
        return true;
    case 'q':
        options->quiet = true;
        return true;
    default:
        return false;
    }
}

/* ---- the bar ---- */

static size_t columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* One row and not more: what wraps could not be taken off the screen. Of a long name its end is shown. */
static void draw(const struct files_progress *progress, uint64_t now_ns)
{
    char moved[16], total[16], rate[16], figures[96];
    double seconds = (double)(now_ns - progress->began_ns) / 1e9;
    amount_format(moved, progress->moved);
    amount_format(total, progress->total);
    amount_format(rate, (uint64_t)((double)progress->moved / (seconds > 0 ? seconds : 1)));
    if (progress->total == 0) {
        snprintf(figures, sizeof figures, "%s  %s/s", moved, rate);
    } else {
        char bar[21] = "....................";
        uint64_t done = progress->moved < progress->total ? progress->moved : progress->total;
        memset(bar, '#', (size_t)((double)done * 20 / (double)progress->total));
        snprintf(figures, sizeof figures, "[%s] %s of %s  %s/s", bar, moved, total, rate);
    }
    AUTO_FREE char *what = cli_safe(progress->what);
    size_t width = columns(), used = strlen(figures) + 3, length = strlen(what);
    size_t room = width > used ? width - used : 0;
    const char *shown = what + (length > room ? length - room : 0);
    while (((unsigned char)*shown & 0xc0) == 0x80) /* not from the middle of a character */
        shown++;
    fprintf(stderr, "\r\033[K%s  %.*s", shown, (int)(width > 1 ? width - 1 : 1), figures);
    fflush(stderr);
}

/* ---- stopping ---- */

static volatile sig_atomic_t stopped_by;

static void on_stop(int number)
{
    stopped_by = number;
}

void files_catch_stop(void)
{
    static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = on_stop, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) {
        struct sigaction before;
        if (sigaction(SIGNALS[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(SIGNALS[i], &action, NULL);
    }
}

bool files_is_stopped(void)
{
    return stopped_by != 0;
}

static bool on_moved(void *cookie, uint64_t bytes)
{
    struct files_session *session = cookie;
    struct files_progress *progress = &session->progress;
    progress->moved += bytes;
    uint64_t now_ns = clock_monotonic_ns();
    if (progress->is_shown && progress->what && now_ns - progress->began_ns > PATIENCE_NS &&
        now_ns - progress->drawn_ns > DRAW_NS) {
        draw(progress, now_ns);
        progress->drawn_ns = now_ns;
    }
    return !files_is_stopped();
}

void files_progress_begin(struct files_session *session, const char *what, uint64_t total)
{
    struct files_progress *progress = &session->progress;
    *progress = (struct files_progress){
        .is_shown = progress->is_shown, .what = what, .total = total, .began_ns = clock_monotonic_ns()};
}

void files_progress_end(struct files_session *session)
{
    struct files_progress *progress = &session->progress;
    if (progress->is_shown && progress->drawn_ns)
        fputs("\r\033[K", stderr);
    progress->what = NULL;
    progress->drawn_ns = 0;
}

int files_spool(struct files_session *session, int fd, struct error *err)
{
    enum { BLOCK_BYTES = 64 * 1024 };
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && lseek(fd, 0, SEEK_CUR) == 0)
        return fcntl(fd, F_DUPFD_CLOEXEC, 3);
    const char *folder = getenv("TMPDIR");
    folder = folder && *folder ? folder : "/tmp";
    AUTO_FD int spool = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    AUTO_FREE char *block = memory_new(BLOCK_BYTES);
    if (spool < 0) {
        error_set_errno(err, ERROR_INTERNAL, "a file in %s", folder);
        return -1;
    }
    for (;;) {
        ssize_t got = read(fd, block, BLOCK_BYTES);
        if (got < 0 && errno != EINTR)
            error_set_errno(err, ERROR_INTERNAL, "reading what is sent");
        else if (!on_moved(session, got > 0 ? (uint64_t)got : 0))
            error_set(err, ERROR_GONE, "given up from here");
        else if (got == 0)
            return TAKE_FD(spool);
        else if (got < 0 || fd_write_all(spool, block, (size_t)got, err))
            continue;
        return -1;
    }
}

/* ---- the session ---- */

static void on_note(void *cookie, const char *sentence)
{
    files_progress_end(cookie);
    fprintf(stderr, "parley: %s\n", sentence);
}

/* A sandbox that is named is met by a thread that leases it already: the folder's own may have another, and would be
 * one more that keeps this one alive. Where that cannot be learnt, as ever; NULL where there is none of the name. The
 * caller frees. */
static char *thread_of(const struct place *place, const struct files_options *options, const char *sandbox,
                       struct error *err)
{
    bool is_named = sandbox && *sandbox && !options->thread && !place->capability;
    char *thread = is_named ? cli_sandbox_thread(place, sandbox, NULL, err) : NULL;
    if (thread || (is_named && err->kind == ERROR_NOT_FOUND))
        return thread;
    *err = (struct error){0};
    return cli_thread(options->thread);
}

bool files_session_open(struct files_session *session, const struct files_options *options, const char *sandbox,
                        struct error *err)
{
    session->progress.is_shown = !options->quiet && !options->common.json && isatty(STDERR_FILENO);
    if (!place_load(&session->place, options->common.url, err))
        return false;
    session->thread = thread_of(&session->place, options, sandbox, err);
    if (!session->thread)
        return false;
    session->sandbox = memory_string(sandbox && *sandbox ? sandbox : "auto");
    session->request = (struct grant_request){.thread = session->thread,
                                              .sandbox = session->sandbox,
                                              .sandbox_required = sandbox && *sandbox, /* another's file is not meant */
                                              .scopes = options->scopes,
                                              .mode = options->attach_only ? "attach_only" : NULL};
    if (!grant_get(&session->grant, &session->place, &session->request, err))
        return false;
    cli_tell_grant(&session->grant, false);
    struct remote_files_use use = {.grant = &session->grant,
                                   .place = &session->place,
                                   .request = &session->request,
                                   .note = on_note,
                                   .moved = on_moved,
                                   .cookie = session};
    session->files = remote_files_open(&use, err);
    return session->files != NULL;
}

void files_session_close(struct files_session *session)
{
    files_progress_end(session);
    remote_files_free(session->files);
    grant_done(&session->grant);
    place_done(&session->place);
    free(session->thread);
    free(session->sandbox);
    *session = (struct files_session){0};
    if (!files_is_stopped())
        return;
    signal(stopped_by, SIG_DFL);
    raise(stopped_by);
}
