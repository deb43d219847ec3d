/** template.c - `parley template`: what this machine's sandboxes are made of. parley-sandboxd beside us does it, as
 * root. */
#include "clients/cli/cli.h"

#include "shared/base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
    "usage: parley template import FILE [--name NAME]      an archive of `docker save`, an OCI layout (a folder or\n"
    "                                                      a tar of it), or - for stdin\n"
    "       parley template build NAME --suite SUITE       a Debian suite, by debootstrap\n"
    "       parley template ls                             those of this machine\n"
    "       parley template show NAME [--packages]         all of one; what is installed in it\n"
    "       parley template rm NAME                        remove one; sandboxes made of it live on\n\n"
    "Makes what sandboxes begin with, on this machine and as root. `parley templates` lists what you may use,\n"
    "`parley run --template NAME` uses it. What is imported or built is read in a throw-away sandbox.\n\n"
    "  --name NAME        import: 1..40 of a-z 0-9 . _ -, first a letter (default: what the image\n"
    "                     calls itself)\n"
    "  --suite SUITE      build: bookworm, trixie, ...\n"
    "  --mirror URL       build: where packages come from (default http://deb.debian.org/debian)\n"
    "  --include LIST     build: packages beside the smallest set, as a,b,c\n"
    "  --packages         show: the packages; build --packages FILE: more of them, one a line\n"
    "  --max-mb N         MiB that its files may have (default 20480)\n"
    "  --max-entries N    import: entries that its layers may have (default 2000000)\n"
    "  --timeout S        seconds it may take (default 1800)\n"
    "  --quiet            no progress on stderr\n"
    "  --state DIR        the deployment's state folder (default: PARLEY_STATE, /var/lib/parley as root)\n"
    "  --json             one JSON value on stdout\n"
    "  --help             this text\n\n"
    "Examples:\n"
    "  docker save python:3.12-slim | sudo parley template import -\n"
    "  sudo parley template build tools --suite bookworm --include git,jq,ripgrep\n"
    "  sudo parley template show tools --packages --json\n";

static bool is_verb(const char *word)
{
    static const char *const VERBS[] = {"import", "build", "ls", "show", "rm"};
    for (size_t i = 0; i < sizeof VERBS / sizeof *VERBS; i++) {
        if (strcmp(word, VERBS[i]) == 0)
            return true;
    }
    return false;
}

static bool has_word(int argc, char *argv[], const char *word)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], word) == 0)
            return true;
    }
    return false;
}

int template_main(int argc, char *argv[])
{
    struct error err = {0};
    bool wants_help = has_word(argc, argv, "--help");
    if (wants_help && (argc == 2 || !is_verb(argv[1]))) {
        fputs(HELP, stdout);
        return CLI_OK;
    }
    if (argc < 2)
        return cli_usage("template", "import, build, ls, show or rm is wanted");
    if (!is_verb(argv[1]))
        return cli_usage("template", "\"%s\" is none of import, build, ls, show, rm", argv[1]);
    if (geteuid() != 0 && !wants_help) {
        error_set(&err, ERROR_FORBIDDEN, "templates of this machine are root's");
        return cli_fail(&err, "try: sudo parley template ...; `parley templates` lists what you may use", CLI_FAILED);
    }
    AUTO_FREE char *sandboxd = cli_sibling("parley-sandboxd", &err);
    if (sandboxd == NULL)
        return cli_fail(&err, NULL, CLI_FAILED);
    char **words = memory_array((size_t)argc + 2, sizeof *words);
    words[0] = sandboxd;
    for (int i = 0; i < argc; i++)
        words[i + 1] = argv[i];
    fflush(stdout);
    execv(sandboxd, words);
    error_set_errno(&err, ERROR_INTERNAL, "start %s", sandboxd);
    free(words);
    return cli_fail(&err, NULL, CLI_FAILED);
}
