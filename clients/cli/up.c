/** up.c - `parley up`: both planes on this machine, and the CLI pointed at them. */
#include "clients/cli/authority.h"
#include "clients/cli/cli.h"
#include "clients/cli/supervisor.h"

#include "clients/c/call.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

static const char HELP[] =
    "usage: parley up [-d] [--port N] [--state DIR]\n\n"
    "Starts the negotiator on port N (default 8700) and sandboxd on N+1, both on 127.0.0.1, restarts what dies, and\n"
    "writes the CLI's config.json when there is none. With STATE/tls (`parley tls init`) both speak TLS. As root\n"
    "(sudo); or as an ordinary user with subordinate ids and cgroups of its own, then rootless:\n"
    "`parley doctor` says what is missing. Again: harmless.\n\n"
    "  -d                 in the background; logs go to STATE/log/\n"
    "  --port N           1024..65534\n" CLI_COMMON_HELP;

static const unsigned READY_WITHIN_MS = 30000;

struct up_options {
    struct cli_common common;
    uint16_t port;
    bool port_given, background;
};

static int read_options(struct up_options *options, int argc, char *argv[])
{
    static const struct option LONG[] = {{"port", required_argument, NULL, 'p'}, CLI_COMMON_OPTIONS};
    int option;
    while ((option = getopt_long(argc, argv, "d", LONG, NULL)) != -1) {
        uint64_t port;
        if (cli_common(&options->common, option, HELP))
            continue;
        if (option == 'd')
            options->background = true;
        else if (text_parse_u64(optarg, strlen(optarg), 65534, &port) && port >= 1024)
            options->port = (uint16_t)port, options->port_given = true;
        else
            return cli_usage("up", "--port wants 1024 to 65534, not \"%s\"", optarg);
    }
    return optind < argc ? cli_usage("up", "unexpected word \"%s\"", argv[optind]) : 0;
}

static bool is_ready(const struct supervisor *supervisor, unsigned offset, struct error *err)
{
    AUTO_FREE char *plane = supervisor_url(supervisor, offset);
    AUTO_FREE char *url = memory_printf("%s/readyz", plane);
    struct call call = {.method = "GET", .url = url, .timeout_ms = 2000};
    return call_json(&call, NULL, NULL, err);
}

static bool wait_ready(const struct supervisor *supervisor, struct error *err)
{
    uint64_t until = clock_boot_ns() + READY_WITHIN_MS * 1000000ULL;
    bool started = false; /* it takes a moment until the supervisor is there, and then it must stay */
    for (;;) {
        *err = (struct error){0};
        if (is_ready(supervisor, 0, err) && is_ready(supervisor, 1, err))
            return true;
        if (clock_boot_ns() > until || (started && !supervisor_running(supervisor->state, NULL)))
            return error_prefix(err, "not ready, see %s/log", supervisor->state);
        started = started || supervisor_running(supervisor->state, NULL);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

static bool key_works(const struct place *place)
{
    json_t *reply = NULL;
    struct error err = {0};
    bool works = negotiator_call(place, "GET", "/sandboxes?limit=1", NULL, &reply, &err);
    json_decref(reply);
    return works || err.kind != ERROR_UNAUTHENTICATED;
}

/* The authority's, which outlives the certificates that it issues. */
static bool add_fingerprint(struct place *place, const struct supervisor *supervisor, struct error *err)
{
    AUTO_FREE char *file = memory_printf("%s/tls/ca.pem", supervisor->state);
    struct authority_view view;
    if (!text_starts_with(place->url, "https://"))
        return true;
    if (!authority_view(&view, file, err))
        return false;
    place->tls_fingerprint = memory_string(view.fingerprint);
    return true;
}

/* The same port of this machine, from before it had TLS, or from when it had. */
static bool is_without_tls(const struct place *there, const struct place *place)
{
    const char *before = strstr(there->url, "://"), *now = strstr(place->url, "://");
    return before && now && text_equal(before, now);
}

/* config.json is written when there is none, or when it names this deployment with a key that is no longer known. */
static bool point_cli(const struct supervisor *supervisor, bool *written, struct error *err)
{
    AUTO_FREE char *key_path = memory_printf("%s/admin.key", supervisor->state);
    AUTO_FREE char *key = fd_read_file(key_path, 256, NULL, err);
    if (!key)
        return false;
    key[strcspn(key, "\n")] = '\0';
    AUTO_PLACE place = {.url = supervisor_url(supervisor, 0), .api_key = TAKE(key)};
    if (!add_fingerprint(&place, supervisor, err))
        return false;
    AUTO_PLACE there = {0};
    struct error none = {0};
    *written = false;
    bool is_read = place_load_file(&there, &none);
    bool is_same = is_read && text_equal(there.url, place.url);
    if (is_read && !is_same && !is_without_tls(&there, &place))
        return true;
    if (is_same && text_equal(there.tls_fingerprint, place.tls_fingerprint) && key_works(&there))
        return true;
    *written = true;
    return place_store_file(&place, err);
}

static void tell(const struct supervisor *supervisor, const struct up_options *options, bool written)
{
    AUTO_FREE char *path = place_config_path();
    AUTO_PLACE there = {0};
    struct error none = {0};
    AUTO_FREE char *url = supervisor_url(supervisor, 0);
    AUTO_FREE char *node_url = supervisor_url(supervisor, 1);
    bool pointed = place_load_file(&there, &none) && text_equal(there.url, url);
    if (options->common.json) {
        cli_print_json(json_pack("{s:s, s:s, s:s, s:b}", "url", url, "state", supervisor->state, "config", path,
                                 "config_written", written));
        return;
    }
    printf("negotiator %s, sandboxd %s, state %s\n", url, node_url, supervisor->state);
    if (written)
        printf("API key written to %s\n", path);
    else if (!pointed)
        printf("%s points elsewhere and was left alone; for this one: export PARLEY_URL=%s PARLEY_API_KEY=$(%scat "
               "%s/admin.key)\n",
               path, url, geteuid() == 0 ? "sudo " : "", supervisor->state);
    printf("try: parley run -c 'print(6 * 7)'\n");
    fflush(stdout);
}

static bool become_ready(const struct supervisor *supervisor, const struct up_options *options, struct error *err)
{
    bool written = false;
    if (!wait_ready(supervisor, err) || !point_cli(supervisor, &written, err))
        return false;
    tell(supervisor, options, written);
    return true;
}

/* The supervisor in a session of its own; its errors before it runs come back through the log. */
static bool start_background(struct supervisor *supervisor, struct error *err)
{
    AUTO_FREE char *log_folder = memory_printf("%s/log", supervisor->state);
    int ready[2];
    if (!fd_make_folders(log_folder, 0700, err))
        return false;
    if (pipe2(ready, O_CLOEXEC) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "pipe");
    pid_t pid = fork();
    if (pid < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fork");
    if (pid == 0) {
        close(ready[0]);
        setsid();
        AUTO_FREE char *path = memory_printf("%s/up.log", log_folder);
        int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(log >= 0 ? log : null, STDERR_FILENO);
        struct error failed = {0};
        bool good = supervisor_run(supervisor, ready[1], &failed);
        if (!good)
            cli_fail(&failed, NULL, 0);
        _exit(good ? 0 : 1);
    }
    close(ready[1]);
    char none;
    while (read(ready[0], &none, 1) > 0)
        ;
    close(ready[0]);
    return true;
}

static int give_up(const struct supervisor *supervisor, const struct error *err);

/* In the foreground a child waits until all is ready and says so, while this process supervises. */
static int run_foreground(const struct supervisor *supervisor, const struct up_options *options)
{
    struct error err = {0};
    pid_t teller = fork();
    if (teller == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        bool good = become_ready(supervisor, options, &err);
        _exit(good ? 0 : give_up(supervisor, &err));
    }
    return supervisor_run(supervisor, -1, &err) ? CLI_OK : cli_fail(&err, NULL, CLI_FAILED);
}

/* The last thing a log says, for those who do not want to go and look. */
static void tell_last_line(const struct supervisor *supervisor, const char *name)
{
    AUTO_FREE char *path = memory_printf("%s/log/%s.log", supervisor->state, name);
    size_t size = 0;
    AUTO_FREE char *text = fd_read_file(path, 64 * 1024 * 1024, &size, NULL);
    while (size > 0 && text[size - 1] == '\n')
        text[--size] = '\0';
    const char *newline = size > 0 ? strrchr(text, '\n') : NULL;
    if (size > 0)
        fprintf(stderr, "        %s: %s\n", name, newline ? newline + 1 : text);
}

/* What did not become ready must not go on trying behind the user's back. */
static int give_up(const struct supervisor *supervisor, const struct error *err)
{
    struct error ignored = {0};
    pid_t pid = supervisor_running(supervisor->state, NULL);
    if (pid != 0 && !supervisor_stop(supervisor->state, pid, &ignored))
        fprintf(stderr, "parley: %s\n", ignored.message);
    cli_fail(err,
             geteuid() != 0 ? "rootless has its needs, see below and `parley doctor`; or: sudo parley up -d" : NULL,
             CLI_FAILED);
    tell_last_line(supervisor, "negotiator");
    tell_last_line(supervisor, "sandboxd");
    return CLI_FAILED;
}

static bool check_port(uint16_t port, struct error *err)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "socket");
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 1) != 0)
        return error_set_errno(err, ERROR_CONFLICT, "port %u of 127.0.0.1 cannot be used", port);
    return true;
}

static int start_up(const struct up_options *options, struct supervisor *supervisor)
{
    struct error err = {0};
    supervisor_end_leftovers(supervisor->state);
    if (!check_port(supervisor->port, &err) || !check_port((uint16_t)(supervisor->port + 1), &err))
        return cli_fail(&err, "choose another with --port N (sandboxd takes N+1)", CLI_FAILED);
    if (!options->background)
        return run_foreground(supervisor, options);
    if (!start_background(supervisor, &err))
        return cli_fail(&err, NULL, CLI_FAILED);
    return become_ready(supervisor, options, &err) ? CLI_OK : give_up(supervisor, &err);
}

static int up(const struct up_options *options, struct supervisor *supervisor)
{
    struct error err = {0};
    if (!fd_make_folders(supervisor->state, 0711, &err) || !supervisor_trust(supervisor, &err))
        return cli_fail(&err, NULL, CLI_FAILED);
    uint16_t running_port = 0;
    if (!supervisor_running(supervisor->state, &running_port))
        return start_up(options, supervisor);
    if (running_port != supervisor->port && options->port_given)
        return cli_fail(&(struct error){.kind = ERROR_CONFLICT, .message = "it runs already, on another port"},
                        "stop it with `parley down` first", CLI_FAILED);
    if (!options->background)
        return cli_fail(&(struct error){.kind = ERROR_CONFLICT, .message = "it runs already"},
                        "stop it with `parley down` first", CLI_FAILED);
    supervisor->port = running_port;
    return become_ready(supervisor, options, &err)
               ? CLI_OK
               : cli_fail(&err, "`parley doctor`, as who started it, tells what is missing", CLI_FAILED);
}

int up_main(int argc, char *argv[])
{
    struct up_options options = {.port = 8700};
    int wrong = read_options(&options, argc, argv);
    if (wrong)
        return wrong;
    struct error err = {0};
    AUTO_FREE char *state = cli_state(&options.common);
    AUTO_FREE char *negotiator = cli_sibling("parley-negotiator", &err);
    AUTO_FREE char *sandboxd = negotiator ? cli_sibling("parley-sandboxd", &err) : NULL;
    if (!sandboxd)
        return cli_fail(&err, NULL, CLI_FAILED);
    struct supervisor supervisor = {.state = state,
                                    .negotiator = negotiator,
                                    .sandboxd = sandboxd,
                                    .port = options.port,
                                    .to_log_files = options.background};
    return up(&options, &supervisor);
}
