#include "sandboxd/egress/launcher_line.h"

#include "shared/base/memory.h"

#include <errno.h>
#include <string.h>

enum { MESSAGES_A_TURN = 32 };

struct asked {
    struct asked *next;
    uint64_t request;
    void (*done)(void *cookie, bool ok);
    void *cookie;
};

/* What the full socket did not take yet. */
struct waiting {
    struct waiting *next;
    struct launcher_egress_message message;
};

struct launcher_line {
    struct loop_watch *watch;
    struct launcher_line_face face;
    uint64_t last_request;
    struct asked *asked;
    struct waiting *first, **last;
    bool is_broken;
};

static void broken(struct launcher_line *line, const struct error *err)
{
    if (line->is_broken)
        return;
    line->is_broken = true;
    loop_watch_readable(line->watch, NULL, NULL);
    line->face.gone(line->face.cookie, err);
}

/* ---- out ---- */

static void on_writable(void *cookie)
{
    struct launcher_line *line = cookie;
    while (line->first != NULL && !line->is_broken) {
        struct error err = {0};
        struct waiting *first = line->first;
        if (!launcher_egress_send(loop_watch_fd(line->watch), &first->message, NULL, 0, &err)) {
            if (err.system_errno == EAGAIN)
                loop_watch_writable(line->watch, on_writable, line);
            else
                broken(line, &err);
            return;
        }
        line->first = first->next;
        line->last = line->first != NULL ? line->last : &line->first;
        free(first);
    }
}

static void say(struct launcher_line *line, const struct launcher_egress_message *message)
{
    struct waiting *waiting = memory_new(sizeof *waiting);
    bool was_empty = line->first == NULL;
    waiting->message = *message;
    *line->last = waiting;
    line->last = &waiting->next;
    if (was_empty)
        on_writable(line);
}

void launcher_line_ready(struct launcher_line *line)
{
    const struct launcher_egress_message message = {.type = EG_READY};
    say(line, &message);
}

uint64_t launcher_line_pin(struct launcher_line *line, const struct eg_pin *pin, void (*done)(void *cookie, bool ok),
                           void *cookie)
{
    struct asked *asked = memory_new(sizeof *asked);
    *asked = (struct asked){.next = line->asked, .request = ++line->last_request, .done = done, .cookie = cookie};
    line->asked = asked;
    const struct launcher_egress_message message = {.type = EG_PIN, .request = asked->request, .as.pin = *pin};
    say(line, &message);
    return message.request;
}

/* ---- in ---- */

void launcher_line_cancel(struct launcher_line *line, uint64_t request)
{
    for (struct asked *asked = line->asked; asked != NULL; asked = asked->next)
        asked->done = asked->request == request ? NULL : asked->done;
}

static void on_pinned(struct launcher_line *line, const struct launcher_egress_message *message)
{
    struct asked **at = &line->asked;
    while (*at != NULL && (*at)->request != message->request)
        at = &(*at)->next;
    AUTO_FREE struct asked *asked = *at;
    if (asked == NULL)
        return;
    *at = asked->next;
    if (asked->done != NULL)
        asked->done(asked->cookie, message->as.pinned.ok);
}

static void on_readable(void *cookie)
{
    struct launcher_line *line = cookie;
    for (int i = 0; i < MESSAGES_A_TURN && !line->is_broken; i++) {
        struct launcher_egress_message message;
        struct error err = {0};
        int fds[EG_FDS];
        size_t count = 0;
        int got = launcher_egress_receive(loop_watch_fd(line->watch), &message, EG_FROM_LAUNCHER, fds, &count, &err);
        if (got < 0 && err.system_errno == EAGAIN)
            return;
        if (got == 0)
            (void)error_set(&err, ERROR_GONE, "the launcher has ended");
        if (got <= 0)
            broken(line, &err);
        else if (message.type == EG_PINNED)
            on_pinned(line, &message);
        else
            line->face.message(line->face.cookie, &message, fds, count);
    }
}

struct launcher_line *launcher_line_new(struct loop *loop, int socket, const struct launcher_line_face *face)
{
    struct launcher_line *line = memory_new(sizeof *line);
    *line = (struct launcher_line){.watch = loop_watch_new(loop, socket), .face = *face, .last = &line->first};
    loop_watch_readable(line->watch, on_readable, line);
    return line;
}

void launcher_line_free(struct launcher_line *line)
{
    if (line == NULL)
        return;
    loop_watch_free(line->watch);
    while (line->asked != NULL) {
        struct asked *asked = line->asked;
        line->asked = asked->next;
        free(asked);
    }
    while (line->first != NULL) {
        struct waiting *first = line->first;
        line->first = first->next;
        free(first);
    }
    free(line);
}
