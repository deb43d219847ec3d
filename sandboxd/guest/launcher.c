#include "sandboxd/guest/launcher.h"

#include "sandboxd/guest/facts.h"
#include "sandboxd/launcher/child_process.h"
#include "sandboxd/launcher_init/launcher_init.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t MS = 1000000;
enum { STOP_PATIENCE_MS = 12000, STOP_TURN_MS = 20 };

struct guest_launcher {
    const struct guest_launcher_options *options;
    struct child_process front;
    uint64_t incarnation;
    int control; /* -1: init is to end */
};

/* ---- init ---- */

static bool make_become(struct launcher_init_message *message, const struct letter *letter, struct error *err)
{
    *message = (struct launcher_init_message){.type = LI_BECOME};
    struct li_become *become = &message->as.become;
    int64_t left_ms = facts_deadline_ms(letter) - clock_wall_ms();
    if (left_ms <= 0)
        return error_set(err, ERROR_GONE, "the letter's sandbox has expired");
    memcpy(become->hostname, letter->hostname, sizeof become->hostname);
    become->deadline_boot_ns = clock_boot_ns() + (uint64_t)left_ms * MS;
    become->uid = letter->uid;
    become->gid = letter->gid;
    become->open_files = letter->open_files;
    return true;
}

static bool hear(int control, uint32_t type, struct error *err)
{
    struct launcher_init_message message;
    int fds[LAUNCHER_INIT_FDS];
    size_t count = 0;
    int got = launcher_init_receive(control, &message, LI_FROM_INIT, fds, &count, err);
    if (got < 0)
        return false;
    if (got == 0)
        return error_set(err, ERROR_GONE, "init ended before it was ready");
    if (message.type == LI_FAILED) {
        *err = message.as.failed;
        return false;
    }
    return message.type == type || error_set(err, ERROR_INTERNAL, "init said %u, not %u", message.type, type);
}

static bool begin_sandbox(const struct guest_launcher *launcher, struct error *err)
{
    struct launcher_init_message become;
    return hear(launcher->control, LI_BARRIER, err) && make_become(&become, launcher->options->letter, err) &&
           launcher_init_send(launcher->control, &become, NULL, 0, err) && hear(launcher->control, LI_READY, err);
}

/* ---- the front ---- */

static bool send_to_front(struct guest_launcher *launcher, struct front_launcher_message *message, const int *fds,
                          size_t fd_count, struct error *err)
{
    bool is_sent = front_launcher_send(launcher->front.socket, message, fds, fd_count, err);
    explicit_bzero(message, sizeof *message); /* it may hold keys */
    return is_sent;
}

/* What a cgroup would tell is not known: the front reads nothing there. */
static bool tell_sandbox(struct guest_launcher *launcher, struct error *err)
{
    struct front_launcher_message message;
    AUTO_FD int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    int fds[FL_FDS];
    for (size_t i = 0; i < FL_FDS; i++)
        fds[i] = i == FL_FD_INIT ? launcher->options->alive : nothing;
    facts_sandbox(&message, launcher->options->letter, launcher->options->init);
    return send_to_front(launcher, &message, fds, FL_FDS, err);
}

static bool tell_all(struct guest_launcher *launcher, struct error *err)
{
    struct front_launcher_message message, adopted = {.type = FL_ADOPTED};
    facts_identity(&message, launcher->options->letter, launcher->incarnation);
    return send_to_front(launcher, &message, NULL, 0, err) && tell_sandbox(launcher, err) &&
           send_to_front(launcher, &adopted, NULL, 0, err);
}

static bool refuse(struct guest_launcher *launcher, uint64_t request, struct error *err)
{
    struct front_launcher_message message = {.type = FL_REFUSED, .request = request};
    error_set(&message.as.refused, ERROR_INVALID,
              "this sandbox is a guest (isolation %s): limits, snapshots, volumes and networks are set on what stands "
              "around it",
              launcher->options->letter->isolation);
    return send_to_front(launcher, &message, NULL, 0, err);
}

static bool answer(struct guest_launcher *launcher, const struct front_launcher_message *asked, struct error *err)
{
    if (asked->type == FL_READY)
        return tell_all(launcher, err);
    if (asked->type == FL_ENDING)
        return true;
    if (asked->type == FL_DESTROY && launcher->control >= 0) {
        close(TAKE_FD(launcher->control)); /* init ends all it runs, and then this program */
        return true;
    }
    return refuse(launcher, asked->request, err);
}

static bool serve_front(struct guest_launcher *launcher, struct error *err)
{
    struct front_launcher_message message;
    int fds[FL_FDS];
    size_t fd_count = 0;
    int got = front_launcher_receive(launcher->front.socket, &message, FL_FROM_FRONT, fds, &fd_count, err);
    if (got < 0 && err->system_errno == EAGAIN)
        return true;
    if (got == 0)
        return error_set(err, ERROR_GONE, "it went");
    return got > 0 && answer(launcher, &message, err);
}

static void end_front(struct guest_launcher *launcher, const struct error *why)
{
    if (why)
        log_warn("guest", "the front is ended: %s", why->message);
    child_process_end(&launcher->front, clock_boot_ns());
}

static void start_front(struct guest_launcher *launcher)
{
    struct error err = {0};
    launcher->incarnation++;
    if (!child_process_start(&launcher->front, clock_boot_ns(), &err))
        end_front(launcher, &err);
}

/* ---- the turns ---- */

static int wait_ms(const struct guest_launcher *launcher)
{
    uint64_t now = clock_boot_ns(), due = launcher->front.restart_boot_ns;
    if (launcher->front.pid > 0)
        return -1;
    return due <= now ? 0 : (int)((due - now) / MS + 1);
}

/* False when init has gone. */
static bool turn(struct guest_launcher *launcher)
{
    struct error err = {0};
    struct pollfd watched[] = {{.fd = launcher->options->alive, .events = POLLIN},
                               {.fd = launcher->front.socket, .events = POLLIN}};
    int count = poll(watched, 2, wait_ms(launcher));
    if (count < 0)
        return errno == EINTR;
    if (watched[0].revents)
        return false;
    if (launcher->front.pid <= 0)
        start_front(launcher);
    else if (watched[1].revents && !serve_front(launcher, &err))
        end_front(launcher, &err);
    return true;
}

/* It lets go what it serves; not for ever. */
static void stop_front(struct guest_launcher *launcher)
{
    siginfo_t how = {0};
    child_process_stop(&launcher->front);
    for (int waited = 0; launcher->front.pid > 0 && waited < STOP_PATIENCE_MS; waited += STOP_TURN_MS) {
        if (waitid(P_PID, (id_t)launcher->front.pid, &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid != 0)
            break;
        usleep(STOP_TURN_MS * 1000);
    }
    if (launcher->front.pid > 0)
        end_front(launcher, NULL);
}

int guest_launcher_run(const struct guest_launcher_options *options)
{
    struct guest_launcher launcher = {.options = options, .front = CHILD_PROCESS_NONE, .control = options->control};
    struct error err = {0};
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* a terminal sends it to init too, which ends us */
    if (!begin_sandbox(&launcher, &err)) {
        log_error("guest", "%s", err.message);
        return 1;
    }
    launcher.front.what = "the front";
    launcher.front.program = "/proc/self/exe";
    launcher.front.environment = FRONT_ENVIRONMENT;
    launcher.front.argv = options->argv;
    while (turn(&launcher)) {
    }
    log_info("guest", "init has ended");
    stop_front(&launcher);
    return 0;
}
