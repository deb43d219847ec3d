/** main.c - the command table. */
#include "clients/cli/cli.h"
#include "clients/cli/completion.h"

#include "clients/c/call_context.h"

#include "shared/capability/keys.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int completion_main(int argc, char *argv[]);

static const struct cli_command COMMANDS[] = {
    {"up", up_main, "start both planes on this machine (-d: in the background)"},
    {"down", down_main, "stop them and end their sandboxes"},
    {"doctor", doctor_main, "which isolation layers are active, what is missing, how to get it"},
    {"run", run_main, "run code in a sandbox: parley run [--lang python] (FILE | -c CODE | -- CMD...)"},
    {"shell", shell_main, "a terminal in a sandbox; ~. leaves it, it lives on"},
    {"attach", attach_main, "back to a terminal or any other process of a sandbox"},
    {"watch", watch_main, "look at a terminal that somebody drives"},
    {"cp", cp_main, "copy files and folders into a sandbox, out of it, or within it"},
    {"sync", sync_main, "make a folder here and one in a sandbox alike, by what differs"},
    {"cat", cat_main, "write files of a sandbox to stdout"},
    {"put", put_main, "write stdin to a file of a sandbox"},
    {"edit", edit_main, "replace text in a file of a sandbox, or edit it in your editor"},
    {"ls", ls_main, "list sandboxes"},
    {"ps", ps_main, "list the processes of a sandbox"},
    {"kernels", kernels_main, "interpreters of a sandbox that keep their variables: list, new, restart, interrupt, rm"},
    {"top", top_main, "what sandboxes use, as it changes"},
    {"limits", limits_main, "show what a sandbox may use, or change it while it runs"},
    {"net", net_main, "show what a sandbox reaches on the network, or change it while it runs"},
    {"port", port_main, "ports of a sandbox at ports of this machine, until Ctrl-C"},
    {"url", url_main, "a link that opens a port of a sandbox in a browser"},
    {"pause", pause_main, "let sandboxes stand still until they are used again"},
    {"resume", resume_main, "let paused sandboxes go on"},
    {"renew", renew_main, "give sandboxes another end"},
    {"snapshot", snapshot_main, "keep the files of a sandbox as they are now"},
    {"snapshots", snapshots_main, "list and remove snapshots"},
    {"restore", restore_main, "make a sandbox that begins with a snapshot"},
    {"fork", fork_main, "make many sandboxes with the files of one"},
    {"events", events_main, "what happens, as it happens"},
    {"webhooks", webhooks_main, "have events sent to a URL, signed"},
    {"keys", keys_main, "make, list, change, rotate and remove API keys"},
    {"volumes", volumes_main, "list and remove named volumes"},
    {"templates", templates_main, "list what a sandbox may begin with"},
    {"template", template_main, "import, build, show, remove what sandboxes of this machine begin with (root)"},
    {"rm", rm_main, "end a sandbox"},
    {"token", token_main, "show, decode, refresh or narrow a capability"},
    {"share", share_main, "let somebody else into a thread's sandbox: a link to watch, or a named principal"},
    {"shares", shares_main, "list who else has a way into it"},
    {"unshare", unshare_main, "end shares"},
    {"revoke", revoke_main, "take tokens out of force before they end"},
    {"revocations", revocations_main, "list revocations, see whether one is in force everywhere"},
    {"audit", audit_main, "who did what with which token; verify and export the chain"},
    {"policy", policy_main, "what roles, agents and principals may have: show, set, and why not"},
    {"incident", incident_main, "stop what is suspected at once: freeze, revoke, pause; gather evidence; let go"},
    {"nodes", nodes_main, "list, add, drain, rekey the machines that host sandboxes"},
    {"tls", tls_main, "certificates of the deployment's own: init, renew, issue, show"},
    {"enrol", enrol_main, "give sandboxd of this machine its key, where `parley up` does not"},
    {"completion", completion_main, "what completes all this in bash, zsh and fish"},
};

static int completion_main(int argc, char *argv[])
{
    return completion_run(COMMANDS, sizeof COMMANDS / sizeof *COMMANDS, argc, argv);
}

static void print_help(FILE *to)
{
    fprintf(to, "parley - a sandbox for every agent thread, and a capability that can leak without ruin\n\n"
                "usage: parley COMMAND [options]\n\n");
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++)
        fprintf(to, "  %-12s %s\n", COMMANDS[i].name, COMMANDS[i].help);
    fprintf(to, "\n`parley COMMAND --help` tells more. Start here:\n"
                "  sudo parley up -d && parley run -c 'print(6 * 7)'\n");
}

/* A closed standard stream would become whatever is opened next. */
static void open_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) // NOLINT: these are meant to be inherited
            exit(CLI_FAILED);
    }
}

/* Output that could not be written must not pass for written. */
static int written(int status, int failed)
{
    struct error err = {0};
    return status != CLI_OK || cli_flush(&err) ? status : cli_fail(&err, NULL, failed);
}

int main(int argc, char *argv[])
{
    open_standard_streams();
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? CLI_USAGE : CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("parley " PARLEY_VERSION);
        return CLI_OK;
    }
    signal(SIGPIPE, SIG_IGN);
    keys_start();
    call_context_start(getenv("TRACEPARENT"), getenv("TRACESTATE"));
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return CLI_FAILED;
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++) {
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return written(COMMANDS[i].main(argc - 1, argv + 1),
                           COMMANDS[i].main == run_main ? CLI_NO_SANDBOX : CLI_FAILED);
    }
    fprintf(stderr, "parley: no command \"%s\"; `parley --help` lists them\n", argv[1]);
    return CLI_USAGE;
}
