/** cp.c - `parley cp`: files and folders into a sandbox, out of it, or within it. */
#include "clients/cli/files_session.h"
#include "clients/cli/local_file.h"
#include "clients/cli/tree.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley cp [options] SRC... DST\n\n"
    "Copies between here and a sandbox, or within one. [SANDBOX]:PATH is in the sandbox, anything else is here;\n"
    "a relative PATH lies below /workspace. When DST is a folder, or ends in a slash, the copy lies in it. A file is\n"
    "there whole or not at all; a large one goes on where a broken connection left it.\n\n"
    "  -r, --recursive    folders with all in them\n"
    "  -p, --preserve     keep the time of a file\n" FILES_HELP;

struct cp {
    struct files_options files;
    bool recursive, preserve;
    struct files_name to;
    bool to_is_folder;
    struct files_session session;
};

static int usage_error(const struct error *err)
{
    return cli_fail(err, NULL, CLI_USAGE);
}

/* Where the copy of `from` is to be. The caller frees. */
static char *target_of(const struct cp *cp, const char *from)
{
    AUTO_FREE char *trimmed = memory_string(from);
    for (size_t length = strlen(trimmed); length > 1 && trimmed[length - 1] == '/'; length--)
        trimmed[length - 1] = 0;
    return cp->to_is_folder ? files_name_join(cp->to.path, files_name_base(trimmed)) : memory_string(cp->to.path);
}

/* ---- up ---- */

static bool send_folder(struct cp *cp, const char *from, const char *to, struct error *err)
{
    AUTO_TREE tree = {0};
    if (!cp->recursive)
        return error_set(err, ERROR_INVALID, "%s is a folder; -r copies folders", from);
    if (!tree_read_local(&tree, from, NULL, err))
        return false;
    files_progress_begin(&cp->session, from, tree_bytes(tree.entries, tree.count));
    bool good = tree_send(cp->session.files, from, to, tree.entries, tree.count, err);
    files_progress_end(&cp->session);
    if (good && tree.skipped)
        fprintf(stderr, "parley: %zu names in %s are no files, folders or links, and were left out\n", tree.skipped,
                from);
    return good;
}

static bool send_file(struct cp *cp, const char *from, const struct stat *status, const char *to, struct error *err)
{
    AUTO_FD int fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERROR_FORBIDDEN, "%s", from);
    AUTO_FD int whole = files_spool(&cp->session, fd, err);
    if (whole < 0)
        return false;
    struct remote_files_put put = {.fd = whole, .mode = (int)(status->st_mode & 0777U), .mtime_ns = -1};
    if (cp->preserve)
        put.mtime_ns = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
    files_progress_begin(&cp->session, from, (uint64_t)status->st_size);
    bool good = remote_files_write(cp->session.files, to, &put, NULL, err);
    files_progress_end(&cp->session);
    return good;
}

static bool send_one(struct cp *cp, const char *from, struct error *err)
{
    struct stat status;
    if (stat(from, &status) != 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_FORBIDDEN, "%s", from);
    AUTO_FREE char *to = target_of(cp, from);
    return S_ISDIR(status.st_mode) ? send_folder(cp, from, to, err) : send_file(cp, from, &status, to, err);
}

/* ---- down ---- */

static bool fetch_folder(struct cp *cp, const char *from, const char *to, struct error *err)
{
    size_t skipped = 0;
    if (!cp->recursive)
        return error_set(err, ERROR_INVALID, ":%s is a folder; -r copies folders", from);
    files_progress_begin(&cp->session, from, 0);
    bool good = tree_fetch(cp->session.files, from, to, &skipped, err);
    files_progress_end(&cp->session);
    if (good && skipped)
        fprintf(stderr, "parley: %zu names in :%s lead out of it or are no files, and were left out\n", skipped, from);
    return good;
}

static bool fetch_one(struct cp *cp, const char *from, struct error *err)
{
    AUTO_REMOTE_ENTRY entry = {0};
    AUTO_FREE char *to = target_of(cp, from);
    if (!remote_files_stat(cp->session.files, from, true, &entry, err))
        return false;
    if (entry.kind == REMOTE_FOLDER)
        return fetch_folder(cp, from, to, err);
    files_progress_begin(&cp->session, from, entry.size);
    bool good = local_file_fetch(cp->session.files, from, &entry, AT_FDCWD, to, cp->preserve, err);
    files_progress_end(&cp->session);
    return good;
}

/* ---- within ---- */

static bool copy_one(struct cp *cp, const char *from, struct error *err)
{
    AUTO_FREE char *to = target_of(cp, from);
    json_t *body = json_pack("{s:b, s:b}", "recursive", cp->recursive, "overwrite", 1);
    json_t *text = json_string(to);
    if (!text) { /* a name that is no UTF-8 */
        AUTO_FREE char *coded = memory_new((strlen(to) + 2) / 3 * 4 + 1);
        (void)text_base64_encode(coded, to, strlen(to));
        json_object_set_new(body, "to_b64", json_string(coded));
    } else {
        json_object_set_new(body, "to", text);
    }
    bool good = remote_files_change(cp->session.files, from, "copy", body, NULL, NULL, err);
    json_decref(body);
    return good;
}

/* ---- all ---- */

static bool look_at_target(struct cp *cp, size_t sources, struct error *err)
{
    size_t length = strlen(cp->to.path);
    bool has_slash = length > 0 && cp->to.path[length - 1] == '/';
    if (cp->to.sandbox) {
        AUTO_REMOTE_ENTRY entry = {0};
        struct error missing = {0};
        bool is_there = remote_files_stat(cp->session.files, cp->to.path, true, &entry, &missing);
        if (!is_there && missing.kind != ERROR_NOT_FOUND) {
            *err = missing;
            return false;
        }
        cp->to_is_folder = cp->to_is_folder || (is_there && entry.kind == REMOTE_FOLDER);
    } else {
        struct stat status;
        cp->to_is_folder = has_slash || (stat(cp->to.path, &status) == 0 && S_ISDIR(status.st_mode));
    }
    return sources == 1 || cp->to_is_folder ||
           error_set(err, ERROR_INVALID, "%s is no folder, and there are %zu to copy", cp->to.path, sources);
}

static int copy_all(struct cp *cp, char *const *given, const struct files_name *from, size_t count)
{
    struct error err = {0};
    const char *sandbox = cp->to.sandbox ? cp->to.sandbox : from[0].sandbox;
    for (size_t i = 0; i < count; i++) {
        if (!from[i].sandbox && !cp->to.sandbox)
            return cli_usage("cp", "neither %s nor the target is in a sandbox; :PATH is", given[i]);
        if (from[i].sandbox && !text_equal(from[i].sandbox, sandbox))
            return cli_usage("cp", "one sandbox at a time");
    }
    if (!files_session_open(&cp->session, &cp->files, sandbox, &err) || !look_at_target(cp, count, &err))
        return err.kind == ERROR_INVALID ? usage_error(&err) : cli_fail_usual(&err, CLI_FAILED);
    files_catch_stop();
    int status = CLI_OK;
    for (size_t i = 0; i < count && !files_is_stopped(); i++) {
        err = (struct error){0};
        bool good = !from[i].sandbox  ? send_one(cp, from[i].path, &err)
                    : !cp->to.sandbox ? fetch_one(cp, from[i].path, &err)
                                      : copy_one(cp, from[i].path, &err);
        if (!good)
            status = files_is_stopped() ? CLI_FAILED : cli_fail_usual(&err, CLI_FAILED);
    }
    return status;
}

int cp_main(int argc, char *argv[])
{
    static const struct option LONG[] = {
        {"recursive", no_argument, NULL, 'r'}, {"preserve", no_argument, NULL, 'p'}, FILES_LONG_OPTIONS};
    struct cp cp = {0};
    int option;
    while ((option = getopt_long(argc, argv, "qrp", LONG, NULL)) != -1) {
        if (files_option(&cp.files, option, HELP))
            continue;
        cp.recursive = cp.recursive || option == 'r';
        cp.preserve = cp.preserve || option == 'p';
    }
    if (argc - optind < 2)
        return cli_usage("cp", "what, and where to? Give SRC... DST");
    size_t count = (size_t)(argc - optind) - 1;
    const char *last = argv[argc - 1];
    AUTO_FREE struct files_name *from = memory_array(count, sizeof *from);
    struct error err = {0};
    bool good = files_name_parse(&cp.to, last, &err);
    cp.to_is_folder = cp.to.sandbox && *last && last[strlen(last) - 1] == '/';
    for (size_t i = 0; i < count && good; i++)
        good = files_name_parse(&from[i], argv[optind + (int)i], &err);
    int status = good ? copy_all(&cp, argv + optind, from, count) : usage_error(&err);
    for (size_t i = 0; i < count; i++)
        files_name_done(&from[i]);
    files_name_done(&cp.to);
    files_session_close(&cp.session);
    return status;
}
