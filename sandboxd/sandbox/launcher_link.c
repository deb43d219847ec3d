/* launcher_link.c - the front's end of the socket to the launcher. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "sandboxd/sandbox/paused_marks.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <string.h>

/* A question under way, or a message that waits for a full socket. */
struct question {
    struct question *next;
    struct launcher_link *link;
    uint64_t request;
    struct verb *asked; /* NULL: nobody waits */
    struct front_launcher_message message;
};

struct launcher_link {
    struct sandboxes *all;
    int socket; /* until loop 0 has started */
    struct loop_watch *watch;
    uint64_t next_request;
    struct question *asked; /* waiting for their answers */
    struct question *unsent, *unsent_last;
    bool writing;
};

struct launcher_link *launcher_link_new(struct sandboxes *all, int socket)
{
    struct launcher_link *link = memory_new(sizeof *link);
    link->all = all;
    link->socket = socket;
    link->next_request = 1;
    return link;
}

static void free_questions(struct question *question)
{
    for (struct question *next; question; question = next) {
        next = question->next;
        if (question->asked)
            verb_finish(question->asked, NULL);
        free(question);
    }
}

void launcher_link_free(struct launcher_link *link)
{
    if (!link)
        return;
    launcher_link_stop(link);
    free(link);
}

/* ---- what the launcher says ---- */

/* A sandbox on its way to its loop. */
struct arrival {
    struct sandboxes *all;
    struct fl_sandbox facts;
    int fds[FL_FDS];
    size_t fd_count;
    bool hold;
    struct verb *asked;
};

static void arrive(void *cookie)
{
    struct arrival *arrival = cookie;
    if (!arrival->all->stopping)
        sandbox_put(arrival->all, &arrival->facts, arrival->fds, arrival->fd_count, arrival->hold, arrival->asked);
    else if (arrival->asked)
        verb_finish(arrival->asked, NULL);
    for (size_t i = 0; i < arrival->fd_count; i++)
        if (arrival->fds[i] >= 0)
            close(arrival->fds[i]);
    free(arrival);
}

/* A sandbox that has ended meanwhile is not taken: its descriptors are closed by the caller. */
static bool take_sandbox(struct launcher_link *link, const struct fl_sandbox *facts, int *fds, size_t fd_count,
                         bool hold, struct verb *asked)
{
    struct sandboxes *all = link->all;
    if (!registry_put(all->registry, facts, clock_wall_ms()))
        return false;
    /* Another loop may be asked of it before its own has taken it up, which looks whether it is frozen indeed. */
    if (hold && paused_is_marked(all->options.paused_folder, facts->id))
        registry_set_paused(all->registry, facts->id, true, clock_wall_ms());
    struct arrival *arrival = memory_new(sizeof *arrival);
    *arrival = (struct arrival){.all = all, .facts = *facts, .fd_count = fd_count, .hold = hold, .asked = asked};
    key_done(&arrival->facts.root);
    for (size_t i = 0; i < fd_count; i++)
        arrival->fds[i] = TAKE_FD(fds[i]);
    sandboxes_post(all, registry_owner(all->registry, facts->id), arrive, arrival);
    return true;
}

struct departure {
    struct sandboxes *all;
    char id[FRONT_LAUNCHER_ID_BYTES];
};

static void depart(void *cookie)
{
    struct departure *departure = cookie;
    sandbox_gone(departure->all, departure->id);
    free(departure);
}

static void take_end(struct launcher_link *link, const struct fl_ended *ended)
{
    struct sandboxes *all = link->all;
    AUTO_REGISTRY_VIEW view = {0};
    if (strcmp(ended->reason, "unknown") == 0 && !registry_find(all->registry, ended->id, &view))
        return; /* nobody has ever had it: its id may be used */
    if (!registry_ended(all->registry, ended, clock_wall_ms()))
        return;
    log_info("sandbox", "sandbox ended sandbox=%s reason=%s", ended->id, ended->reason);
    struct departure *departure = memory_new(sizeof *departure);
    departure->all = all;
    memcpy(departure->id, ended->id, sizeof departure->id);
    sandboxes_post(all, registry_owner(all->registry, ended->id), depart, departure);
    if (all->options.ended)
        all->options.ended(all->options.context);
}

static struct verb *take_asked(struct launcher_link *link, uint64_t request)
{
    for (struct question **at = &link->asked; *at; at = &(*at)->next)
        if ((*at)->request == request) {
            struct question *question = *at;
            *at = question->next;
            struct verb *asked = question->asked;
            free(question);
            return asked;
        }
    return NULL;
}

static void take_facts(struct verb *asked, const struct front_launcher_message *message)
{
    if (message->type == FL_USED)
        asked->disk_bytes = message->as.used.disk_bytes;
    if (message->type != FL_KEPT)
        return;
    const struct fl_kept *kept = &message->as.kept;
    asked->kept.size_bytes = kept->size_bytes;
    memcpy(asked->kept.template_name, kept->template_name, sizeof asked->kept.template_name);
    memcpy(asked->kept.storage, kept->storage, sizeof asked->kept.storage);
}

static void take_message(struct launcher_link *link, struct front_launcher_message *message, int *fds, size_t fd_count)
{
    struct verb *asked = message->request ? take_asked(link, message->request) : NULL;
    if (message->type == FL_SANDBOX) {
        bool taken = take_sandbox(link, &message->as.sandbox, fds, fd_count, message->as.sandbox.reused != 0, asked);
        key_done(&message->as.sandbox.root);
        if (taken || !asked)
            return;
        struct error err = {0};
        sandboxes_why_gone(link->all, message->as.sandbox.id, &err);
        verb_finish(asked, &err);
        return;
    }
    if (message->type == FL_ENDED) {
        take_end(link, &message->as.ended);
        key_done(&message->as.ended.root);
    }
    if (message->type == FL_TEMPLATE)
        template_list_take(link->all->templates, &message->as.template);
    if (asked)
        take_facts(asked, message);
    if (asked && message->type == FL_EVIDENT)
        asked->fd = TAKE_FD(fds[0]);
    if (asked)
        verb_finish(asked, message->type == FL_REFUSED ? &message->as.refused : NULL);
}

static void close_rest(const int *fds, size_t fd_count)
{
    for (size_t i = 0; i < fd_count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* The negotiator hears at once of a template that is new: whoever made it uses it next. */
static void settle_templates(struct launcher_link *link)
{
    const struct sandboxes_options *options = &link->all->options;
    if (template_list_settle(link->all->templates) && options->templates_changed)
        options->templates_changed(options->context);
}

static void on_readable(void *cookie)
{
    struct launcher_link *link = cookie;
    for (int i = 0; i < 64; i++) {
        struct front_launcher_message message;
        int fds[FD_MESSAGE_FDS];
        size_t fd_count = 0;
        struct error err = {0};
        int got = front_launcher_receive(loop_watch_fd(link->watch), &message, FL_FROM_LAUNCHER, fds, &fd_count, &err);
        if (got < 0 && err.system_errno == EAGAIN) {
            settle_templates(link);
            return;
        }
        if (got <= 0) {
            log_error("front", "the launcher is gone: %s", got < 0 ? err.message : "its socket was closed");
            loop_watch_readable(link->watch, NULL, NULL);
            link->all->options.launcher_gone(link->all->options.context);
            return;
        }
        take_message(link, &message, fds, fd_count);
        close_rest(fds, fd_count);
    }
}

/* ---- the beginning ---- */

bool launcher_link_meet(struct launcher_link *link, struct fl_identity *identity, struct error *err)
{
    struct front_launcher_message message = {.type = FL_READY};
    if (!front_launcher_send(link->socket, &message, NULL, 0, err))
        return false;
    for (bool identified = false;;) {
        int fds[FD_MESSAGE_FDS];
        size_t fd_count = 0;
        int got = front_launcher_receive(link->socket, &message, FL_FROM_LAUNCHER, fds, &fd_count, err);
        if (got == 0)
            return error_set(err, ERROR_INTERNAL, "the launcher closed its socket");
        if (got < 0)
            return false;
        if (message.type == FL_IDENTITY) {
            *identity = message.as.identity;
            explicit_bzero(&message.as.identity, sizeof message.as.identity);
            identified = true;
        } else if (message.type == FL_SANDBOX) {
            (void)take_sandbox(link, &message.as.sandbox, fds, fd_count, true, NULL);
            key_done(&message.as.sandbox.root);
        } else if (message.type == FL_ENDED) {
            take_end(link, &message.as.ended);
            key_done(&message.as.ended.root);
        } else if (message.type == FL_TEMPLATE) {
            template_list_take(link->all->templates, &message.as.template);
        } else if (message.type == FL_REFUSED) {
            *err = message.as.refused;
            return false;
        }
        close_rest(fds, fd_count);
        if (message.type == FL_ADOPTED)
            (void)template_list_settle(link->all->templates);
        if (message.type == FL_ADOPTED)
            return identified || error_set(err, ERROR_INTERNAL, "the launcher did not say who this node is");
    }
}

/* ---- questions ---- */

static void send_unsent(void *cookie)
{
    struct launcher_link *link = cookie;
    link->writing = false;
    while (link->watch && link->unsent) {
        struct question *question = link->unsent;
        struct error err = {0};
        if (!front_launcher_send(loop_watch_fd(link->watch), &question->message, NULL, 0, &err)) {
            if (err.system_errno != EAGAIN)
                return; /* the read side sees the end */
            link->writing = true;
            loop_watch_writable(link->watch, send_unsent, link);
            return;
        }
        link->unsent = question->next;
        if (!link->unsent)
            link->unsent_last = NULL;
        question->next = link->asked;
        if (question->asked)
            link->asked = question;
        else
            free(question);
    }
}

void launcher_link_start(struct launcher_link *link, struct loop *loop)
{
    struct error err = {0};
    if (!fd_set_nonblocking(link->socket, &err))
        log_error("front", "%s", err.message);
    link->watch = loop_watch_new(loop, TAKE_FD(link->socket));
    loop_watch_readable(link->watch, on_readable, link);
    send_unsent(link);
}

void launcher_link_stop(struct launcher_link *link)
{
    loop_watch_free(TAKE(link->watch));
    free_questions(TAKE(link->asked));
    free_questions(TAKE(link->unsent));
    link->unsent_last = NULL;
    if (link->socket >= 0)
        close(link->socket);
    link->socket = -1;
}

static void ask_on_loop(void *cookie)
{
    struct question *question = cookie;
    struct launcher_link *link = question->link;
    question->request = question->message.request = link->next_request++;
    if (link->unsent_last)
        link->unsent_last->next = question;
    else
        link->unsent = question;
    link->unsent_last = question;
    if (!link->writing)
        send_unsent(link);
}

void launcher_link_ask(struct launcher_link *link, const struct front_launcher_message *message, struct verb *asked)
{
    struct error err = {0};
    if (!front_launcher_check(message, front_launcher_size(message->type), 0, FL_FROM_FRONT, &err)) {
        log_warn("sandbox", "not said to the launcher: %s", err.message);
        if (asked)
            verb_finish(asked, &err);
        return;
    }
    struct question *question = memory_new(sizeof *question);
    *question = (struct question){.link = link, .asked = asked, .message = *message};
    sandboxes_post(link->all, 0, ask_on_loop, question);
}
