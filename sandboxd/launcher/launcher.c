#include "sandboxd/launcher/launcher.h"

#include "sandboxd/launcher/child_process.h"
#include "sandboxd/launcher/dialogue.h"
#include "sandboxd/launcher/egress.h"
#include "sandboxd/launcher/house.h"
#include "sandboxd/launcher/identity.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"
#include "shared/base/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

static const uint64_t SECOND = 1000000000;
enum { STOP_PATIENCE_S = 15, REKEY_PATIENCE_S = 2, EVENTS_A_TURN = 64, PURGE_TURN_MS = 20, CLEAR_PATIENCE_MS = 5000 };

/* What an epoll event is about; what is a sandbox's has its slot in the low half. */
enum source {
    SOURCE_SIGNAL = 1,
    SOURCE_TIMER,
    SOURCE_FRONT_MESSAGE,
    SOURCE_FRONT_END,
    SOURCE_TEMPLATES,
    SOURCE_EGRESS_MESSAGE,
    SOURCE_EGRESS_END,
    SOURCE_SANDBOX /* and from here on: enum sandbox_event */
};

/* Everything one launcher has. */
struct launcher {
    const struct settings *settings;
    struct house house;
    struct identity identity;
    struct sandboxes sandboxes;
    struct child_process front;
    struct egress egress;
    struct dialogue dialogue;
    int epoll, timer, signals;
    uint32_t front_events;  /* what the front's socket is watched for */
    uint32_t egress_events; /* ... and that of parley-egress */
    uint64_t stop_boot_ns;  /* stopping: when the front is killed; 0 not stopping */
    uint64_t rekey_boot_ns; /* re-keyed: when a front with the old keys is killed; 0: it has ours */
    bool stopped;
    struct notify notify;    /* who started us, if that wants to know */
    uint64_t alive_boot_ns;  /* when the next sign of life is due; 0: none */
    bool told_ready;
};

static uint64_t tag(enum source source, uint32_t slot)
{
    return (uint64_t)source << 32 | slot;
}

static bool watch(const struct launcher *launcher, int fd, uint32_t events, uint64_t what, struct error *err)
{
    struct epoll_event event = {.events = events, .data.u64 = what};
    if (epoll_ctl(launcher->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "epoll_ctl");
    return true;
}

static bool watch_sandbox(void *context, enum sandbox_event event, uint32_t slot, int fd, struct error *err)
{
    return watch(context, fd, EPOLLIN | EPOLLONESHOT, tag((enum source)(SOURCE_SANDBOX + event), slot), err);
}

static bool watch_sandbox_again(void *context, enum sandbox_event event, uint32_t slot, int fd, struct error *err)
{
    const struct launcher *launcher = context;
    struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT,
                                .data.u64 = tag((enum source)(SOURCE_SANDBOX + event), slot)};
    if (epoll_ctl(launcher->epoll, EPOLL_CTL_MOD, fd, &again) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "epoll_ctl");
    return true;
}

/* --- the front --- */

/* A front that we killed can take the descriptors it was given with it: it holds copies only. */
static void end_front(struct launcher *launcher, const char *why)
{
    if (launcher->front.pid > 0 && why && !launcher->stop_boot_ns)
        log_error("launcher", "the front is ended: %s", why);
    dialogue_end(&launcher->dialogue);
    child_process_end(&launcher->front, clock_boot_ns());
    if (launcher->rekey_boot_ns)
        launcher->front.restart_boot_ns = clock_boot_ns(); /* we wanted it to end */
    launcher->rekey_boot_ns = 0;
    if (launcher->stop_boot_ns)
        launcher->stopped = true;
}

/* The front cannot be talked with any more. When we told it to stop it is on its way out and may finish; its pidfd
 * tells. */
static void lose_front(struct launcher *launcher, const char *why)
{
    if (!launcher->stop_boot_ns && !launcher->rekey_boot_ns) {
        end_front(launcher, why);
        return;
    }
    dialogue_end(&launcher->dialogue);
    (void)epoll_ctl(launcher->epoll, EPOLL_CTL_DEL, launcher->front.socket, NULL);
}

static bool start_front_process(struct launcher *launcher, struct error *err)
{
    uint64_t incarnation = 0;
    uint64_t first = (uint64_t)(clock_wall_ms() / 1000);
    if (!identity_raise_incarnation(launcher->house.incarnation_file, first, &incarnation, err) ||
        !child_process_start(&launcher->front, clock_boot_ns(), err))
        return false;
    dialogue_begin(&launcher->dialogue, launcher->front.socket, incarnation);
    launcher->front_events = EPOLLIN;
    if (!watch(launcher, launcher->front.socket, EPOLLIN, tag(SOURCE_FRONT_MESSAGE, 0), err) ||
        !watch(launcher, launcher->front.pidfd, EPOLLIN, tag(SOURCE_FRONT_END, 0), err))
        return false;
    log_info("launcher", "front started pid=%d incarnation=%" PRIu64, (int)launcher->front.pid, incarnation);
    return true;
}

static void start_front(struct launcher *launcher)
{
    struct error err = {0};
    if (start_front_process(launcher, &err))
        return;
    log_error("launcher", "the front does not start: %s", err.message);
    end_front(launcher, NULL);
}

/* The front's keys are those of before the re-keying: it may finish what it does for a moment, then the next one takes
 * over all that runs, under the new ones. */
static void renew_front(struct launcher *launcher)
{
    if (launcher->rekey_boot_ns)
        return;
    launcher->rekey_boot_ns = clock_boot_ns() + REKEY_PATIENCE_S * SECOND;
    child_process_stop(&launcher->front);
}

/* After each turn: tells the front what happened, and watches for room when it takes no more. */
static void serve_front(struct launcher *launcher)
{
    struct error err = {0};
    if (launcher->front.pid <= 0)
        return;
    if (!dialogue_send(&launcher->dialogue, &err)) {
        lose_front(launcher, err.message);
        return;
    }
    if (dialogue_is_over(&launcher->dialogue))
        renew_front(launcher);
    uint32_t events = EPOLLIN | (dialogue_is_waiting(&launcher->dialogue) ? (uint32_t)EPOLLOUT : 0U);
    struct epoll_event event = {.events = events, .data.u64 = tag(SOURCE_FRONT_MESSAGE, 0)};
    if (events != launcher->front_events &&
        epoll_ctl(launcher->epoll, EPOLL_CTL_MOD, launcher->front.socket, &event) == 0)
        launcher->front_events = events;
}

/* --- parley-egress --- */

static bool start_egress(struct launcher *launcher, struct error *err)
{
    launcher->egress_events = EPOLLIN;
    return egress_start(&launcher->egress, err) &&
           watch(launcher, launcher->egress.process.socket, EPOLLIN, tag(SOURCE_EGRESS_MESSAGE, 0), err) &&
           watch(launcher, launcher->egress.process.pidfd, EPOLLIN, tag(SOURCE_EGRESS_END, 0), err);
}

/* After each turn: starts it when the first sandbox needs it, and tells it what happened. */
static void serve_egress(struct launcher *launcher)
{
    struct error err = {0};
    struct egress *egress = &launcher->egress;
    uint64_t due = egress_next_wake(egress);
    if (due && due <= clock_boot_ns() && !launcher->stop_boot_ns) {
        egress_wake(egress);
        if (egress->process.pid <= 0 && !start_egress(launcher, &err))
            egress_end(egress, err.message);
    }
    if (egress->process.pid <= 0)
        return;
    if (!egress_send(egress, &err)) {
        egress_end(egress, err.message);
        return;
    }
    uint32_t events = EPOLLIN | (egress_is_waiting(egress) ? (uint32_t)EPOLLOUT : 0U);
    struct epoll_event event = {.events = events, .data.u64 = tag(SOURCE_EGRESS_MESSAGE, 0)};
    if (events != launcher->egress_events &&
        epoll_ctl(launcher->epoll, EPOLL_CTL_MOD, egress->process.socket, &event) == 0)
        launcher->egress_events = events;
}

/* --- the service manager --- */

/* Ready with the first front; then a sign of life from this thread, whatever the front does: that is ended and started
 * again here. */
static void serve_manager(struct launcher *launcher)
{
    uint64_t now = clock_boot_ns();
    if (launcher->dialogue.ready && !launcher->told_ready) {
        launcher->told_ready = true;
        notify_ready(&launcher->notify);
    }
    if (launcher->told_ready && launcher->notify.every_ns && now >= launcher->alive_boot_ns) {
        notify_alive(&launcher->notify);
        launcher->alive_boot_ns = now + launcher->notify.every_ns;
    }
}

/* --- events --- */

static void begin_stop(struct launcher *launcher)
{
    if (launcher->stop_boot_ns)
        return;
    log_info("launcher", "stopping; sandboxes go on sandboxes=%" PRIu32,
             launcher->sandboxes.count - launcher->sandboxes.pool_count);
    warm_end_all(&launcher->sandboxes);
    launcher->stop_boot_ns = clock_boot_ns() + STOP_PATIENCE_S * SECOND;
    notify_stopping(&launcher->notify);
    child_process_stop(&launcher->front);
    launcher->stopped = launcher->front.pid <= 0;
}

static void on_signal(struct launcher *launcher)
{
    struct signalfd_siginfo info;
    while (read(launcher->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
            begin_stop(launcher);
    }
}

static void on_timer(struct launcher *launcher)
{
    uint64_t times = 0;
    (void)!read(launcher->timer, &times, sizeof times);
    uint64_t now = clock_boot_ns();
    sandboxes_wake(&launcher->sandboxes, now);
    if (launcher->stop_boot_ns && now >= launcher->stop_boot_ns && launcher->front.pid > 0)
        end_front(launcher, NULL); /* it did not stop in time */
    if (launcher->rekey_boot_ns && now >= launcher->rekey_boot_ns && launcher->front.pid > 0)
        end_front(launcher, NULL);
    bool due = launcher->front.pid <= 0 && launcher->front.restart_boot_ns <= now;
    if (due && !launcher->stop_boot_ns)
        start_front(launcher);
}

static void on_event(struct launcher *launcher, uint64_t what)
{
    struct error err = {0};
    switch ((enum source)(what >> 32)) {
    case SOURCE_SIGNAL:
        on_signal(launcher);
        return;
    case SOURCE_TIMER:
        on_timer(launcher);
        return;
    case SOURCE_FRONT_MESSAGE:
        if (launcher->front.pid > 0 && !dialogue_receive(&launcher->dialogue, &err))
            lose_front(launcher, err.message);
        return;
    case SOURCE_FRONT_END:
        if (launcher->front.pid > 0)
            end_front(launcher, NULL);
        return;
    case SOURCE_TEMPLATES:
        dialogue_refresh_templates(&launcher->dialogue);
        return;
    case SOURCE_EGRESS_MESSAGE:
        if (launcher->egress.process.pid > 0 && !egress_receive(&launcher->egress, &err))
            egress_end(&launcher->egress, err.message);
        return;
    case SOURCE_EGRESS_END:
        if (launcher->egress.process.pid > 0)
            egress_end(&launcher->egress, NULL);
        return;
    case SOURCE_SANDBOX:
    default:
        sandboxes_event(&launcher->sandboxes, (enum sandbox_event)((what >> 32) - SOURCE_SANDBOX), (uint32_t)what);
        return;
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return b && (a == 0 || b < a) ? b : a;
}

/* One timer for all that will be due. */
static void set_timer(struct launcher *launcher, uint64_t pool_due)
{
    uint64_t due = sooner(sandboxes_next_wake(&launcher->sandboxes), pool_due);
    due = sooner(due, launcher->stop_boot_ns ? 0 : egress_next_wake(&launcher->egress));
    due = sooner(due, launcher->alive_boot_ns);
    due = sooner(due, launcher->front.pid <= 0 ? launcher->front.restart_boot_ns
                      : launcher->stop_boot_ns ? launcher->stop_boot_ns
                                               : launcher->rekey_boot_ns);
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(due / SECOND), .tv_nsec = (long)(due % SECOND)}};
    (void)timerfd_settime(launcher->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* The pool is refilled when nothing waits: one birth is begun, then it is looked again. */
static void loop(struct launcher *launcher)
{
    while (!launcher->stopped) {
        struct epoll_event events[EVENTS_A_TURN];
        uint64_t pool_due = 0;
        bool may_refill = !launcher->stop_boot_ns && launcher->front.pid > 0;
        bool refills = may_refill && warm_wanted(&launcher->sandboxes, clock_boot_ns(), &pool_due);
        set_timer(launcher, pool_due);
        int count = epoll_wait(launcher->epoll, events, EVENTS_A_TURN, refills ? 0 : -1);
        for (int i = 0; i < count; i++)
            on_event(launcher, events[i].data.u64);
        if (count == 0 && refills)
            warm_refill(&launcher->sandboxes, clock_boot_ns());
        sandboxes_turn(&launcher->sandboxes);
        serve_egress(launcher); /* before who asked hears of it: a name may be asked for at once */
        serve_front(launcher);
        serve_manager(launcher);
    }
}

/* --- from the beginning to the end --- */

static bool open_loop(struct launcher *launcher, struct error *err)
{
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &watched, NULL);
    launcher->signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    launcher->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    launcher->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (launcher->signals < 0 || launcher->timer < 0 || launcher->epoll < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open the event loop");
    return watch(launcher, launcher->signals, EPOLLIN, tag(SOURCE_SIGNAL, 0), err) &&
           watch(launcher, launcher->timer, EPOLLIN, tag(SOURCE_TIMER, 0), err);
}

static bool open_launcher(struct launcher *launcher, char *const argv[], struct error *err)
{
    keys_start();
    if (!notify_open(&launcher->notify, err) || !open_loop(launcher, err) || !house_open(&launcher->house, launcher->settings, err) ||
        !identity_read(&launcher->identity, launcher->house.node_file, err))
        return false;
    struct sandboxes_watch watcher = {.add = watch_sandbox, .again = watch_sandbox_again, .context = launcher};
    if (!house_start_sandboxes(&launcher->house, launcher->settings, &watcher, &launcher->sandboxes, err) ||
        !watch(launcher, catalog_fd(&launcher->house.catalog), EPOLLIN, tag(SOURCE_TEMPLATES, 0), err))
        return false;
    launcher->sandboxes.house.identity = &launcher->identity;
    dialogue_init(&launcher->dialogue, launcher->settings, &launcher->identity, launcher->house.node_file,
                  &launcher->sandboxes);
    launcher->front.what = "the front";
    launcher->front.program = "/proc/self/exe";
    launcher->front.environment = FRONT_ENVIRONMENT;
    launcher->front.argv = argv; /* ours, with the program's name: the front reads the same settings */
    egress_init(&launcher->egress, launcher->settings, launcher->house.networks, &launcher->sandboxes);
    return true;
}

/* What the last sandboxes had the kernel takes away a moment after them; nothing else goes on in this process. */
static void clear_host(struct networks *networks)
{
    struct error err = {0};
    bool is_clear = false;
    for (int turn = 0; !is_clear && turn < CLEAR_PATIENCE_MS / PURGE_TURN_MS; turn++) {
        err = (struct error){0};
        is_clear = networks_clear_host(networks, &err);
        if (err.kind != ERROR_STARTING)
            break;
        usleep(PURGE_TURN_MS * 1000);
    }
    if (!is_clear)
        log_error("launcher", "the host's network rules are left: %s", err.message);
}

static void close_launcher(struct launcher *launcher)
{
    int fds[] = {launcher->signals, launcher->timer, launcher->epoll};
    bool is_empty = launcher->sandboxes.count == 0;
    egress_done(&launcher->egress);
    sandboxes_done(&launcher->sandboxes);
    if (is_empty && launcher->house.networks)
        clear_host(launcher->house.networks);
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    identity_done(&launcher->identity);
    house_close(&launcher->house);
    notify_close(&launcher->notify);
    free(launcher);
}

static struct launcher *new_launcher(const struct settings *settings)
{
    struct launcher *launcher = memory_new(sizeof *launcher);
    launcher->settings = settings;
    launcher->epoll = launcher->timer = launcher->signals = -1;
    launcher->notify = NOTIFY_NONE;
    launcher->front = launcher->egress.process = CHILD_PROCESS_NONE;
    launcher->house.lock = launcher->house.init_program = launcher->house.catalog.notify = -1;
    return launcher;
}

int launcher_run(const struct settings *settings, char *const argv[])
{
    struct error err = {0};
    struct launcher *launcher = new_launcher(settings);
    bool opened = open_launcher(launcher, argv, &err);
    if (opened) {
        log_info("launcher", "started state=%s node=%s sandboxes=%" PRIu32, launcher->house.state,
                 launcher->identity.node, launcher->sandboxes.count);
        start_front(launcher);
        loop(launcher);
    } else {
        log_error("launcher", "%s", err.message);
    }
    close_launcher(launcher);
    return opened ? 0 : 1;
}

/* --- the other ways to be called --- */

static bool watch_nothing(void *context, enum sandbox_event event, uint32_t slot, int fd, struct error *err)
{
    (void)context;
    (void)event;
    return fd >= 0 || error_set(err, ERROR_INTERNAL, "slot %" PRIu32 " has no pidfd", slot);
}

static void purge(struct sandboxes *all)
{
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        if (all->by_slot[slot])
            sandboxes_end(all, all->by_slot[slot], "purged");
    }
    /* What still dies is tried again when it is due; nothing else goes on in this process. */
    for (int turn = 0; all->count > 0 && turn < 30000 / PURGE_TURN_MS; turn++) {
        usleep(PURGE_TURN_MS * 1000);
        sandboxes_wake(all, clock_boot_ns());
    }
}

int launcher_purge(const struct settings *settings)
{
    struct error err = {0};
    static char namespaces[] = "namespaces";
    struct settings purging = *settings; /* what other levels need may be gone: their cgroups are enough to end them */
    purging.isolation = namespaces;
    struct launcher *launcher = new_launcher(&purging);
    struct sandboxes_watch watcher = {.add = watch_nothing, .again = watch_nothing};
    bool opened = house_open(&launcher->house, &purging, &err) &&
                  house_start_sandboxes(&launcher->house, &purging, &watcher, &launcher->sandboxes, &err);
    if (opened)
        purge(&launcher->sandboxes);
    else
        log_error("launcher", "%s", err.message);
    bool left = launcher->sandboxes.count > 0;
    if (left)
        log_error("launcher", "%" PRIu32 " sandboxes cannot be removed", launcher->sandboxes.count);
    close_launcher(launcher);
    return opened && !left ? 0 : 1;
}
