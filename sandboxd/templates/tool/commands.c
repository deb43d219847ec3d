#include "sandboxd/templates/tool/commands.h"

#include "sandboxd/templates/tool/import.h"
#include "sandboxd/templates/tool/packages_file.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_FAILED = 1, EXIT_WRONG = 2 };

/* --- what all share --- */

void command_option(struct command *command, int option, const char *help)
{
    if (option == COMMAND_JSON)
        command->is_json = true;
    else if (option == COMMAND_HELP)
        exit(fputs(help, stdout) < 0 ? EXIT_FAILED : 0);
    else if (option != COMMAND_STATE) /* read before */
        exit(EXIT_WRONG);
}

int command_usage(const char *help, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("parley template: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n%.*s\n", (int)strcspn(help, "\n"), help);
    return EXIT_WRONG;
}

int command_fail(const struct command *command, const struct error *err)
{
    fprintf(stderr, "parley template: %s\n", err->message);
    if (command->is_json) {
        json_t *value = json_pack("{s:{s:s, s:s}}", "error", "code", error_code(err->kind), "message", err->message);
        json_dumpf(value, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(value);
    }
    return EXIT_FAILED;
}

uint64_t command_number(const char *option, const char *text, uint64_t min, uint64_t max)
{
    uint64_t value = 0;
    if (text_parse_u64(text, strlen(text), max, &value) && value >= min)
        return value;
    fprintf(stderr, "parley template: --%s must be a number of %" PRIu64 "..%" PRIu64 "\n", option, min, max);
    exit(EXIT_WRONG);
}

/* --- showing --- */

static json_t *list_of(const char *texts)
{
    json_t *list = json_array();
    for (const char *text = texts; *text; text += strlen(text) + 1)
        json_array_append_new(list, json_string(text));
    return list;
}

json_t *command_describe(const struct template *shown)
{
    const struct template_record *record = &shown->record;
    char created[CLOCK_TEXT_BYTES];
    clock_format(created, record->created_ms);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:s, s:o, s:o}", "name", record->name,
                     "version", shown->version, "kind", record->kind == TEMPLATE_WHOLE ? "whole" : "host", "digest",
                     record->digest, "source", record->source, "created_at", created, "size_bytes",
                     (json_int_t)record->size_bytes, "files", (json_int_t)record->files, "uid", (int)record->uid, "gid",
                     (int)record->gid, "workdir", record->workdir, "env", list_of(record->env), "entrypoint",
                     list_of(record->entrypoint));
}

static void print_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(value);
}

/* Variables may hold anything: shown as JSON texts. */
static void print_list(const char *label, const char *texts)
{
    json_t *list = list_of(texts);
    AUTO_FREE char *text = json_dumps(list, JSON_ENSURE_ASCII);
    printf("%-12s%s\n", label, text ? text : "");
    json_decref(list);
}

void command_print(const struct command *command, const struct template *shown)
{
    const struct template_record *record = &shown->record;
    char created[CLOCK_TEXT_BYTES];
    if (command->is_json) {
        print_json(command_describe(shown));
        return;
    }
    clock_format(created, record->created_ms);
    printf("name        %s\nversion     %s\ndigest      %s\nsource      %s\ncreated     %s\n", record->name,
           shown->version, record->digest[0] ? record->digest : "-", record->source, created);
    if (record->kind == TEMPLATE_WHOLE)
        printf("size        %" PRIu64 " MiB in %" PRIu64 " files\n", record->size_bytes >> 20, record->files);
    printf("user        %" PRIu32 ":%" PRIu32 "\nworkdir     %s\n", record->uid, record->gid, record->workdir);
    print_list("env", record->env);
    print_list("entrypoint", record->entrypoint);
}

static bool print_packages(const struct command *command, const struct template *shown, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/%s", command->folder, shown->version);
    json_t *file = packages_file_read(path, err);
    size_t i;
    json_t *package;
    if (file == NULL)
        return false;
    if (command->is_json) {
        json_t *all = command_describe(shown);
        json_object_update(all, file);
        json_decref(file);
        print_json(all);
        return true;
    }
    json_array_foreach (json_object_get(file, "packages"), i, package) {
        printf("%s %s %s\n", json_string_value(json_object_get(package, "name")),
               json_string_value(json_object_get(package, "version")),
               json_string_value(json_object_get(package, "architecture")));
    }
    json_decref(file);
    return true;
}

/* --- the commands --- */

int command_ls(struct command *command, int argc, char *argv[])
{
    static const char HELP[] =
        "usage: parley template ls [options]\n\nThe templates of this node.\n\n" COMMAND_HELP_TEXT;
    static const struct option OPTIONS[] = {COMMAND_OPTIONS};
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;)
        command_option(command, option, HELP);
    if (optind != argc)
        return command_usage(HELP, "too many words");
    struct template *list = NULL;
    size_t count = templates_list(command->folder, TEMPLATES_MAX, &list);
    json_t *all = json_array();
    if (!command->is_json)
        printf("%-24s %-8s %-8s %-20s %s\n", "NAME", "MIB", "FILES", "CREATED", "SOURCE");
    for (size_t i = 0; i < count; i++) {
        const struct template_record *record = &list[i].record;
        char created[CLOCK_TEXT_BYTES];
        clock_format(created, record->created_ms);
        json_array_append_new(all, command_describe(&list[i]));
        if (!command->is_json)
            printf("%-24s %-8" PRIu64 " %-8" PRIu64 " %-20.19s %s\n", record->name, record->size_bytes >> 20,
                   record->files, created, record->source);
    }
    free(list);
    if (command->is_json)
        print_json(json_pack("{s:O}", "templates", all));
    json_decref(all);
    return 0;
}

int command_show(struct command *command, int argc, char *argv[])
{
    static const char HELP[] = "usage: parley template show NAME [options]\n\nAll of a template.\n\n"
                               "  --packages         the packages installed in it, for scanners (name, version, "
                               "architecture)\n" COMMAND_HELP_TEXT;
    static const struct option OPTIONS[] = {{"packages", no_argument, NULL, 'p'}, COMMAND_OPTIONS};
    bool packages = false;
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        if (option == 'p')
            packages = true;
        else
            command_option(command, option, HELP);
    }
    if (optind + 1 != argc)
        return command_usage(HELP, "one NAME is wanted");
    struct error err = {0};
    struct template found;
    if (!templates_find(command->folder, argv[optind], &found, &err))
        return command_fail(command, &err);
    if (packages)
        return print_packages(command, &found, &err) ? 0 : command_fail(command, &err);
    command_print(command, &found);
    return 0;
}

int command_rm(struct command *command, int argc, char *argv[])
{
    static const char HELP[] = "usage: parley template rm NAME [options]\n\n"
                               "Removes a template. Sandboxes and snapshots that were made of it keep what they need;\n"
                               "parley-sandboxd takes the rest off the disk.\n\n" COMMAND_HELP_TEXT;
    static const struct option OPTIONS[] = {COMMAND_OPTIONS};
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;)
        command_option(command, option, HELP);
    if (optind + 1 != argc)
        return command_usage(HELP, "one NAME is wanted");
    struct error err = {0};
    if (!templates_remove(command->folder, argv[optind], &err))
        return command_fail(command, &err);
    if (command->is_json)
        print_json(json_pack("{s:s}", "removed", argv[optind]));
    else
        printf("template %s removed\n", argv[optind]);
    return 0;
}

int command_import(struct command *command, int argc, char *argv[])
{
    static const char HELP[] =
        "usage: parley template import FILE [--name NAME] [options]\n\n"
        "FILE is an archive of `docker save`, an OCI image layout (a folder or a tar of it), or - for stdin.\n"
        "A tar may be packed by gzip, zstd, xz or bzip2. Every digest is verified.\n\n"
        "  --name NAME        1..40 of a-z 0-9 . _ -, first a letter (default: what the image calls itself)\n"
        "  --max-mb N         MiB that its files may have in all (default 20480)\n"
        "  --max-entries N    entries that its layers may have in all (default 2000000)\n"
        "  --timeout S        seconds it may take (default 1800)\n"
        "  --quiet            no progress on stderr\n" COMMAND_HELP_TEXT;
    static const struct option OPTIONS[] = {{"name", required_argument, NULL, 'n'},
                                            {"max-mb", required_argument, NULL, 'm'},
                                            {"max-entries", required_argument, NULL, 'e'},
                                            {"timeout", required_argument, NULL, 't'},
                                            {"quiet", no_argument, NULL, 'q'},
                                            COMMAND_OPTIONS};
    struct import_options options = {.limits = {.bytes = 20480ULL << 20, .entries = 2000000}, .timeout_s = 1800};
    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        if (option == 'n')
            options.name = optarg;
        else if (option == 'm')
            options.limits.bytes = command_number("max-mb", optarg, 1, 1 << 24) << 20;
        else if (option == 'e')
            options.limits.entries = command_number("max-entries", optarg, 1, 100000000);
        else if (option == 't')
            options.timeout_s = (unsigned)command_number("timeout", optarg, 1, 86400);
        else if (option == 'q')
            options.is_quiet = true;
        else
            command_option(command, option, HELP);
    }
    if (optind + 1 != argc)
        return command_usage(HELP, "one FILE is wanted");
    if (options.name && (!template_is_name(options.name) || strcmp(options.name, "base") == 0))
        return command_usage(HELP, "--name: 1..40 of a-z 0-9 . _ -, beginning with a letter; not auto, base, snapshot");
    options.file = argv[optind];
    struct error err = {0};
    struct template made;
    if (!import_run(command->folder, &options, &made, &err))
        return command_fail(command, &err);
    command_print(command, &made);
    return 0;
}
