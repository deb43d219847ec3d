/** run.c - `parley run`: code, a file or a command in the thread's sandbox. */
#include "clients/cli/cli.h"
#include "clients/cli/console.h"
#include "clients/cli/run_context.h"
#include "clients/cli/wish_options.h"

#include "clients/c/grant.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const size_t CODE_MAX_BYTES = 131071; /* one argument of execve(2), MAX_ARG_STRLEN less its NUL */
static const size_t CONTEXT_CODE_MAX_BYTES = 2 * 1024 * 1024; /* as sandboxd takes */
static const size_t CAPTURE_MAX_BYTES =
    64 * 1024 * 1024; /* of one stream under --json; the rest is left out and told */

static const char HELP[] =
    "usage: parley run [options] (FILE [ARG...] | -c CODE [ARG...] | -- CMD [ARG...])\n"
    "       parley run --context NAME [--lang LANG] [options] (CODE | - | --file FILE)\n\n"
    "Runs in the sandbox of a thread and passes stdin, output, signals and the exit status on; a connection that\n"
    "breaks is made again without a byte lost. The second Ctrl-C kills the command, the third leaves at once.\n"
    "Its token is refreshed for as long as the command runs.\n"
    "FILE and CODE run in python, bash or node; CMD runs as it is.\n"
    "In a context (`parley kernels`) variables stay for the next time; -: code from stdin; Ctrl-C interrupts it.\n\n"
    "  -c CODE            code to run\n"
    "  --lang LANG        python, bash or node (default: by FILE's ending, else python); contexts: also typescript\n"
    "                     and jupyter:SPEC, which without --context get one that ends with the run; a context that\n"
    "                     is there needs none\n"
    "  --context NAME     in the context of that name, which is made when there is none\n"
    "  --file FILE        the code of a context is in FILE\n"
    "  --save DIR         keep the images and the like that a context shows there\n"
    "  --sandbox NAME     auto (default), or a sandbox's name or id as a hint\n"
    "  --thread T         the conversation (default: the current folder's own)\n"
    "  --scopes 'A B'     ask for these scopes only (needs at least process)\n"
    "  --ttl S            let the token live S seconds, 60 to 3600 (default: the negotiator's)\n"
    "  --timeout S        kill it after S seconds; parley then exits with 124\n"
    "  --cwd DIR          folder inside (default: the template's, /workspace in base)\n"
    "  --env NAME=VALUE   set a variable; repeatable\n"
    "  -n, --no-stdin     do not read stdin\n"
    "  -d, --detach       start it, print its id and leave: `parley attach ID` comes back to it;\n"
    "                     its stdin stays open for that, unless -n\n"
    "  --user root        as the root of its user namespace, where policy allows\n"
    "  -v, --verbose      tell which sandbox is used\n" WISH_HELP CLI_COMMON_HELP
    "\nExit status: the command's own, 128 + n when signal n ended it, 124 timed out, 125 "
    "parley failed, 2 wrong use.\n"
    "Of a context: 0, 1 when the code failed or the context was lost, 130, 124, 125, 2.\n"
    "\nExamples:\n"
    "  parley run -c 'print(6 * 7)'\n"
    "  parley run --context a -c 'x = 6'; parley run --context a 'x * 7'\n"
    "  parley run --thread big --memory 4g --cpu 4 --volume models:/models:ro -- ./train\n"
    "  parley run --thread py312 --template python-3.12 --on-idle pause script.py\n";

enum language { LANGUAGE_NONE, LANGUAGE_PYTHON, LANGUAGE_BASH, LANGUAGE_NODE };

struct run_options {
    struct cli_common common;
    const char *code, *language, *sandbox, *thread, *scopes, *cwd, *user, *context, *file, *save;
    struct cli_variables variables;
    struct wish_options wish;
    double timeout_s;
    unsigned ttl_s;
    bool no_stdin, detach, verbose, is_command;
    char **rest; /* what follows the options */
    int rest_count;
};

/* What --json collects instead of passing through. */
struct capture {
    bool is_cut;
    struct text streams[2];
};

static int take_option(struct run_options *options, int option)
{
    char *end = NULL;
    switch (option) {
    case 'c':
        options->code = optarg;
        return 0;
    case 'l':
        options->language = optarg;
        return 0;
    case 'K':
        options->context = optarg;
        return 0;
    case 'f':
        options->file = optarg;
        return 0;
    case 'V':
        options->save = optarg;
        return 0;
    case 's':
        options->sandbox = optarg;
        return 0;
    case 't':
        options->thread = optarg;
        return 0;
    case 'S':
        options->scopes = optarg;
        return 0;
    case 'u':
        options->user = optarg;
        return 0;
    case 'C':
        options->cwd = optarg;
        return 0;
    case 'n':
        options->no_stdin = true;
        return 0;
    case 'v':
        options->verbose = true;
        return 0;
    case 'd':
        options->detach = true;
        return 0;
    case 'e':
        return cli_add_variable(&options->variables, "run", optarg);
    case 'L':
        return cli_ttl("run", optarg, &options->ttl_s);
    case 'T':
        options->timeout_s = strtod(optarg, &end);
        return *optarg && *end == '\0' && options->timeout_s > 0 && options->timeout_s <= 86400
                   ? 0
                   : cli_usage("run", "--timeout wants seconds above 0 and up to 86400, not \"%s\"", optarg);
    default:
        return 0;
    }
}

static bool is_of_context(const struct run_options *options)
{
    return options->context || options->save || run_context_only(options->language);
}

static int check_context(const struct run_options *options)
{
    int given = (options->code != NULL) + (options->file != NULL) + (options->rest_count > 0);
    if (given != 1 || options->rest_count > 1)
        return cli_usage("run", "a context is given one CODE, -c CODE, --file FILE, or - for stdin, after all options");
    const char *word = options->rest_count > 0 ? options->rest[0] : "";
    if (strpbrk(word, "./") && access(word, F_OK) == 0)
        return cli_usage("run", "%s is a file here: --file %s runs it in the context, -c takes it as code", word, word);
    if (options->detach || options->user || options->is_command)
        return cli_usage("run", "a context takes code, and no --detach or --user");
    if (options->context && !text_is_name(options->context, 48))
        return cli_usage("run", "--context wants a name of 1 to 48 letters, digits, dots, _ or -, not . or ..");
    return 0;
}

static int read_options(struct run_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {{"lang", required_argument, NULL, 'l'},
                                         {"sandbox", required_argument, NULL, 's'},
                                         {"thread", required_argument, NULL, 't'},
                                         {"scopes", required_argument, NULL, 'S'},
                                         {"timeout", required_argument, NULL, 'T'},
                                         {"cwd", required_argument, NULL, 'C'},
                                         {"env", required_argument, NULL, 'e'},
                                         {"no-stdin", no_argument, NULL, 'n'},
                                         {"verbose", no_argument, NULL, 'v'},
                                         {"detach", no_argument, NULL, 'd'},
                                         {"ttl", required_argument, NULL, 'L'},
                                         {"user", required_argument, NULL, 'u'},
                                         {"context", required_argument, NULL, 'K'},
                                         {"file", required_argument, NULL, 'f'},
                                         {"save", required_argument, NULL, 'V'},
                                         WISH_OPTIONS,
                                         CLI_COMMON_OPTIONS};
    int option, wrong = 0;
    while (!wrong && (option = getopt_long(argc, argv, "+c:ndv", LONG, NULL)) != -1) {
        if (!cli_common(&options->common, option, HELP) && !wish_option(&options->wish, "run", option, &wrong))
            wrong = take_option(options, option);
    }
    options->rest = argv + optind;
    options->rest_count = argc - optind;
    options->is_command = optind > 0 && strcmp(argv[optind - 1], "--") == 0 && !options->code;
    if (!wrong && is_of_context(options))
        return check_context(options);
    if (!wrong && options->file)
        return cli_usage("run", "--file is the code of a context: it needs --context");
    if (!wrong && !options->code && options->rest_count == 0)
        return cli_usage("run", "nothing to run: give FILE, -c CODE or -- CMD");
    return wrong;
}

static enum language language_of(const struct run_options *options, const char *file)
{
    static const struct {
        const char *name;
        enum language language;
    } NAMES[] = {{"python", LANGUAGE_PYTHON}, {"py", LANGUAGE_PYTHON}, {"bash", LANGUAGE_BASH},
                 {"sh", LANGUAGE_BASH},       {"node", LANGUAGE_NODE}, {"js", LANGUAGE_NODE},
                 {"mjs", LANGUAGE_NODE},      {"cjs", LANGUAGE_NODE},  {"javascript", LANGUAGE_NODE}};
    const char *slash = file ? strrchr(file, '/') : NULL;
    const char *dot = file ? strrchr(slash ? slash : file, '.') : NULL;
    const char *name = options->language ? options->language : dot ? dot + 1 : "python";
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (strcmp(name, NAMES[i].name) == 0)
            return NAMES[i].language;
    }
    return LANGUAGE_NONE;
}

/* Each interpreter takes the code as an argument, so that stdin stays the user's. */
static size_t interpreter(const char **arguments, enum language language, const char *code, const char *name)
{
    size_t count = 0;
    arguments[count++] = language == LANGUAGE_PYTHON ? "python3" : language == LANGUAGE_BASH ? "bash" : "node";
    arguments[count++] = language == LANGUAGE_NODE ? "-e" : "-c";
    arguments[count++] = code;
    if (language == LANGUAGE_BASH)
        arguments[count++] = name;
    if (language == LANGUAGE_NODE)
        arguments[count++] = "--";
    return count;
}

/* Builds argv. `*loaded` holds the file's text for as long as argv is used. */
static int build_arguments(const struct run_options *options, const char **arguments, char **loaded)
{
    size_t count = 0;
    int first = 0;
    if (!options->is_command) {
        const char *file = options->code ? NULL : options->rest[first++];
        enum language language = language_of(options, file);
        if (language == LANGUAGE_NONE)
            return cli_usage(
                "run",
                "which language is %s? Allowed: --lang python, bash or node; for TypeScript --lang typescript "
                "--file FILE",
                options->language ? options->language : file);
        struct error err = {0};
        size_t size = options->code ? strlen(options->code) : 0;
        if (file && !(*loaded = fd_read_file(file, CODE_MAX_BYTES, &size, &err)))
            return cli_fail(&err,
                            err.kind == ERROR_TOO_LARGE
                                ? "large scripts go through stdin: parley run -- python3 - < FILE"
                                : "to run a command, put -- before it",
                            CLI_USAGE);
        const char *code = file ? *loaded : options->code;
        if (size > CODE_MAX_BYTES || strlen(code) != size)
            return cli_usage("run", "code must be text of at most %zu bytes", CODE_MAX_BYTES);
        count = interpreter(arguments, language, code, file ? file : "parley");
    }
    for (; first < options->rest_count; first++)
        arguments[count++] = options->rest[first];
    arguments[count] = NULL;
    return 0;
}

static void capture_output(void *cookie, bool is_stderr, const void *data, size_t size)
{
    struct capture *capture = cookie;
    struct text *stream = &capture->streams[is_stderr];
    size_t room = CAPTURE_MAX_BYTES - stream->length;
    capture->is_cut = capture->is_cut || size > room;
    text_append(stream, data, size > room ? room : size);
}

static void print_captured(const struct grant *grant, const struct capture *capture, const struct session_end *end)
{
    json_t *result =
        json_pack("{s:s, s:s, s:s, s:i, s:b, s:b}", "sandbox", grant->sandbox_id, "sandbox_name", grant->sandbox_name,
                  "thread", grant->thread, "exit_code", end->exit_code, "timed_out", end->timed_out, "oom", end->oom);
    if (capture->is_cut)
        json_object_set_new(result, "truncated", json_true());
    static const char *const NAMES[] = {"stdout", "stderr"};
    for (int i = 0; i < 2; i++) {
        const struct text *stream = &capture->streams[i];
        json_t *text = json_stringn(stream->data ? stream->data : "", stream->length);
        if (text) {
            json_object_set_new(result, NAMES[i], text);
            continue;
        }
        AUTO_FREE char *coded = memory_new((stream->length + 2) / 3 * 4 + 1);
        text_base64_encode(coded, stream->data, stream->length);
        AUTO_FREE char *name = memory_printf("%s_b64", NAMES[i]);
        json_object_set_new(result, name, json_string(coded));
    }
    if (end->signal[0])
        json_object_set_new(result, "signal", json_string(end->signal));
    cli_print_json(result);
}

static int exit_status(const struct session_end *end, const struct run_options *options)
{
    if (end->timed_out)
        fprintf(stderr, "parley: timed out after %g s; the whole process tree was killed\n", options->timeout_s);
    if (end->oom)
        fprintf(stderr, "parley: out of memory: the sandbox's limit ended it\n");
    return end->timed_out ? CLI_TIMED_OUT : end->exit_code;
}

/* Nobody reading and a signal end this program as they end any other in a pipe or at a terminal. */
static int failure(struct error *err, const struct console_end *end, bool has_grant)
{
    if (end->left)
        return 128 + end->signal;
    if (end->unread && err->system_errno == EPIPE)
        return 128 + SIGPIPE;
    if (end->unread)
        error_prefix(err, "the output could not be passed on, the command was ended");
    return has_grant ? cli_fail(err, NULL, CLI_NO_SANDBOX) : cli_fail_usual(err, CLI_NO_SANDBOX);
}

static int print_detached(const struct grant *grant, const char *id, bool json)
{
    if (json)
        cli_print_json(json_pack("{s:s, s:s, s:s, s:s}", "id", id, "sandbox", grant->sandbox_id, "sandbox_name",
                                 grant->sandbox_name, "thread", grant->thread));
    else
        puts(id);
    return CLI_OK;
}

static int start_only(const struct place *place, const struct grant_request *request, struct grant *grant,
                      const struct console_wanted *wanted, bool json)
{
    struct error err = {0};
    bool negotiated = false, started;
    do {
        cli_tell_grant(grant, wanted->verbose);
        started = remote_command_start(grant, wanted->command, wanted->id, &err);
    } while (!started && cli_renew_spent(grant, place, request, &negotiated, &err));
    return started ? print_detached(grant, wanted->id, json) : failure(&err, &(struct console_end){0}, grant->token);
}

static int run_to_its_end(const struct place *place, const struct grant_request *request, struct grant *grant,
                          struct console_wanted *wanted, const struct run_options *options)
{
    struct capture capture = {0};
    struct console_end end = {0};
    struct error err = {0};
    wanted->output = options->common.json ? capture_output : NULL;
    wanted->cookie = &capture;
    bool ran = console_run_with_grant(wanted, place, request, grant, &end, &err) && !end.left;
    if (ran && options->common.json)
        print_captured(grant, &capture, &end.process);
    text_done(&capture.streams[0]);
    text_done(&capture.streams[1]);
    return ran ? exit_status(&end.process, options) : failure(&err, &end, grant->token != NULL);
}

static int run_arguments(const struct run_options *options, const char *const *arguments)
{
    const struct remote_command command = {.arguments = arguments,
                                           .cwd = options->cwd,
                                           .variables = options->variables.list,
                                           .user = options->user,
                                           .timeout_s = options->timeout_s,
                                           .has_stdin = !options->no_stdin};
    char id[RANDOM_ID_BYTES];
    struct error err = {0};
    AUTO_PLACE place = {0};
    if (!remote_command_check(&command, &err))
        return cli_fail(&err, "what is no text goes through stdin", CLI_USAGE);
    if (!cli_place(&place, &options->common))
        return CLI_NO_SANDBOX;
    AUTO_FREE char *thread = cli_thread(options->thread);
    const struct grant_request request = {.thread = thread,
                                          .sandbox = options->sandbox,
                                          .scopes = options->scopes,
                                          .ttl_s = options->ttl_s,
                                          .more = options->wish.members};
    random_id(id, "exc");
    struct console_wanted wanted = {.use = SESSION_START,
                                    .input = options->no_stdin ? CONSOLE_NONE : CONSOLE_PIPE,
                                    .id = id,
                                    .command = &command,
                                    .thread = thread,
                                    .owned = true,
                                    .verbose = options->verbose};
    AUTO_GRANT grant = {0};
    if (!grant_get(&grant, &place, &request, &err))
        return wish_fail(&options->wish, &err, CLI_NO_SANDBOX);
    if (options->detach)
        return start_only(&place, &request, &grant, &wanted, options->common.json);
    return run_to_its_end(&place, &request, &grant, &wanted, options);
}

/* ---- in a context ---- */

/* All that comes from stdin. The caller frees. */
static char *read_stdin(size_t *size, struct error *err)
{
    AUTO_TEXT text = {0};
    char block[4096];
    ssize_t got;
    while ((got = read(STDIN_FILENO, block, sizeof block)) > 0 && text.length <= CONTEXT_CODE_MAX_BYTES)
        text_append(&text, block, (size_t)got);
    if (got < 0)
        error_set_errno(err, ERROR_INTERNAL, "read stdin");
    else if (text.length > CONTEXT_CODE_MAX_BYTES)
        error_set(err, ERROR_TOO_LARGE, "code: at most %zu bytes", CONTEXT_CODE_MAX_BYTES);
    *size = text.length;
    return err->kind == ERROR_NONE ? memory_copy(text.data ? text.data : "", text.length) : NULL;
}

/* The code, to be freed; NULL and err. */
static char *load_code(const struct run_options *options, size_t *size, struct error *err)
{
    const char *word = options->rest_count > 0 ? options->rest[0] : NULL;
    if (options->file)
        return fd_read_file(options->file, CONTEXT_CODE_MAX_BYTES, size, err);
    if (word && strcmp(word, "-") == 0)
        return read_stdin(size, err);
    char *code = memory_string(options->code ? options->code : word);
    *size = strlen(code);
    return code;
}

/* A file's ending says what it is in, as it does elsewhere. */
static const char *context_language(const struct run_options *options)
{
    static const char *const NAMES[] = {
        [LANGUAGE_NONE] = NULL, [LANGUAGE_PYTHON] = "python", [LANGUAGE_BASH] = "bash", [LANGUAGE_NODE] = "javascript"};
    if (options->language || !options->file)
        return options->language;
    return NAMES[language_of(options, options->file)];
}

static int run_in_context(const struct run_options *options)
{
    struct error err = {0};
    size_t size = 0;
    AUTO_FREE char *code = load_code(options, &size, &err);
    if (!code)
        return cli_fail(&err, NULL, CLI_USAGE);
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options->common))
        return CLI_NO_SANDBOX;
    AUTO_FREE char *thread = cli_thread(options->thread);
    const struct grant_request request = {.thread = thread,
                                          .sandbox = options->sandbox,
                                          .scopes = options->scopes,
                                          .ttl_s = options->ttl_s,
                                          .more = options->wish.members};
    AUTO_GRANT grant = {0};
    if (!grant_get(&grant, &place, &request, &err))
        return wish_fail(&options->wish, &err, CLI_NO_SANDBOX);
    const struct run_context wanted = {.language = context_language(options),
                                       .name = options->context,
                                       .cwd = options->cwd,
                                       .variables = options->variables.list,
                                       .code = code,
                                       .size = size,
                                       .timeout_s = options->timeout_s,
                                       .save = options->save,
                                       .json = options->common.json,
                                       .verbose = options->verbose};
    return run_context(&wanted, &place, &request, &grant);
}

int run_main(int argc, char *argv[])
{
    struct run_options options = {0};
    int wrong = read_options(&options, argc, argv);
    if (!wrong && is_of_context(&options)) {
        wrong = run_in_context(&options);
    } else if (!wrong) {
        AUTO_FREE char *loaded = NULL;
        AUTO_FREE const char **arguments = memory_array((size_t)options.rest_count + 8, sizeof *arguments);
        wrong = build_arguments(&options, arguments, &loaded);
        if (!wrong)
            wrong = run_arguments(&options, arguments);
    }
    free(options.variables.list);
    wish_done(&options.wish);
    return wrong;
}
