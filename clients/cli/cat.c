/** cat.c - `parley cat`: files of a sandbox to stdout. */
#include "clients/cli/files_session.h"

#include "shared/base/fd.h"

#include <unistd.h>

static const char HELP[] =
    "usage: parley cat [options] [SANDBOX]:PATH...\n\n"
    "Writes files of the thread's sandbox to stdout. A relative PATH lies below /workspace.\n\n" FILES_HELP;

static bool to_stdout(void *cookie, const void *data, size_t size, struct error *err)
{
    (void)cookie;
    return fd_write_all(STDOUT_FILENO, data, size, err);
}

static int cat_one(const struct files_options *options, const char *given)
{
    struct error err = {0};
    AUTO_FILES_NAME name = {0};
    AUTO_FILES_SESSION session = {0};
    if (!files_name_parse(&name, given, &err))
        return cli_fail(&err, NULL, CLI_USAGE);
    if (!name.sandbox)
        return cli_usage("cat", "%s is a local file; in the sandbox it is :%s", given, given);
    if (!files_session_open(&session, options, name.sandbox, &err) ||
        !remote_files_read(session.files, name.path, to_stdout, NULL, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    return CLI_OK;
}

int cat_main(int argc, char *argv[])
{
    static const struct option LONG[] = {FILES_LONG_OPTIONS};
    struct files_options options = {.quiet = true};
    int option, status = CLI_OK;
    while ((option = getopt_long(argc, argv, "q", LONG, NULL)) != -1)
        (void)files_option(&options, option, HELP);
    if (optind == argc)
        return cli_usage("cat", "which file? Give :PATH");
    for (int i = optind; i < argc; i++) {
        int failed = cat_one(&options, argv[i]);
        status = failed ? failed : status;
    }
    return status;
}
