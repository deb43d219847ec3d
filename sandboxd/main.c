/* parley-sandboxd: is the launcher; the same program, started by it with PARLEY_FRONT_FD, is the front. */
#include "sandboxd/front/front.h"
#include "sandboxd/guest/guest.h"
#include "sandboxd/isolation/isolation.h"
#include "sandboxd/isolation/namespaces/cgroup_keep.h"
#include "sandboxd/launcher/child_process.h"
#include "sandboxd/launcher/enrol.h"
#include "sandboxd/launcher/launcher.h"
#include "sandboxd/rootless/rootless.h"
#include "sandboxd/templates/templates.h"
#include "shared/base/config.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/notify.h"
#include "shared/base/text.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum mode { MODE_RUN, MODE_HELP, MODE_VERSION, MODE_ROUTES, MODE_DOCTOR, MODE_PURGE, MODE_KEEP_CGROUP };

/* The words that say what to do rather than how; taken out of argv. The last one counts. */
static enum mode take_mode(int *argc, char *argv[])
{
    static const struct {
        const char *word;
        enum mode mode;
    } WORDS[] = {{"--help", MODE_HELP},     {"-h", MODE_HELP},         {"--version", MODE_VERSION},
                 {"--routes", MODE_ROUTES}, {"--doctor", MODE_DOCTOR}, {"--purge", MODE_PURGE},
                 {"--keep-cgroup", MODE_KEEP_CGROUP}};
    enum mode mode = MODE_RUN;
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        bool is_word = false;
        for (size_t j = 0; i > 0 && j < sizeof WORDS / sizeof WORDS[0]; j++) {
            if (strcmp(argv[i], WORDS[j].word) == 0) {
                mode = WORDS[j].mode;
                is_word = true;
            }
        }
        if (!is_word)
            argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    *argc = kept;
    return mode;
}

/* Another way to do what the words say; taken out of argv too. */
static bool take_guest(int *argc, char *argv[])
{
    bool is_guest = false;
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        if (i > 0 && strcmp(argv[i], "--guest") == 0)
            is_guest = true;
        else
            argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    *argc = kept;
    return is_guest;
}

static void print_help(void)
{
    puts(
        "parley-sandboxd [--SETTING VALUE ...]   runs sandboxes on this machine; as root, or rootless\n"
        "parley-sandboxd enrol --help            gives this machine its key, first\n"
        "parley-sandboxd template --help         imports, builds, lists and removes templates\n"
        "\n"
        "  --doctor    what this host gives: isolation, storage, warm pool, as JSON lines\n"
        "  --purge     ends and removes every sandbox of the state folder\n"
        "  --keep-cgroup  keeps the own v2 cgroup for sandboxes (setting cgroup) until it is stopped: a service of its own,\n"
        "              so that sandboxes live on while the one that runs them is replaced\n"
        "  --routes    the table of HTTP routes\n"
        "  --guest --guest-letter FD [--guest-connections FD]   serves the one sandbox of the letter, inside of a VM,\n"
        "              pod or container that isolates already: sandboxd/guest/DESIGN.md\n"
        "  --version, --help\n"
        "\n"
        "Settings, also as keys of STATE/config.json and as PARLEY_<KEY>:");
    settings_print_help(stdout);
}

/* Sandboxes are made beside it in its cgroup, so a service of its own lets them live on while sandboxd is replaced. */
static int keep_cgroup(void)
{
    struct notify notify = NOTIFY_NONE;
    struct error err = {0};
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    if (!notify_open(&notify, &err) || !cgroup_keep("", &err)) {
        log_error("sandboxd", "%s", err.message);
        return 1;
    }
    notify_ready(&notify);
    (void)sigwaitinfo(&ends, NULL);
    notify_close(&notify);
    return 0;
}

static int run(enum mode mode, const struct settings *settings, const struct guest_options *guest, char *argv[])
{
    const char *front = getenv(FRONT_ENVIRONMENT);
    uint64_t fd = 0;
    if (mode == MODE_PURGE)
        return launcher_purge(settings);
    if (front == NULL)
        return guest ? guest_main(settings, guest, argv) : launcher_run(settings, argv);
    if (!text_parse_u64(front, strlen(front), INT32_MAX, &fd)) {
        log_error("front", "%s is not a descriptor", FRONT_ENVIRONMENT);
        return 1;
    }
    unsetenv(FRONT_ENVIRONMENT);
    struct front_guest inside;
    return front_main((int)fd, settings, guest_is_front(&inside) ? &inside : NULL);
}

/* An ordinary user's: executes this program again, as root of a user namespace. What it is called with stays: the
 * folder of all state is the user's by then, not that of the host's root. */
static bool enter_rootless(int argc, char *argv[], char *const again[], struct error *err)
{
    if (geteuid() == 0)
        return true;
    AUTO_FREE char *state = config_state_folder(argc - 1, argv + 1);
    return (setenv("PARLEY_STATE", state, 1) == 0 || error_set_errno(err, ERROR_INTERNAL, "setenv")) &&
           rootless_enter(isolation_find_living(state), again, err);
}

int main(int argc, char *argv[])
{
    if (argc > 1 && strcmp(argv[1], "enrol") == 0)
        return enrol_main(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "template") == 0)
        return templates_main(argc - 2, argv + 2);
    struct error err = {0};
    struct guest_options guest = {0};
    bool is_guest = take_guest(&argc, argv);
    if (is_guest && !guest_take_options(&argc, argv, &guest, &err)) {
        log_error("guest", "%s", err.message);
        return 2;
    }
    char **again = memory_array((size_t)argc + 1, sizeof *again);
    memcpy(again, argv, (size_t)argc * sizeof *again);
    enum mode mode = take_mode(&argc, argv);
    struct error why = {0}; /* why there is no user namespace */
    bool needs_root = !is_guest && (mode == MODE_RUN || mode == MODE_PURGE || mode == MODE_DOCTOR);
    bool is_root = !needs_root || enter_rootless(argc, argv, again, &why);
    free(again);
    if (mode == MODE_HELP)
        print_help();
    else if (mode == MODE_VERSION)
        puts("parley-sandboxd " PARLEY_VERSION);
    else if (mode == MODE_ROUTES)
        front_print_routes();
    else if (mode == MODE_KEEP_CGROUP)
        return keep_cgroup();
    if (mode != MODE_RUN && mode != MODE_PURGE && mode != MODE_DOCTOR)
        return 0;
    if (!is_root && mode != MODE_DOCTOR) {
        log_error("sandboxd", "not root, and rootless is not possible: %s", why.message);
        return 1;
    }
    if (mode == MODE_DOCTOR && is_guest)
        return guest_doctor();
    AUTO_SETTINGS settings = {0};
    bool are_loaded = settings_load(&settings, argc - 1, argv + 1, &err);
    if (mode == MODE_DOCTOR)
        return launcher_doctor(are_loaded ? &settings : NULL, &err, is_root ? NULL : &why);
    if (!are_loaded) {
        log_error("sandboxd", "%s", err.message);
        return 2;
    }
    return run(mode, &settings, is_guest ? &guest : NULL, argv);
}
