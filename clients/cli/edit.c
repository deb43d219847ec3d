/** edit.c - `parley edit`: an exact replacement in a file of a sandbox, or the user's own editor on it. */
#include "clients/cli/files_session.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley edit [options] [SANDBOX]:PATH --old TEXT --new TEXT [--all]\n"
    "       parley edit [options] [SANDBOX]:PATH\n\n"
    "Replaces TEXT, which must be there exactly once (every time with --all), whole or not at all. Without --old the\n"
    "file is opened in $VISUAL, $EDITOR or vi here, and written back if nobody changed it meanwhile.\n\n"
    "  --old TEXT         what to replace; @FILE reads it from a local file\n"
    "  --new TEXT         what to put there; @FILE as above\n"
    "  --all              replace every occurrence\n" FILES_HELP;

static const size_t TEXT_MAX_BYTES = 1024 * 1024;

struct edit_options {
    struct files_options files;
    const char *old, *new;
    bool all;
};

/* TEXT, or what is in FILE of @FILE. The caller frees. */
static char *text_of(const char *given, struct error *err)
{
    size_t size;
    return given[0] == '@' ? fd_read_file(given + 1, TEXT_MAX_BYTES, &size, err) : memory_string(given);
}

static int replace(struct files_session *session, const char *path, const struct edit_options *options)
{
    struct error err = {0};
    AUTO_FREE char *old = text_of(options->old, &err);
    AUTO_FREE char *new = old ? text_of(options->new, &err) : NULL;
    if (!new)
        return cli_fail(&err, NULL, CLI_USAGE);
    json_t *body = json_pack("{s:s, s:s, s:b}", "old", old, "new", new, "all", options->all);
    if (!body)
        return cli_usage("edit", "--old and --new must be UTF-8 text");
    json_t *reply = NULL;
    bool good = remote_files_change(session->files, path, "edit", body, NULL, &reply, &err);
    json_decref(body);
    if (good && options->files.common.json)
        cli_print_json(reply);
    else
        json_decref(reply);
    return good ? CLI_OK : cli_fail_usual(&err, CLI_FAILED);
}

/* ---- with an editor ---- */

static bool to_file(void *cookie, const void *data, size_t size, struct error *err)
{
    const int *fd = cookie;
    return fd_write_all(*fd, data, size, err);
}

static bool run_editor(const char *file, struct error *err)
{
    const char *editor = getenv("VISUAL");
    if (!editor || !*editor)
        editor = getenv("EDITOR");
    if (!editor || !*editor)
        editor = "vi";
    AUTO_FREE char *line = memory_printf("%s \"$0\"", editor);
    /* Ctrl-C is the editor's: vim takes it, and we must be there when it ends. */
    void (*on_interrupt)(int) = signal(SIGINT, SIG_IGN), (*on_quit)(int) = signal(SIGQUIT, SIG_IGN);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, on_interrupt);
        signal(SIGQUIT, on_quit);
        signal(SIGPIPE, SIG_DFL);
        execl("/bin/sh", "sh", "-c", line, file, (char *)NULL); /* as git does: the editor may have options */
        _exit(127);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    signal(SIGINT, on_interrupt);
    signal(SIGQUIT, on_quit);
    if (pid < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fork");
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
           error_set(err, ERROR_CONFLICT, "the editor (%s) failed; the file is as it was", editor);
}

/* A copy at `local`, edited, and written back if it differs. *kept: it could not be, and must not be lost. */
static bool edit_copy(struct files_session *session, const char *path, const char *local, bool *kept, struct error *err)
{
    AUTO_REMOTE_ENTRY entry = {0};
    AUTO_FD int fd = open(local, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, ERROR_INTERNAL, "%s", local);
    if (!remote_files_stat(session->files, path, true, &entry, err) ||
        !remote_files_read(session->files, path, to_file, &fd, err))
        return false;
    struct stat before, after;
    if (fstat(fd, &before) != 0 || !run_editor(local, err))
        return err->kind != ERROR_NONE ? false : error_set_errno(err, ERROR_INTERNAL, "%s", local);
    AUTO_FD int edited = open(local, O_RDONLY | O_CLOEXEC); /* many editors write another file of that name */
    if (edited < 0 || fstat(edited, &after) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "%s", local);
    bool is_same = after.st_ino == before.st_ino && after.st_size == before.st_size &&
                   after.st_mtim.tv_sec == before.st_mtim.tv_sec && after.st_mtim.tv_nsec == before.st_mtim.tv_nsec;
    if (is_same)
        return true;
    struct remote_files_put put = {.fd = edited, .mode = -1, .mtime_ns = -1, .if_match = entry.etag};
    *kept = !remote_files_write(session->files, path, &put, NULL, err);
    return !*kept;
}

static int edit_by_hand(struct files_session *session, const char *path)
{
    struct error err = {0};
    char folder[] = "/tmp/parley-edit-XXXXXX";
    if (!mkdtemp(folder))
        return cli_fail_usual((error_set_errno(&err, ERROR_INTERNAL, "a folder in /tmp"), &err), CLI_FAILED);
    const char *base = files_name_base(path); /* the editor knows the language by it */
    AUTO_FREE char *local = files_name_join(folder, *base ? base : "file");
    bool kept = false;
    bool good = edit_copy(session, path, local, &kept, &err);
    AUTO_FREE char *hint = kept ? memory_printf("what you wrote is in %s", local) : NULL;
    if (!kept) {
        struct error ignored = {0};
        (void)!fd_remove_tree(folder, &ignored);
    }
    return good ? CLI_OK : hint ? cli_fail(&err, hint, CLI_FAILED) : cli_fail_usual(&err, CLI_FAILED);
}

int edit_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"old", required_argument, NULL, 'o'},
                                         {"new", required_argument, NULL, 'n'},
                                         {"all", no_argument, NULL, 'a'},
                                         FILES_LONG_OPTIONS};
    struct edit_options options = {0};
    int option;
    while ((option = getopt_long(argc, argv, "q", LONG, NULL)) != -1) {
        if (files_option(&options.files, option, HELP))
            continue;
        if (option == 'o')
            options.old = optarg;
        else if (option == 'n')
            options.new = optarg;
        else if (option == 'a')
            options.all = true;
    }
    if (optind + 1 != argc)
        return cli_usage("edit", "one file: give :PATH");
    if (!options.old != !options.new || (options.all && !options.old))
        return cli_usage("edit", "--old and --new go together, and --all with them");
    struct error err = {0};
    AUTO_FILES_NAME name = {0};
    AUTO_FILES_SESSION session = {0};
    if (!files_name_parse(&name, argv[optind], &err))
        return cli_fail(&err, NULL, CLI_USAGE);
    if (!name.sandbox)
        return cli_usage("edit", "%s is a local file; in the sandbox it is :%s", argv[optind], argv[optind]);
    if (!files_session_open(&session, &options.files, name.sandbox, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    return options.old ? replace(&session, name.path, &options) : edit_by_hand(&session, name.path);
}
