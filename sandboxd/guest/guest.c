#include "sandboxd/guest/guest.h"

#include "sandboxd/guest/house.h"
#include "sandboxd/guest/launcher.h"
#include "sandboxd/isolation/direct/direct.h"
#include "shared/base/confine.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FD_ASIDE = 10 };

/* ---- what a front finds in its environment ---- */

bool guest_is_front(struct front_guest *guest)
{
    const char *text = getenv(GUEST_ENVIRONMENT);
    uint64_t fd = 0;
    if (!text)
        return false;
    *guest = (struct front_guest){.connections = -1};
    if (text_parse_u64(text, strlen(text), INT32_MAX, &fd))
        guest->connections = (int)fd;
    unsetenv(GUEST_ENVIRONMENT);
    return true;
}

/* The socket goes to each front, and to no command: init has it not. */
static bool tell_fronts(int connections, struct error *err)
{
    char number[16] = "none";
    if (connections >= 0)
        snprintf(number, sizeof number, "%d", connections);
    if (connections >= 0 && fcntl(connections, F_SETFD, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "hand on the connections");
    return setenv(GUEST_ENVIRONMENT, number, 1) == 0 || error_set_errno(err, ERROR_INTERNAL, "setenv");
}

/* ---- the two processes ---- */

struct guest {
    const struct settings *settings;
    struct letter letter;
    struct guest_house house;
    int connections;
    int control[2]; /* [0] the launcher's, [1] init's */
    int alive[2];   /* [0] tells the end of who holds [1] */
    char *const *argv;
};

/* Out of the way of 0, 1 and 2, which become /dev/null; and no command ever has it. */
static bool take_connections(struct guest *guest, const struct guest_options *options, struct error *err)
{
    if (options->connections < 0)
        return true;
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(options->connections, SOL_SOCKET, SO_TYPE, &type, &size) != 0)
        return error_set_errno(err, ERROR_INVALID, "--guest-connections %d: no socket", options->connections);
    guest->connections = fcntl(options->connections, F_DUPFD_CLOEXEC, FD_ASIDE);
    return guest->connections >= 0 || error_set_errno(err, ERROR_INTERNAL, "--guest-connections");
}

/* As the front's user commands could read its memory, and as its group speak to init. The name is the template's to
 * give: its passwd is what is asked. */
static bool check_users(const struct settings *settings, const struct letter *letter, struct error *err)
{
    uid_t uid;
    gid_t gid;
    confine_find_user(settings->front_user, (uid_t)settings->front_uid, &uid, &gid);
    return (letter->uid != uid && letter->gid != gid && gid != 0) ||
           error_set(err, ERROR_INVALID, "the front here would be uid %u, gid %u, which commands (%u, %u) or root are",
                     uid, gid, letter->uid, letter->gid);
}

static bool open_all(struct guest *guest, const struct guest_options *options, struct error *err)
{
    if (options->letter < 0)
        return error_set(err, ERROR_INVALID,
                         "--guest needs --guest-letter FD: the descriptor that says which sandbox it is");
    if (!letter_read(options->letter, &guest->letter, err) || !direct_check_rights(err) ||
        !check_users(guest->settings, &guest->letter, err) || !take_connections(guest, options, err))
        return false;
    AUTO_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    bool is_read = null >= 0 && (options->letter > 2 ? close(options->letter) == 0 : dup2(null, options->letter) >= 0);
    if (!is_read)
        return error_set_errno(err, ERROR_INTERNAL, "let go of the letter");
    if (options->connections > 2 && options->connections != options->letter)
        close(options->connections);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, guest->control) < 0 || pipe2(guest->alive, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "sockets between the guest's processes");
    return guest_house_open(&guest->house, guest->settings, err);
}

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static _Noreturn void be_launcher(struct guest *guest, pid_t init)
{
    struct error err = {0};
    guest_house_done(&guest->house);
    drop(&guest->control[1]);
    drop(&guest->alive[1]);
    const struct guest_launcher_options options = {.settings = guest->settings,
                                                   .letter = &guest->letter,
                                                   .control = guest->control[0],
                                                   .alive = guest->alive[0],
                                                   .init = init,
                                                   .argv = guest->argv};
    bool is_told = tell_fronts(guest->connections, &err);
    if (!is_told)
        log_error("guest", "%s", err.message);
    int status = is_told ? guest_launcher_run(&options) : 1;
    letter_done(&guest->letter);
    log_flush();
    _exit(status);
}

static void close_all(struct guest *guest)
{
    letter_done(&guest->letter);
    guest_house_done(&guest->house);
    drop(&guest->connections);
    for (int i = 0; i < 2; i++) {
        drop(&guest->control[i]);
        drop(&guest->alive[i]);
    }
}

static bool run(struct guest *guest, const struct guest_options *options, struct error *err)
{
    if (!open_all(guest, options, err))
        return false;
    log_info("guest", "begins sandbox=%s isolation=%s", guest->letter.sandbox, guest->letter.isolation);
    log_flush();
    pid_t init = getpid(), launcher = fork();
    if (launcher < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fork the launcher");
    if (launcher == 0)
        be_launcher(guest, init);
    const struct direct_init become = {.program = guest->house.program,
                                       .listen = guest->house.listen,
                                       .control = guest->control[1],
                                       .seccomp = guest->house.seccomp,
                                       .alive = guest->alive[1]};
    return direct_become_init(&become, err);
}

int guest_main(const struct settings *settings, const struct guest_options *options, char *const argv[])
{
    struct error err = {0};
    struct guest guest = {.settings = settings,
                          .house = GUEST_HOUSE_NONE,
                          .connections = -1,
                          .control = {-1, -1},
                          .alive = {-1, -1},
                          .argv = argv};
    keys_start();
    if (!run(&guest, options, &err))
        log_error("guest", "%s", err.message);
    close_all(&guest);
    return 1;
}

/* ---- doctor ---- */

int guest_doctor(void)
{
    struct isolation_layer layers[ISOLATION_LAYERS_MAX];
    size_t count = direct_probe(layers);
    for (size_t i = 0; i < count; i++) {
        json_t *line = json_pack("{s:s, s:b, s:s}", "name", layers[i].name, "active", (int)layers[i].active, "detail",
                                 layers[i].detail);
        char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
        if (text)
            puts(text);
        free(text);
        json_decref(line);
    }
    return layers[0].active ? 0 : 1;
}
