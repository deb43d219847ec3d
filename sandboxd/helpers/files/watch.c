/* watch.c - FILES_WATCH: what happens to a file, or in a folder (and all below it), as inotify(7) tells it. An ENTRY of
 * what is watched comes first: from then on nothing is missed that no OVERFLOW speaks of. What is in a new folder is
 * told as created, some of it perhaps twice. The request's path is looked up anew whenever a folder is to be found
 * below it, because an open descriptor would keep inotify from telling that the folder was removed. */
#include "sandboxd/helpers/files/files_operations.h"
#include "sandboxd/helpers/files/walk.h"
#include "sandboxd/helpers/files/watch_events.h"
#include "sandboxd/helpers/files/watch_folders.h"
#include "shared/base/beneath.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>

#define CHANGES      (IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB)
#define ITSELF       (IN_DELETE_SELF | IN_MOVE_SELF)
#define IN_A_FOLDER  (CHANGES | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_EXCL_UNLINK)
#define BUFFER_BYTES 65536

struct watch {
    struct helper *helper;
    struct stat top; /* what is watched */
    bool is_recursive, is_gone;
    struct watch_folders folders;
    struct watch_events events;
};

static bool tell(struct watch *watch, const struct waiting *waiting, struct error *err)
{
    struct files_record record = {.kind = FILES_EVENT, .event = waiting->event, .is_folder = waiting->is_folder};
    if (waiting->path)
        record.path = (struct files_bytes){waiting->path, strlen(waiting->path)};
    if (waiting->from)
        record.from = (struct files_bytes){waiting->from, strlen(waiting->from)};
    watch->helper->count++;
    return helper_record(watch->helper, &record, err);
}

/* Tells what is due; `now_ns` UINT64_MAX: all that waits. */
static bool tell_due(struct watch *watch, uint64_t now_ns, struct error *err)
{
    struct waiting waiting;
    bool is_told = true;
    while (is_told && watch_events_take(&watch->events, now_ns, &waiting)) {
        /* A move away without another half: out of what is watched. */
        if (waiting.event == FILES_DELETED && waiting.wd >= 0)
            watch_folders_remove(&watch->folders, waiting.wd, true);
        is_told = waiting.event == 0 || tell(watch, &waiting, err);
        watch_events_free(&waiting);
    }
    return is_told && helper_flush(watch->helper, err);
}

static bool add_event(struct watch *watch, const struct waiting *waiting, struct error *err)
{
    if (watch_events_is_full(&watch->events) && !tell_due(watch, UINT64_MAX, err))
        return false;
    watch_events_add(&watch->events, waiting);
    return true;
}

/* What the request names, for a moment; -1 when that is gone or is another thing now. */
static int open_top(struct watch *watch)
{
    const struct files_request *request = watch->helper->request;
    struct error ignored = {0};
    AUTO_FD int fd = resolve_open(watch->helper, request->root, request->path, O_PATH, &ignored);
    struct stat now;
    if (fd < 0 || fstat(fd, &now) < 0 || now.st_dev != watch->top.st_dev || now.st_ino != watch->top.st_ino)
        return -1;
    return TAKE_FD(fd);
}

static int add_folder(struct watch *watch, int fd, int parent, const char *name, struct error *err)
{
    return watch_folders_add(&watch->folders, fd, parent, name, IN_A_FOLDER | IN_ONLYDIR, err);
}

/* Where a scan is: the watches of the folders from the one it began with. */
struct scan {
    const char *path; /* of the one it began with, below what is watched */
    bool is_told;     /* what is found is new */
    int *wds;         /* [depth] */
    size_t room;
};

static bool scan_place(struct watch *watch, struct scan *scan, struct walk *walk, const struct walk_place *place,
                       struct error *err)
{
    char path[PATH_MAX];
    bool is_folder = place->type == FILES_FOLDER;
    if (!text_format(path, sizeof path, "%s%s%s", scan->path, scan->path[0] ? "/" : "", place->path))
        return true;
    struct waiting created = {.event = FILES_CREATED, .is_folder = is_folder, .wd = -1, .path = path};
    if (scan->is_told && !add_event(watch, &created, err))
        return false;
    if (!is_folder)
        return true;
    AUTO_FD int fd = open_child_folder(place->folder, place->name, O_PATH);
    if (fd < 0)
        return true;
    if (place->depth == scan->room) {
        scan->room *= 2;
        scan->wds = memory_resize(scan->wds, scan->room * sizeof scan->wds[0]);
    }
    /* Watched first, then read: what comes in between is told twice rather than never. */
    scan->wds[place->depth] = add_folder(watch, fd, scan->wds[place->depth - 1], place->name, err);
    if (scan->wds[place->depth] < 0)
        return false;
    walk_enter(walk);
    return true;
}

/* Watches all folders below the one of `wd`. */
static bool scan_below(struct watch *watch, int folder, int wd, const char *path, bool is_told, struct error *err)
{
    AUTO(walk) *walk = walk_new(folder, WALK_BEFORE, NULL);
    if (walk == NULL)
        return true; /* what is in it cannot be read, so nothing of it is told */
    struct scan scan = {.path = path, .is_told = is_told, .room = 16};
    scan.wds = memory_array(scan.room, sizeof scan.wds[0]);
    scan.wds[0] = wd;
    struct walk_place place;
    bool goes_on = true;
    while (goes_on && walk_next(walk, &place))
        goes_on = scan_place(watch, &scan, walk, &place, err);
    watch->helper->skipped += walk_skipped(walk);
    free(scan.wds);
    return goes_on;
}

/* A folder that is new in `parent`. */
static bool adopt(struct watch *watch, int parent, const char *name, const char *path, struct error *err)
{
    AUTO_FD int top = open_top(watch);
    watch->is_gone = watch->is_gone || top < 0;
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    AUTO_FD int fd = top < 0 ? -1 : beneath_open(top, path, &how);
    if (fd < 0)
        return true;
    int wd = add_folder(watch, fd, parent, name, err);
    return wd >= 0 && scan_below(watch, fd, wd, path, true, err);
}

static bool on_moved_in(struct watch *watch, const struct inotify_event *event, const char *path, struct error *err)
{
    bool is_folder = event->mask & IN_ISDIR;
    AUTO_FREE char *from = NULL;
    int wd = -1;
    AUTO_FREE char *copy = memory_string(path);
    struct waiting waiting = {.event = FILES_CREATED, .is_folder = is_folder, .wd = -1, .path = copy};
    if (watch_events_take_move(&watch->events, event->cookie, &from, &wd)) {
        waiting.event = FILES_MOVED;
        waiting.from = from;
        watch_folders_move(&watch->folders, wd, event->wd, event->name);
    }
    /* A folder that has no watch yet: it came from elsewhere. */
    return add_event(watch, &waiting, err) &&
           (wd >= 0 || !is_folder || !watch->is_recursive || adopt(watch, event->wd, event->name, path, err));
}

/* Something in a folder. */
static bool on_name(struct watch *watch, const struct inotify_event *event, struct error *err)
{
    char path[PATH_MAX];
    if (!watch_folders_path(&watch->folders, event->wd, event->name, path)) {
        watch->helper->skipped++;
        return true;
    }
    bool is_folder = event->mask & IN_ISDIR;
    struct waiting waiting = {.event = FILES_MODIFIED, .is_folder = is_folder, .wd = -1, .path = path};
    if (event->mask & IN_MOVED_TO)
        return on_moved_in(watch, event, path, err);
    if (event->mask & IN_MOVED_FROM) {
        waiting.event = FILES_DELETED;
        waiting.cookie = event->cookie;
        waiting.wd = is_folder ? watch_folders_child(&watch->folders, event->wd, event->name) : -1;
    } else if (event->mask & IN_CREATE) {
        waiting.event = FILES_CREATED;
    } else if (event->mask & IN_DELETE) {
        waiting.event = FILES_DELETED;
    }
    if (!add_event(watch, &waiting, err))
        return false;
    bool is_new = (event->mask & IN_CREATE) && is_folder && watch->is_recursive;
    return !is_new || adopt(watch, event->wd, event->name, path, err);
}

/* What is watched itself, as a file. */
static bool on_top(struct watch *watch, const struct inotify_event *event, struct error *err)
{
    if (S_ISDIR(watch->top.st_mode) || !(event->mask & CHANGES))
        return true;
    if (event->mask & IN_ATTRIB) { /* perhaps its name went, though somebody has it open */
        AUTO_FD int top = open_top(watch);
        watch->is_gone = watch->is_gone || top < 0;
    }
    char none[1] = "";
    struct waiting waiting = {.event = FILES_MODIFIED, .wd = -1, .path = none};
    return watch->is_gone || add_event(watch, &waiting, err);
}

/* The kernel's queue was full: events are lost, and with them new folders perhaps. */
static bool start_over(struct watch *watch, struct error *err)
{
    watch_events_clear(&watch->events);
    int wd = -1;
    for (size_t i = 0; i < watch->folders.count; i++)
        wd = watch->folders.all[i].parent < 0 ? watch->folders.all[i].wd : wd;
    struct waiting overflow = {.event = FILES_OVERFLOW, .wd = -1};
    if (!tell(watch, &overflow, err) || !helper_flush(watch->helper, err))
        return false;
    if (!watch->is_recursive)
        return true;
    watch_folders_remove(&watch->folders, wd, false);
    AUTO_FD int top = open_top(watch);
    watch->is_gone = watch->is_gone || top < 0;
    return top < 0 || scan_below(watch, top, wd, "", false, err);
}

static bool on_event(struct watch *watch, const struct inotify_event *event, struct error *err)
{
    if (event->mask & IN_Q_OVERFLOW)
        return start_over(watch, err);
    const struct watched *watched = watch_folders_find(&watch->folders, event->wd);
    if (watched == NULL)
        return true;
    bool is_top = watched->parent < 0;
    if (is_top && (event->mask & (ITSELF | IN_UNMOUNT | IN_IGNORED)))
        watch->is_gone = true;
    else if (event->mask & IN_IGNORED)
        watch_folders_forget(&watch->folders, event->wd);
    else if (event->len > 0)
        return on_name(watch, event, err);
    else if (is_top)
        return on_top(watch, event, err);
    return true;
}

/* All that inotify has to tell now. */
static bool read_events(struct watch *watch, char *buffer, struct error *err)
{
    for (;;) {
        ssize_t size = read(watch->folders.inotify, buffer, BUFFER_BYTES);
        if (size < 0 && errno == EINTR)
            continue;
        if (size <= 0)
            return size == 0 || errno == EAGAIN || fail_errno(err, "reading inotify");
        for (ssize_t at = 0; at < size && !watch->is_gone;) {
            const struct inotify_event *event = (const void *)(buffer + at);
            if (!on_event(watch, event, err))
                return false;
            at += (ssize_t)(sizeof *event + event->len);
        }
        if (watch->is_gone || clock_monotonic_ns() >= watch_events_due_ns(&watch->events))
            return true;
    }
}

static bool follow(struct watch *watch, char *buffer, struct error *err)
{
    while (!watch->is_gone) {
        uint64_t due = watch_events_due_ns(&watch->events), now = clock_monotonic_ns();
        int wait_ms = due == 0 ? -1 : due <= now ? 0 : (int)((due - now) / 1000000 + 1);
        struct pollfd polled = {.fd = watch->folders.inotify, .events = POLLIN};
        if (poll(&polled, 1, wait_ms) < 0 && errno != EINTR)
            return fail_errno(err, "waiting for inotify");
        if (!read_events(watch, buffer, err))
            return false;
        due = watch_events_due_ns(&watch->events);
        now = clock_monotonic_ns();
        if (due > 0 && due <= now && !tell_due(watch, now, err))
            return false;
    }
    struct waiting gone = {.event = FILES_GONE, .is_folder = S_ISDIR(watch->top.st_mode), .wd = -1};
    return tell_due(watch, UINT64_MAX, err) && tell(watch, &gone, err);
}

static bool begin(struct watch *watch, struct error *err)
{
    const struct files_request *request = watch->helper->request;
    AUTO_FD int top = resolve_open(watch->helper, request->root, request->path, O_PATH, err);
    if (top < 0)
        return false;
    if (fstat(top, &watch->top) < 0)
        return fail_errno(err, "looking at what is to be watched");
    bool is_folder = S_ISDIR(watch->top.st_mode);
    watch->is_recursive = is_folder && (request->flags & FILES_RECURSIVE);
    int wd = watch_folders_add(&watch->folders, top, -1, "", (is_folder ? IN_A_FOLDER : CHANGES) | ITSELF, err);
    return wd >= 0 && (!watch->is_recursive || scan_below(watch, top, wd, "", false, err)) &&
           helper_entry(watch->helper, &watch->top, top, "", "", 0, err) && helper_flush(watch->helper, err);
}

bool files_watch(struct helper *helper, struct error *err)
{
    if (!helper_end_with_front(helper, err))
        return false;
    AUTO_FD int inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (inotify < 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "inotify_init1");
    struct watch watch = {.helper = helper, .folders = {.inotify = inotify}};
    watch_events_init(&watch.events);
    AUTO_FREE char *buffer = memory_new(BUFFER_BYTES);
    bool is_done = begin(&watch, err) && follow(&watch, buffer, err);
    if (!is_done && watch.events.count > 0) {
        struct error ignored = {0};
        (void)!tell_due(&watch, UINT64_MAX, &ignored);
    }
    watch_events_done(&watch.events);
    watch_folders_done(&watch.folders);
    return is_done;
}
