/** fork.c - `parley fork`: many sandboxes with the files of one. */
#include "clients/cli/cli.h"
#include "clients/cli/wish_options.h"

#include "clients/c/remote_fork.h"
#include "clients/c/remote_sandbox.h"

#include "shared/base/memory.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley fork [SANDBOX] (--count N | --threads A,B,...) [options]\n\n"
    "Takes one snapshot of a sandbox (a name or id; default: the thread's) and makes N sandboxes with its files, each "
    "for\n"
    "a thread of its own. Processes are not forked. Prints what was made; what could not be made is told, each with "
    "its\n"
    "reason, and what was made stays.\n\n"
    "  --count N          1 to 1000; threads are called SANDBOX-fork-1 and so on, those without a sandbox\n"
    "  --threads A,B,...  these threads, which have no sandbox\n"
    "  --keep             do not remove the snapshot then; with --name under that name\n"
    "  --name NAME        what to call the snapshot (with --keep)\n"
    "  --thread T         the conversation whose sandbox is forked (default: the current folder's "
    "own)\n" WISH_BEGIN_HELP CLI_COMMON_HELP "\nExit status: 0 all were made, 1 not all, 128 + n stopped by signal n.\n"
    "\nExamples:\n"
    "  parley fork --count 4\n"
    "  for t in $(parley fork --threads a,b --json | jq -r '.made[].thread'); do\n"
    "      parley run --thread $t -d -- ./try --seed $t\n"
    "  done\n";

struct fork_options {
    struct cli_common common;
    struct wish_options wish;
    const char *thread, *name;
    char *words;          /* --threads, cut at its commas */
    const char **threads; /* NULL: named by us */
    size_t count;
    bool keep;
};

static volatile sig_atomic_t stop_signal;

static void on_stop(int number)
{
    static const char SAID[] = "\nparley: stopping; the snapshot is removed first (again: leaves at once)\n";
    stop_signal = number;
    (void)!write(STDERR_FILENO, SAID, sizeof SAID - 1);
}

static bool is_stopped(void *cookie UNUSED)
{
    return stop_signal != 0;
}

/* The snapshot is not to stay behind: the first Ctrl-C ends what is waited for, the second this program. */
static void catch_stop(void)
{
    struct sigaction action = {.sa_handler = on_stop, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int take_count(struct fork_options *options, const char *text)
{
    uint64_t count;
    if (!text_parse_u64(text, strlen(text), REMOTE_FORKS_MAX, &count) || count == 0)
        return cli_usage("fork", "--count wants 1 to %d, not \"%s\"", REMOTE_FORKS_MAX, text);
    options->count = (size_t)count;
    return CLI_OK;
}

static bool is_repeated(const char *const *threads, size_t count, const char *thread)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(threads[i], thread) == 0)
            return true;
    }
    return false;
}

static int take_threads(struct fork_options *options, const char *text)
{
    free(options->words);
    free(options->threads);
    options->words = memory_string(text);
    options->threads = memory_array(REMOTE_FORKS_MAX, sizeof *options->threads);
    size_t count = 0;
    char *rest = options->words;
    for (const char *thread; (thread = strsep(&rest, ",")) != NULL;) {
        if (!*thread || count == REMOTE_FORKS_MAX || is_repeated(options->threads, count, thread))
            return cli_usage("fork", "--threads wants up to %d different names with commas between, not \"%s\"",
                             REMOTE_FORKS_MAX, text);
        options->threads[count++] = thread;
    }
    options->count = count;
    return CLI_OK;
}

static int take_option(struct fork_options *options, int option)
{
    switch (option) {
    case 'c':
        return options->threads ? cli_usage("fork", "--threads tells how many already") : take_count(options, optarg);
    case 'T':
        return options->count ? cli_usage("fork", "--threads tells how many already") : take_threads(options, optarg);
    case 'k':
        options->keep = true;
        return CLI_OK;
    case 'n':
        options->name = optarg;
        return CLI_OK;
    case 't':
        options->thread = optarg;
        return CLI_OK;
    default:
        return CLI_OK;
    }
}

static int read_options(struct fork_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {{"count", required_argument, NULL, 'c'},
                                         {"threads", required_argument, NULL, 'T'},
                                         {"keep", no_argument, NULL, 'k'},
                                         {"name", required_argument, NULL, 'n'},
                                         {"thread", required_argument, NULL, 't'},
                                         WISH_BEGIN_OPTIONS,
                                         CLI_COMMON_OPTIONS};
    int option, wrong = CLI_OK;
    while (!wrong && (option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&options->common, option, HELP) && !wish_option(&options->wish, "fork", option, &wrong))
            wrong = take_option(options, option);
    }
    if (wrong)
        return wrong;
    if (options->count == 0)
        return cli_usage("fork", "how many? Give --count N or --threads A,B,...");
    if (options->name && !options->keep)
        return cli_usage("fork", "--name goes with --keep: else the snapshot is removed");
    if (optind + 1 < argc)
        return cli_usage("fork", "unexpected word \"%s\": one sandbox at a time", argv[optind + 1]);
    if (optind < argc && options->thread)
        return cli_usage("fork", "give a sandbox or a --thread, not both");
    return CLI_OK;
}

/* ---- the account ---- */

static void print_rows(const struct remote_fork *forks, size_t count)
{
    printf("%-32s %-20s %s\n", "THREAD", "SANDBOX", "ID");
    for (size_t i = 0; i < count; i++) {
        if (!forks[i].grant.token)
            continue;
        AUTO_FREE char *name = cli_safe(forks[i].grant.sandbox_name), *id = cli_safe(forks[i].grant.sandbox_id);
        AUTO_FREE char *thread = cli_safe(forks[i].thread);
        printf("%-32s %-20s %s\n", thread, name, id);
    }
}

static void tell_failures(const struct remote_fork *forks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        AUTO_FREE char *message = cli_safe(forks[i].error.message), *thread = cli_safe(forks[i].thread);
        if (!forks[i].grant.token)
            fprintf(stderr, "parley: %s was not made: %s\n", thread, message);
    }
}

static enum error_kind first_failure(const struct remote_fork *forks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!forks[i].grant.token)
            return forks[i].error.kind;
    }
    return ERROR_NONE;
}

static json_t *error_json(const struct error *err)
{
    AUTO_FREE char *message = cli_safe(err->message);
    return json_pack("{s:s, s:s}", "code", error_code(err->kind), "message", message);
}

static void print_account(const struct remote_fork *forks, size_t count, const char *snapshot, bool kept,
                          const struct error *err)
{
    json_t *made = json_array(), *failed = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct grant *grant = &forks[i].grant;
        if (grant->token)
            json_array_append_new(made, json_pack("{s:s, s:s, s:s}", "thread", forks[i].thread, "sandbox",
                                                  grant->sandbox_id, "sandbox_name", grant->sandbox_name));
        else
            json_array_append_new(
                failed, json_pack("{s:s?, s:o}", "thread", forks[i].thread, "error", error_json(&forks[i].error)));
    }
    json_t *account =
        json_pack("{s:s, s:b, s:o, s:o}", "snapshot", snapshot, "kept", kept, "made", made, "failed", failed);
    if (err->kind != ERROR_NONE)
        json_object_set_new(account, "error", error_json(err));
    cli_print_json(account);
}

/* Removes the snapshot unless it is to stay; says what became of it. */
static bool settle_snapshot(const struct place *place, const struct fork_options *options, const char *snapshot,
                            struct error *err)
{
    if (options->keep) {
        fprintf(stderr, "parley: snapshot %s is kept: `parley snapshots rm %s` removes it\n", snapshot, snapshot);
        return true;
    }
    struct error failure = {0};
    if (remote_snapshot_drop(place, snapshot, &failure))
        return true;
    AUTO_FREE char *message = cli_safe(failure.message);
    fprintf(stderr, "parley: snapshot %s could not be removed: %s; `parley snapshots rm %s` does it later\n", snapshot,
            message, snapshot);
    return err->kind != ERROR_NONE || error_set(err, failure.kind, "the snapshot could not be removed: %s", message);
}

static int fork_from(const struct place *place, const struct fork_options *options, const char *snapshot,
                     const char *stem)
{
    struct remote_fork *forks = memory_array(options->count, sizeof *forks);
    const struct remote_fork_wanted wanted = {.snapshot = snapshot,
                                              .threads = options->threads,
                                              .stem = stem,
                                              .count = options->count,
                                              .more = options->wish.members,
                                              .is_stopped = is_stopped};
    size_t made = remote_fork_all(place, &wanted, forks);
    struct error err = {0};
    if (made < options->count)
        error_set(&err, first_failure(forks, options->count), "%zu of %zu were made", made, options->count);
    bool settled = settle_snapshot(place, options, snapshot, &err);
    if (options->common.json)
        print_account(forks, options->count, snapshot, options->keep || !settled, &err);
    else
        print_rows(forks, options->count);
    tell_failures(forks, options->count);
    if (made < options->count)
        fprintf(stderr, "parley: %s\n", err.message);
    remote_forks_done(forks, options->count);
    free(forks);
    if (stop_signal)
        return 128 + (int)stop_signal;
    return err.kind == ERROR_NONE ? CLI_OK : CLI_FAILED;
}

/* The caller frees; NULL with err. */
static char *name_of(const struct place *place, const char *id, struct error *err)
{
    json_t *sandbox = remote_sandbox_show(place, id, err);
    const char *name = json_string_value(json_object_get(sandbox, "name"));
    char *copy = sandbox ? memory_string(name ? name : id) : NULL;
    json_decref(sandbox);
    return copy;
}

static int fork_sandbox(const struct fork_options *options, const char *given)
{
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options->common))
        return CLI_FAILED;
    struct error err = {0};
    AUTO_FREE char *id = cli_sandbox(&place, given, options->thread, &err);
    AUTO_FREE char *stem = id ? name_of(&place, id, &err) : NULL;
    json_t *reply = NULL;
    catch_stop();
    if (!stem || !remote_sandbox_snapshot(&place, id, options->name, &reply, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    const char *made = json_string_value(json_object_get(json_object_get(reply, "snapshot"), "id"));
    AUTO_FREE char *snapshot = memory_string(made);
    json_decref(reply);
    return fork_from(&place, options, snapshot, stem);
}

int fork_main(int argc, char *argv[])
{
    struct fork_options options = {0};
    int status = read_options(&options, argc, argv);
    if (!status)
        status = fork_sandbox(&options, argv[optind]);
    wish_done(&options.wish);
    free(options.threads);
    free(options.words);
    return status;
}
