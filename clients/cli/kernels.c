/** kernels.c - `parley kernels`: the contexts of a thread's sandbox. */
#include "clients/cli/cli.h"

#include "clients/c/remote_kernel.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char HELP[] =
    "usage: parley kernels [list] [--thread T]\n"
    "       parley kernels new [NAME] [--lang LANG] [--cwd DIR] [--env NAME=VALUE] [--thread T]\n"
    "       parley kernels restart | interrupt | rm NAME... [--thread T]\n"
    "       parley kernels specs [--thread T]\n\n"
    "Contexts are interpreters in the thread's sandbox that keep their variables from one `parley run --context "
    "NAME`\n"
    "to the next.\n\n"
    "  list               those that are there (the default)\n"
    "  new                start one and print its name; the same name again finds it\n"
    "  restart            end it and start it anew, without its variables\n"
    "  interrupt          interrupt what it runs\n"
    "  rm                 end it\n"
    "  specs              the languages there are, Jupyter kernelspecs of the template among them\n\n"
    "  --lang LANG        python (default), bash, javascript, typescript, jupyter:SPEC\n"
    "  --cwd DIR          folder inside (default: the template's)\n"
    "  --env NAME=VALUE   set a variable; repeatable\n"
    "  --thread T         the conversation (default: the current folder's own)\n" CLI_COMMON_HELP;

struct kernels_options {
    struct cli_common common;
    const char *thread, *language, *cwd;
    struct cli_variables variables;
    char **names;
    int count;
};

/* What a word does: once, or for each name. */
struct doing {
    const char *word;
    bool each;
    bool (*work)(const struct kernels_options *options, const struct grant *grant, const char *name, json_t **reply,
                 struct error *err);
    void (*print)(const json_t *reply);
};

/* ---- the words ---- */

static bool do_list(const struct kernels_options *options, const struct grant *grant, const char *name, json_t **reply,
                    struct error *err)
{
    (void)options, (void)name;
    return remote_kernel_list(grant, reply, err);
}

static bool do_specs(const struct kernels_options *options, const struct grant *grant, const char *name, json_t **reply,
                     struct error *err)
{
    (void)options, (void)name;
    return remote_kernel_specs(grant, reply, err);
}

static bool do_new(const struct kernels_options *options, const struct grant *grant, const char *name, json_t **reply,
                   struct error *err)
{
    const struct remote_kernel_wanted wanted = {
        .language = options->language, .id = name, .cwd = options->cwd, .variables = options->variables.list};
    return remote_kernel_create(grant, &wanted, reply, err);
}

static bool do_restart(const struct kernels_options *options, const struct grant *grant, const char *name,
                       json_t **reply, struct error *err)
{
    (void)options;
    return remote_kernel_restart(grant, name, reply, err);
}

static bool do_interrupt(const struct kernels_options *options, const struct grant *grant, const char *name,
                         json_t **reply, struct error *err)
{
    (void)options;
    return remote_kernel_interrupt(grant, name, reply, err);
}

static bool do_remove(const struct kernels_options *options, const struct grant *grant, const char *name,
                      json_t **reply, struct error *err)
{
    (void)options;
    if (!remote_kernel_remove(grant, name, err))
        return false;
    *reply = json_pack("{s:s}", "id", name);
    return true;
}

static void print_row(const json_t *kernel)
{
    char age[16];
    AUTO_FREE char *id = cli_member(kernel, "id");
    AUTO_FREE char *language = cli_member(kernel, "language");
    AUTO_FREE char *state = cli_member(kernel, "state");
    AUTO_FREE char *count = cli_member(kernel, "execution_count");
    AUTO_FREE char *about = cli_member(kernel, json_object_get(kernel, "reason") ? "reason" : "implementation");
    cli_print_age(age, json_string_value(json_object_get(kernel, "created_at")));
    printf("%-26s %-14s %-8s %5s %-6s %s\n", id, language, state, count, age, about);
}

static void print_list(const json_t *reply)
{
    size_t index;
    const json_t *kernel;
    printf("%-26s %-14s %-8s %5s %-6s %s\n", "NAME", "LANGUAGE", "STATE", "RUNS", "AGE", "ABOUT");
    json_array_foreach (json_object_get(reply, "kernels"), index, kernel)
        print_row(kernel);
}

static void print_specs(const json_t *reply)
{
    size_t index;
    const json_t *spec;
    json_array_foreach (json_object_get(reply, "kernelspecs"), index, spec) {
        AUTO_FREE char *language = cli_member(spec, "language");
        AUTO_FREE char *shown = cli_member(spec, "display_name");
        printf("%-26s %s\n", language, shown);
    }
}

static void print_id(const json_t *reply)
{
    AUTO_FREE char *id = cli_member(reply, "id");
    puts(id);
}

static const struct doing DOINGS[] = {
    {"list", false, do_list, print_list},    {"ls", false, do_list, print_list},
    {"specs", false, do_specs, print_specs}, {"new", false, do_new, print_id},
    {"restart", true, do_restart, print_id}, {"interrupt", true, do_interrupt, print_id},
    {"rm", true, do_remove, print_id}};

static const struct doing *find(const char *word)
{
    for (size_t i = 0; i < sizeof DOINGS / sizeof *DOINGS; i++)
        if (strcmp(DOINGS[i].word, word) == 0)
            return &DOINGS[i];
    return NULL;
}

/* ---- doing it ---- */

/* The grant is that which is there; one that is refused is replaced. A lost context is GONE, too: asking anew is
 * harmless. */
static bool do_with_grant(const struct doing *doing, const struct kernels_options *options, const struct place *place,
                          const char *name, json_t **reply, struct error *err)
{
    AUTO_FREE char *thread = cli_thread(options->thread);
    struct grant_request request = {.thread = thread, .mode = doing->work == do_new ? NULL : "attach_only"};
    AUTO_GRANT grant = {0};
    if (!grant_get(&grant, place, &request, err))
        return false;
    bool negotiated = false, done;
    do {
        cli_tell_grant(&grant, false);
        done = doing->work(options, &grant, name, reply, err);
    } while (!done && cli_renew_spent(&grant, place, &request, &negotiated, err));
    return done;
}

static int do_one(const struct doing *doing, const struct kernels_options *options, const struct place *place,
                  const char *name)
{
    struct error err = {0};
    json_t *reply = NULL;
    bool done = do_with_grant(doing, options, place, name, &reply, &err);
    if (done && options->common.json)
        cli_print_json(json_incref(reply));
    else if (done)
        doing->print(reply);
    json_decref(reply);
    return done ? CLI_OK : cli_fail(&err, NULL, CLI_FAILED);
}

static int do_all(const struct doing *doing, const struct kernels_options *options)
{
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options->common))
        return CLI_FAILED;
    if (!doing->each)
        return do_one(doing, options, &place, options->count > 0 ? options->names[0] : NULL);
    int status = CLI_OK;
    for (int i = 0; i < options->count; i++) {
        int one = do_one(doing, options, &place, options->names[i]);
        status = status == CLI_OK ? one : status;
    }
    return status;
}

static int check_names(const struct doing *doing, const struct kernels_options *options)
{
    int most = doing->work == do_new ? 1 : doing->each ? INT32_MAX : 0;
    if (doing->each && options->count == 0)
        return cli_usage("kernels", "%s which? `parley kernels` lists them", doing->word);
    if (doing->each && options->count > 1 && options->common.json)
        return cli_usage("kernels", "--json is for one name at a time");
    return options->count > most ? cli_usage("kernels", "unexpected word \"%s\"", options->names[most]) : 0;
}

int kernels_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"thread", required_argument, NULL, 't'},
                                         {"lang", required_argument, NULL, 'l'},
                                         {"cwd", required_argument, NULL, 'C'},
                                         {"env", required_argument, NULL, 'e'},
                                         CLI_COMMON_OPTIONS};
    struct kernels_options options = {0};
    int option, wrong = 0;
    while (!wrong && (option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (cli_common(&options.common, option, HELP))
            continue;
        if (option == 't')
            options.thread = optarg;
        else if (option == 'l')
            options.language = optarg;
        else if (option == 'C')
            options.cwd = optarg;
        else
            wrong = cli_add_variable(&options.variables, "kernels", optarg);
    }
    const char *word = optind < argc ? argv[optind++] : "list";
    const struct doing *doing = find(word);
    options.names = argv + optind;
    options.count = argc - optind;
    if (!wrong && !doing)
        wrong = cli_usage("kernels", "unexpected word \"%s\": list, new, restart, interrupt, rm or specs", word);
    if (!wrong)
        wrong = check_names(doing, &options);
    if (!wrong)
        wrong = do_all(doing, &options);
    free(options.variables.list);
    return wrong;
}
