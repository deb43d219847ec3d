#include "sandboxd/templates/tool/import.h"

#include "sandboxd/templates/new_version.h"
#include "sandboxd/templates/tool/import_child.h"
#include "sandboxd/templates/tool/making.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_BYTES = 1024 * 1024 };

/* What was given, opened. */
struct given {
    int fd;       /* of the archive, a regular file; -1 for a folder */
    char *folder; /* real path of the layout; or NULL */
    char *label;  /* what it is called in the record and by default */
};

static void given_done(struct given *given)
{
    if (given->fd >= 0)
        close(given->fd);
    free(given->folder);
    free(given->label);
}

/* --- opening --- */

static int make_spool(const struct new_version *fresh, struct error *err)
{
    int fd = open(fresh->path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        error_set_errno(err, errno == ENOSPC ? ERROR_DISK_FULL : ERROR_INTERNAL, "make a temporary file in %s",
                        fresh->path);
    return fd;
}

/* Only a regular file can be read twice. */
static bool copy_stream(int from, int to, uint64_t bytes_max, struct error *err)
{
    AUTO_FREE char *buffer = memory_new(COPY_BYTES);
    uint64_t total = 0;
    for (;;) {
        ssize_t got = read(from, buffer, COPY_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, ERROR_INTERNAL, "read the archive");
        if (got == 0)
            return true;
        total += (uint64_t)got;
        if (total > bytes_max)
            return error_set(err, ERROR_TOO_LARGE, "the archive has more than %" PRIu64 " MiB (--max-mb)",
                             bytes_max >> 20);
        if (!fd_write_all(to, buffer, (size_t)got, err))
            return false;
    }
}

static bool open_stream(struct given *given, int from, const struct new_version *fresh, uint64_t bytes_max,
                        struct error *err)
{
    AUTO_FD int spool = make_spool(fresh, err);
    if (spool < 0 || !copy_stream(from, spool, bytes_max, err))
        return false;
    if (given->fd >= 0)
        close(given->fd);
    given->fd = TAKE_FD(spool);
    return true;
}

/* "/x/python.tar.gz" as "python". */
static char *label_of(const char *file)
{
    AUTO_FREE char *copy = memory_string(file);
    for (size_t length = strlen(copy); length > 1 && copy[length - 1] == '/'; length--)
        copy[length - 1] = '\0';
    const char *slash = strrchr(copy, '/');
    char *label = memory_string(slash && slash[1] ? slash + 1 : copy);
    char *tar = strstr(label, ".tar");
    if (tar && tar != label)
        *tar = '\0';
    return label;
}

static bool open_given(struct given *given, const struct import_options *options, const struct new_version *fresh,
                       struct error *err)
{
    struct stat status;
    bool is_stdin = strcmp(options->file, "-") == 0;
    given->label = is_stdin ? memory_string("stdin") : label_of(options->file);
    given->fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(options->file, O_RDONLY | O_CLOEXEC);
    if (given->fd < 0 || fstat(given->fd, &status) < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_INVALID, "open %s", options->file);
    if (S_ISDIR(status.st_mode)) {
        given->folder = realpath(options->file, NULL);
        close(given->fd);
        given->fd = -1;
        return given->folder || error_set_errno(err, ERROR_INVALID, "open %s", options->file);
    }
    return S_ISREG(status.st_mode) || open_stream(given, given->fd, fresh, import_archive_max(&options->limits), err);
}

/* --- names --- */

/* "docker.io/library/python:3.12-slim" as "python-3.12-slim". */
static void suggest(const char *reference, char name[static FRONT_LAUNCHER_NAME_BYTES])
{
    const char *slash = strrchr(reference, '/');
    const char *from = slash ? slash + 1 : reference;
    const char *digest = strstr(from, "@");
    size_t length = digest ? (size_t)(digest - from) : strlen(from);
    size_t used = 0;
    for (size_t i = 0; i < length && used < 40; i++) {
        char c = from[i];
        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        bool fits = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        name[used++] = fits ? c : '-';
    }
    name[used] = '\0';
}

static bool choose_name(const struct import_options *options, const struct message_result *result, const char *label,
                        char name[static FRONT_LAUNCHER_NAME_BYTES], struct error *err)
{
    if (options->name) /* checked before */
        return text_copy(name, FRONT_LAUNCHER_NAME_BYTES, options->name);
    suggest(result->reference[0] ? result->reference : label, name);
    return (template_is_name(name) && strcmp(name, "base") != 0) ||
           error_set(err, ERROR_INVALID, "the image's name \"%.60s\" makes no name of a template: give --name", name);
}

/* --- all of it --- */

static bool run(const char *folder, const struct import_options *options, struct new_version *fresh,
                struct given *given, struct template *made, struct error *err)
{
    if (!open_given(given, options, fresh, err))
        return false;
    AUTO_FD int spool = make_spool(fresh, err);
    if (spool < 0)
        return false;
    struct import_work work = {.archive = given->fd, .spool = spool, .folder = -1, .limits = options->limits};
    const struct jail_plan plan = {.kind = JAIL_PARSE,
                                   .rootfs = fresh->rootfs,
                                   .folder = given->folder,
                                   .folder_fd = &work.folder,
                                   .files = {given->fd >= 0 ? &work.archive : NULL, &work.spool},
                                   .file_bytes = import_archive_max(&options->limits) + 1,
                                   .work = import_child,
                                   .context = &work};
    struct making making = {.fresh = fresh, .is_quiet = options->is_quiet};
    struct message_result result;
    if (!making_run(&making, &plan, options->timeout_s, &result, err))
        return false;
    char name[FRONT_LAUNCHER_NAME_BYTES];
    if (!choose_name(options, &result, given->label, name, err))
        return false;
    const char *reference = result.reference[0] ? result.reference : given->label;
    AUTO_FREE char *source = memory_printf("%s %s", result.record.source, reference);
    return making_commit(folder, fresh, &result, name, source, made, err);
}

bool import_run(const char *folder, const struct import_options *options, struct template *made, struct error *err)
{
    AUTO_NEW_VERSION fresh = NEW_VERSION_NONE;
    __attribute__((cleanup(given_done))) struct given given = {.fd = -1};
    return new_version_begin(folder, &fresh, err) && run(folder, options, &fresh, &given, made, err);
}
