/** completion.c - `parley completion SHELL` prints a script for bash, zsh or fish; all three ask `parley completion
 * words ...` for what may follow, which reads it out of the commands' own --help and asks the negotiator for names. */
#include "clients/cli/completion.h"

#include "clients/cli/files_session.h"

#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley completion bash | zsh | fish\n"
    "       parley completion words WORD...\n\n"
    "Prints what completes parley's commands, options, names (sandboxes, snapshots, templates,\n"
    "volumes) and :PATHs in your shell:\n\n"
    "  bash   source <(parley completion bash)        in ~/.bashrc\n"
    "  zsh    source <(parley completion zsh)         in ~/.zshrc, after compinit\n"
    "  fish   parley completion fish | source         in ~/.config/fish/config.fish\n\n"
    "`words` prints what the last WORD, which may be empty, could become, a line each.\n\n" CLI_COMMON_HELP;

/* clang-format off */
static const char BASH[] =
    "# A name may be anything, also a command: what is put on the line is quoted.\n"
    "_parley() {\n"
    "    local rest=${COMP_LINE:0:COMP_POINT} words=() quote= breaks=${COMP_WORDBREAKS//[^:=@]/} prefix= word i\n"
    "    for ((i = 0; i <= COMP_CWORD; i++)); do # bash breaks words at colons; parley does not\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ $i -eq 0 || $rest == [[:space:]]* ]]; then\n"
    "            words+=('')\n"
    "            rest=${rest#\"${rest%%[![:space:]]*}\"}\n"
    "        fi\n"
    "        ((i < COMP_CWORD)) || word=$rest\n"
    "        words[-1]+=$word\n"
    "        rest=${rest#\"$word\"}\n"
    "    done\n"
    "    word=${words[-1]}\n"
    "    case $word in\n"
    "    [\\'\\\"]*) quote=${word:0:1} word=${word:1} ;;\n"
    "    *) word=${word//\\\\/} ;;\n"
    "    esac\n"
    "    words[-1]=$word\n"
    "    [[ -z $breaks || $quote ]] || prefix=${word%\"${word##*[$breaks]}\"}\n"
    "    mapfile -t words < <(parley completion words \"${words[@]:1}\" 2>/dev/null)\n"
    "    [[ ${words[0]-} != */ ]] || compopt -o nospace\n"
    "    ((${#words[@]})) || compopt -o default\n"
    "    COMPREPLY=()\n"
    "    for word in \"${words[@]}\"; do\n"
    "        case $quote in\n"
    "        \"'\") [[ $word == *\\'* ]] || COMPREPLY+=(\"$word\") ;;\n"
    "        '\"') [[ $word == *[\\\"\\$\\`\\\\!]* ]] || COMPREPLY+=(\"$word\") ;;\n"
    "        *) printf -v word %q \"${word#\"$prefix\"}\" && COMPREPLY+=(\"$word\") ;;\n"
    "        esac\n"
    "    done\n"
    "}\n"
    "complete -F _parley parley\n";

static const char ZSH[] =
    "_parley() {\n"
    "    local -a found\n"
    "    found=(\"${(@f)$(parley completion words \"${(@Q)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
    "    found=(${found:#})\n"
    "    if (( ${#found} )); then\n"
    "        compadd -S '' -- ${(M)found:#*/}\n"
    "        compadd -- ${found:#*/}\n"
    "    else\n"
    "        _files\n"
    "    fi\n"
    "}\n"
    "compdef _parley parley\n";

static const char FISH[] =
    "function __parley_words\n"
    "    set -l words (commandline -opc)\n"
    "    set -l word (commandline -ct | string replace -r '^[\\'\"]' '' | string unescape)\n"
    "    parley completion words $words[2..-1] \"$word\" 2>/dev/null\n"
    "end\n"
    "complete -c parley -f -a '(__parley_words)'\n"
    "complete -c parley -n 'not __parley_words | count >/dev/null' -F\n";
/* clang-format on */

/* ---- words ---- */

static bool starts(const char *candidate, const char *word)
{
    return strncmp(candidate, word, strlen(word)) == 0;
}

/* What `parley COMMAND --help` prints: the one place where options are told. The caller frees. */
static char *help_of(const struct cli_command *command)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return NULL;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        char *arguments[] = {(char *)(uintptr_t)command->name, (char *)(uintptr_t) "--help", NULL};
        dup2(ends[1], STDOUT_FILENO);
        optind = 0;
        exit(command->main(2, arguments));
    }
    close(ends[1]);
    struct text text = {0};
    char block[4096];
    for (ssize_t got; pid > 0 && (got = read(ends[0], block, sizeof block)) > 0;)
        text_append(&text, block, (size_t)got);
    close(ends[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return text.data;
}

/* Each option that begins a line of the help. */
static void print_options(const struct cli_command *command, const char *word)
{
    AUTO_FREE char *help = help_of(command);
    for (char *line = help; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t indent = strspn(line, " ");
        if (indent == 0 || line[indent] != '-')
            continue;
        size_t end = strcspn(line, "\n");
        for (char *at = line + indent; at < line + end && *at == '-'; at += strspn(at, ", ")) {
            size_t length = strcspn(at, " ,=\n");
            AUTO_FREE char *option = memory_copy(at, length + 1);
            option[length] = 0;
            if (starts(option, word))
                puts(option);
            at += length;
            if (*at != ',')
                break;
        }
    }
}

/* Things with names that the negotiator lists. */
static const struct named {
    const char *path, *member;
} SANDBOXES = {"/sandboxes", "sandboxes"}, SNAPSHOTS = {"/snapshots", "snapshots"}, VOLUMES = {"/volumes", "volumes"},
  TEMPLATES = {"/templates", "templates"};

/* `before` and the name, `after` behind it. */
static void print_names(const struct named *named, const char *before, const char *word, const char *after)
{
    AUTO_PLACE place = {0};
    struct error ignored = {0};
    const struct negotiator_list wanted = {
        .path = named->path, .member = named->member, .next = "next_cursor", .most = 200};
    if (!place_load(&place, NULL, &ignored))
        return;
    json_t *list = negotiator_list(&place, &wanted, &ignored);
    size_t i;
    json_t *one;
    json_array_foreach (list, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        AUTO_FREE char *safe = cli_safe(name); /* one that differs would steer the terminal */
        if (name && *name && starts(name, word) && text_equal(safe, name))
            printf("%s%s%s\n", before, name, after);
    }
    json_decref(list);
}

/* Those of some words, with blanks between, that begin so. */
static void print_some(const char *words, const char *before, const char *word)
{
    AUTO_FREE char *copy = memory_string(words);
    char *rest = copy;
    for (const char *one; (one = strsep(&rest, " ")) != NULL;) {
        if (starts(one, word))
            printf("%s%s\n", before, one);
    }
}

/* What an option's value may be. */
static const struct value {
    const char *option;
    const struct named *named; /* NULL: */
    const char *words;
} VALUES[] = {{"--sandbox", &SANDBOXES, NULL},
              {"--template", &TEMPLATES, NULL},
              {"--volume", &VOLUMES, NULL},
              {"--on-idle", NULL, "pause stop"},
              {"--isolation", NULL, "auto namespaces gvisor microvm"},
              {"--user", NULL, "root"},
              {"--role", NULL, "viewer user admin"},
              {"--lang", NULL, "python bash node javascript typescript"}};

static const struct value *find_value(const char *option, size_t length)
{
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++) {
        if (strlen(VALUES[i].option) == length && memcmp(VALUES[i].option, option, length) == 0)
            return &VALUES[i];
    }
    return NULL;
}

static void print_values(const struct value *value, const char *before, const char *word)
{
    if (value->words) {
        print_some(value->words, before, word);
        return;
    }
    print_names(value->named, before, word, value->named == &VOLUMES ? ":/" : "");
    if (value->named == &TEMPLATES) {
        static const char SNAPSHOT[] = "snapshot:";
        AUTO_FREE char *with = memory_printf("%s%s", before, SNAPSHOT);
        if (starts(word, SNAPSHOT))
            print_names(&SNAPSHOTS, with, word + strlen(SNAPSHOT), "");
        else if (starts(SNAPSHOT, word))
            puts(with);
    }
}

/* The words of a command that are no options: what follows its name, or its verb. */
static const struct operands {
    const char *command, *verb; /* verb NULL: right behind the command */
    const struct named *named;
    const char *words; /* also these */
} OPERANDS[] = {{"rm", NULL, &SANDBOXES, NULL},
                {"ps", NULL, &SANDBOXES, NULL},
                {"top", NULL, &SANDBOXES, NULL},
                {"limits", NULL, &SANDBOXES, NULL},
                {"net", NULL, NULL, "allow none public"},
                {"pause", NULL, &SANDBOXES, NULL},
                {"resume", NULL, &SANDBOXES, NULL},
                {"renew", NULL, &SANDBOXES, NULL},
                {"fork", NULL, &SANDBOXES, NULL},
                {"snapshot", NULL, &SANDBOXES, NULL},
                {"restore", NULL, &SNAPSHOTS, NULL},
                {"snapshots", "rm", &SNAPSHOTS, NULL},
                {"snapshots", NULL, NULL, "ls rm"},
                {"volumes", "rm", &VOLUMES, NULL},
                {"volumes", NULL, NULL, "ls rm"},
                {"kernels", NULL, NULL, "interrupt list new restart rm specs"},
                {"keys", NULL, NULL, "add ls rm rotate set show"},
                {"webhooks", NULL, NULL, "add disable enable ls rm rotate show test"},
                {"templates", NULL, NULL, "ls"},
                {"template", "rm", &TEMPLATES, NULL},
                {"policy", NULL, NULL, "set show why"},
                {"template", "show", &TEMPLATES, NULL},
                {"template", NULL, NULL, "build import ls rm show"}};

static void print_operands(const char *command, int argc, char *const *words)
{
    for (size_t i = 0; i < sizeof OPERANDS / sizeof *OPERANDS; i++) {
        const struct operands *operands = &OPERANDS[i];
        bool has_verb = argc > 2 && operands->verb && strcmp(words[1], operands->verb) == 0;
        if (strcmp(operands->command, command) != 0 || (operands->verb && !has_verb))
            continue;
        if (operands->named)
            print_names(operands->named, "", words[argc - 1], "");
        else if (argc == 2)
            print_some(operands->words, "", words[1]);
        return;
    }
}

/* The value of a long option among the words before the last one; NULL. */
static const char *value_of(const char *option, int argc, char *const *words)
{
    size_t length = strlen(option);
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(words[i], option) == 0 && i + 2 < argc)
            return words[i + 1];
        if (strncmp(words[i], option, length) == 0 && words[i][length] == '=')
            return words[i] + length + 1;
    }
    return NULL;
}

struct path_words {
    const char *before; /* as it was typed, up to the last slash (or colon) */
    const char *start;  /* of the name that is being typed */
};

static bool print_path(void *cookie, const struct remote_entry *entry, struct error *err)
{
    const struct path_words *words = cookie;
    (void)err;
    AUTO_FREE char *safe = cli_safe(entry->path); /* one that differs would steer the terminal */
    if (*entry->path && starts(entry->path, words->start) && text_equal(safe, entry->path))
        printf("%s%s%s\n", words->before, entry->path, entry->kind == REMOTE_FOLDER ? "/" : "");
    return true;
}

/* Names in the folder that ":PATH" has come to, when there is a sandbox. */
static void print_paths(const char *word, const char *thread)
{
    const char *slash = strrchr(word, '/'), *colon = strchr(word, ':');
    const char *start = (slash ? slash : colon) + 1;
    AUTO_FREE char *before = memory_copy(word, strlen(word) + 1);
    before[start - word] = 0;
    AUTO_FILES_NAME folder = {0};
    AUTO_FILES_SESSION session = {0};
    struct error ignored = {0};
    const struct files_options options = {.quiet = true, .thread = thread, .attach_only = true};
    struct path_words words = {.before = before, .start = start};
    if (!files_name_parse(&folder, before, &ignored) ||
        !files_session_open(&session, &options, folder.sandbox, &ignored))
        return;
    (void)!remote_files_list(session.files, folder.path, 1, print_path, &words, &ignored);
}

static const struct cli_command *find(const struct cli_command *commands, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static int print_words(const struct cli_command *commands, size_t count, int argc, char *const *words)
{
    const char *word = argc > 0 ? words[argc - 1] : "", *before = argc > 1 ? words[argc - 2] : "";
    if (argc <= 1) {
        for (size_t i = 0; i < count; i++) {
            if (starts(commands[i].name, word))
                puts(commands[i].name);
        }
        return CLI_OK;
    }
    const struct cli_command *command = find(commands, count, words[0]);
    if (!command)
        return CLI_OK;
    size_t option = strcspn(word, "=");
    const struct value *value = find_value(before, strlen(before));
    const struct value *joined = word[option] ? find_value(word, option) : NULL;
    if (value) {
        print_values(value, "", word);
    } else if (joined) {
        AUTO_FREE char *start = memory_printf("%s=", joined->option);
        print_values(joined, start, word + option + 1);
    } else if (word[0] == '-') {
        print_options(command, word);
    } else if (strcspn(word, "/") > strcspn(word, ":")) {
        print_paths(word, value_of("--thread", argc, words));
    } else {
        print_operands(command->name, argc, words);
    }
    return CLI_OK;
}

int completion_run(const struct cli_command *commands, size_t count, int argc, char *argv[])
{
    static const struct option LONG[] = {CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "words") == 0)
        return print_words(commands, count, argc - 2, argv + 2);
    for (int option; (option = getopt_long(argc, argv, "", LONG, NULL)) != -1;)
        (void)cli_common(&common, option, HELP);
    const char *script = strcmp(what, "bash") == 0   ? BASH
                         : strcmp(what, "zsh") == 0  ? ZSH
                         : strcmp(what, "fish") == 0 ? FISH
                                                     : NULL;
    if (!script || argc != 2)
        return cli_usage("completion", "for which shell? bash, zsh or fish");
    fputs(script, stdout);
    return CLI_OK;
}
