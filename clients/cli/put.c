/** put.c - `parley put`: stdin into a file of a sandbox, whole or not at all. */
#include "clients/cli/files_session.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley put [options] [SANDBOX]:PATH < FILE\n\n"
    "Writes stdin to a file of the thread's sandbox: it is there whole or not at all. Missing folders are made.\n\n"
    "  --mode OCTAL       permission bits (default: what the file had, or 0644)\n"
    "  --new              fail when the file is there\n"
    "  --if-match ETAG    fail unless the file is still that one (`parley put --json` tells an etag)\n" FILES_HELP;

static bool parse_mode(const char *text, int *mode)
{
    char *end = NULL;
    long value = strtol(text, &end, 8);
    if (!*text || *end || value < 0 || value > 07777)
        return false;
    *mode = (int)value;
    return true;
}

static void print_entry(const struct remote_entry *entry)
{
    AUTO_FREE char *path = cli_safe(entry->path);
    cli_print_json(json_pack("{s:s, s:I, s:s?}", "path", path, "size", (json_int_t)entry->size, "etag", entry->etag));
}

static int put(const struct files_options *options, const char *given, const struct remote_files_put *wanted)
{
    struct error err = {0};
    AUTO_FILES_NAME name = {0};
    AUTO_FILES_SESSION session = {0};
    AUTO_REMOTE_ENTRY entry = {0};
    if (!files_name_parse(&name, given, &err))
        return cli_fail(&err, NULL, CLI_USAGE);
    if (!name.sandbox)
        return cli_usage("put", "%s is a local file; in the sandbox it is :%s", given, given);
    if (!files_session_open(&session, options, name.sandbox, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    files_catch_stop();
    struct remote_files_put sent = *wanted;
    files_progress_begin(&session, name.path, 0);
    sent.fd = files_spool(&session, STDIN_FILENO, &err);
    bool good = sent.fd >= 0 && remote_files_write(session.files, name.path, &sent, &entry, &err);
    files_progress_end(&session);
    if (sent.fd >= 0)
        close(sent.fd);
    if (!good)
        return files_is_stopped() ? CLI_FAILED : cli_fail_usual(&err, CLI_FAILED);
    if (options->common.json)
        print_entry(&entry);
    return CLI_OK;
}

int put_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"mode", required_argument, NULL, 'm'},
                                         {"new", no_argument, NULL, 'n'},
                                         {"if-match", required_argument, NULL, 'i'},
                                         FILES_LONG_OPTIONS};
    struct files_options options = {0};
    struct remote_files_put wanted = {.mode = -1, .mtime_ns = -1};
    int option;
    while ((option = getopt_long(argc, argv, "q", LONG, NULL)) != -1) {
        if (files_option(&options, option, HELP))
            continue;
        if (option == 'n')
            wanted.if_none = true;
        else if (option == 'i')
            wanted.if_match = optarg;
        else if (option == 'm' && !parse_mode(optarg, &wanted.mode))
            return cli_usage("put", "--mode wants octal digits up to 7777, not \"%s\"", optarg);
    }
    if (optind + 1 != argc)
        return cli_usage("put", "one file: give :PATH");
    return put(&options, argv[optind], &wanted);
}
