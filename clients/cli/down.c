/** down.c - `parley down`: stops what `parley up` started. */
#include "clients/cli/cli.h"
#include "clients/cli/supervisor.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char HELP[] =
    "usage: parley down [--keep] [--state DIR]\n\n"
    "Stops the negotiator and sandboxd and ends every sandbox of this deployment.\n\n"
    "  --keep             leave the sandboxes running; the next `parley up` adopts them\n" CLI_COMMON_HELP;

static bool stop_planes(const char *state, bool *was_running, struct error *err)
{
    pid_t pid = supervisor_running(state, NULL);
    *was_running = pid != 0;
    if (pid != 0 && !supervisor_stop(state, pid, err))
        return false;
    supervisor_end_leftovers(state);
    return true;
}

static bool purge(const char *state, struct error *err)
{
    AUTO_FREE char *sandboxd = cli_sibling("parley-sandboxd", err);
    if (!sandboxd)
        return false;
    pid_t pid = fork();
    if (pid < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fork");
    if (pid == 0) {
        execl(sandboxd, sandboxd, "--purge", "--log-level", "warn", "--state", state, (char *)NULL);
        _exit(127);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error_set(err, ERROR_INTERNAL, "some sandboxes could not be ended, see above");
    return true;
}

int down_main(int argc, char *argv[])
{
    static const struct option LONG[] = {{"keep", no_argument, NULL, 'k'}, CLI_COMMON_OPTIONS};
    struct cli_common common = {0};
    bool keep = false, was_running = false;
    int option;
    while ((option = getopt_long(argc, argv, "", LONG, NULL)) != -1) {
        if (!cli_common(&common, option, HELP) && option == 'k')
            keep = true;
    }
    if (optind < argc)
        return cli_usage("down", "unexpected word \"%s\"", argv[optind]);
    struct error err = {0};
    AUTO_FREE char *state = cli_state(&common);
    if (access(state, F_OK) != 0) {
        error_set(&err, ERROR_NOT_FOUND, "there is no deployment in %s", state);
        return cli_fail(&err,
                        geteuid() == 0 ? "which one? --state DIR or PARLEY_STATE says"
                                       : "which one? --state DIR or PARLEY_STATE says; root's: sudo parley down",
                        CLI_FAILED);
    }
    struct stat status;
    if (geteuid() != 0 && (stat(state, &status) < 0 || status.st_uid != geteuid()))
        return cli_fail(&(struct error){.kind = ERROR_FORBIDDEN, .message = "this deployment is not yours to stop"},
                        "try: sudo parley down", CLI_FAILED);
    if (!stop_planes(state, &was_running, &err))
        return cli_fail(&err, NULL, CLI_FAILED);
    if (!keep && !purge(state, &err))
        return cli_fail(&err, NULL, CLI_FAILED);
    if (common.json)
        cli_print_json(json_pack("{s:b, s:b}", "was_running", was_running, "sandboxes_kept", keep));
    else
        puts(was_running ? "stopped" : "was not running");
    return CLI_OK;
}
