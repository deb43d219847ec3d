#include "sandboxd/helpers/jupyter/bridge_internal.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <zmq.h>

static const uint64_t MS = 1000000;
enum {
    INTERRUPT_WAIT_MS = 300, /* for a run that began and shows nothing: some kernels only then can be interrupted */
    IDLE_WAIT_MS = 10000,    /* for the end of a replied run whose idle status was lost */
    SHUTDOWN_MS = 3000,      /* for a kernel that was asked to go */
    LAST_WORDS_MS = 100,     /* of silence, after what a kernel that is gone had sent */
    LAST_WORDS_MAX_MS = 2000,
    TURN_MESSAGES_MAX = 256, /* of one channel before the others */
    COMPLAINTS_MAX = 3       /* of one run */
};

uint64_t bridge_ms_since(uint64_t then_ns)
{
    return (clock_monotonic_ns() - then_ns) / MS;
}

void bridge_enter(struct bridge *bridge, enum stage stage)
{
    bridge->stage = stage;
    bridge->since_ns = clock_monotonic_ns();
}

/* To whoever listens to the run, a few times for each. */
static void complain(struct bridge *bridge, const struct error *err)
{
    if (bridge->stage < STAGE_READY || bridge->complaints++ >= COMPLAINTS_MAX)
        return;
    AUTO_FREE char *text = memory_printf("parley-jupyter: left out: %s%s\n", err->message,
                                         bridge->complaints == COMPLAINTS_MAX ? "; no more of this is told" : "");
    frames_stream(&bridge->frames, "stderr", bridge->run.id, text, strlen(text));
}

bool bridge_ask(struct bridge *bridge, enum connection_channel channel, const char *type, json_t *content, char *id)
{
    char unwanted[MESSAGE_ID_BYTES];
    struct error err = {0};
    bool sent = channels_send(&bridge->channels, channel, type, content, id ? id : unwanted, &err);
    json_decref(content);
    if (!sent)
        complain(bridge, &err);
    return sent;
}

/* ---- messages ---- */

static void interrupt(struct bridge *bridge)
{
    bridge->wants_interrupt = false;
    bridge->run.was_interrupted = true;
    if (kernelspec_interrupts_by_message(bridge->spec))
        (void)!bridge_ask(bridge, CONNECTION_CONTROL, "interrupt_request", json_object(), NULL);
    else
        kernel_signal(&bridge->kernel, SIGINT);
}

static void on_message(struct bridge *bridge, enum connection_channel channel, const struct message *message)
{
    bridge->heard_ns = clock_monotonic_ns();
    if (channel == CONNECTION_IOPUB) {
        bridge->heard_iopub = true;
        if (bridge->stage >= STAGE_READY)
            run_on_iopub(&bridge->run, message, &bridge->frames);
    } else if (channel == CONNECTION_SHELL) {
        if (text_equal(message->type, "kernel_info_reply") && bridge->info == NULL)
            bridge->info = json_incref(message->content);
        run_on_reply(&bridge->run, message, &bridge->frames);
    } else if (channel == CONNECTION_STDIN && text_equal(message->type, "input_request") && bridge->run.is_active) {
        run_refuse_stdin(&bridge->run, &bridge->frames);
        interrupt(bridge);
    }
}

static void receive(struct bridge *bridge, enum connection_channel channel)
{
    for (int i = 0; i < TURN_MESSAGES_MAX && bridge->channels.context; i++) {
        struct message message = {.type = ""};
        struct error err = {0};
        enum channels_result result = channels_receive(&bridge->channels, channel, &message, &err);
        if (result == CHANNELS_NOTHING)
            return;
        if (result == CHANNELS_DROPPED)
            complain(bridge, &err);
        else
            on_message(bridge, channel, &message);
        message_done(&message);
    }
}

static void receive_all(struct bridge *bridge)
{
    receive(bridge, CONNECTION_IOPUB);
    receive(bridge, CONNECTION_STDIN);
    receive(bridge, CONNECTION_SHELL);
    receive(bridge, CONNECTION_CONTROL);
    output_drain(&bridge->output, &bridge->kernel, bridge->run.id, &bridge->frames);
}

/* ---- runs ---- */

static void begin_run(struct bridge *bridge, const struct request *request)
{
    char id[MESSAGE_ID_BYTES];
    json_t *content =
        json_pack("{s:O, s:b, s:b, s:{}, s:b, s:b}", "code", request->code, "silent", request->silent, "store_history",
                  !request->silent, "user_expressions", "allow_stdin", 0, "stop_on_error", 0);
    bridge->wants_interrupt = false;
    bridge->complaints = 0;
    bridge->heard_ns = clock_monotonic_ns();
    if (bridge_ask(bridge, CONNECTION_SHELL, "execute_request", content, id))
        run_begin(&bridge->run, request->run, id);
    else
        bridge->told_to_end = true; /* a kernel that takes no request is lost; its end is told */
}

static void end_kernel(struct bridge *bridge)
{
    if (bridge->channels.context)
        (void)!bridge_ask(bridge, CONNECTION_CONTROL, "shutdown_request", json_pack("{s:b}", "restart", 0), NULL);
    bridge_enter(bridge, STAGE_ENDING);
}

static bool take_request(struct bridge *bridge, struct error *err)
{
    struct request request;
    bool fine = requests_take(&bridge->requests, &request, err);
    if (fine && request.kind == REQUEST_RUN)
        begin_run(bridge, &request);
    else if (fine && request.kind == REQUEST_EXIT)
        end_kernel(bridge);
    request_done(&request);
    return fine;
}

static bool advance_run(struct bridge *bridge, struct error *err)
{
    struct run *run = &bridge->run;
    if (!run->is_active)
        return take_request(bridge, err);
    if (bridge->wants_interrupt &&
        (run->is_executing || (run->is_busy && bridge_ms_since(bridge->heard_ns) >= INTERRUPT_WAIT_MS)))
        interrupt(bridge);
    if (run->is_replied && (run->is_idle || bridge_ms_since(bridge->heard_ns) >= IDLE_WAIT_MS)) {
        output_drain(&bridge->output, &bridge->kernel, run->id, &bridge->frames);
        run_end(run, &bridge->frames);
        return take_request(bridge, err);
    }
    return true;
}

/* ---- the loop ---- */

static void on_signals(struct bridge *bridge)
{
    struct signalfd_siginfo told;
    while (read(bridge->signals, &told, sizeof told) == (ssize_t)sizeof told) {
        if (told.ssi_signo == SIGINT)
            bridge->wants_interrupt = bridge->run.is_active;
        else if (told.ssi_signo == SIGTERM)
            bridge->told_to_end = true;
    }
}

enum { ITEMS_MAX = 4 + CONNECTION_CHANNELS };

static int collect(const struct bridge *bridge, zmq_pollitem_t *items)
{
    int count = 0;
    const int outputs[] = {bridge->kernel.outputs[0], bridge->kernel.outputs[1]};
    bool takes_requests = bridge->stage == STAGE_READY && !bridge->run.is_active && !bridge->requests.has_ended;
    items[count++] = (zmq_pollitem_t){.fd = bridge->signals, .events = ZMQ_POLLIN};
    if (takes_requests)
        items[count++] = (zmq_pollitem_t){.fd = bridge->requests.fd, .events = ZMQ_POLLIN};
    for (int i = 0; i < 2; i++)
        if (outputs[i] >= 0)
            items[count++] = (zmq_pollitem_t){.fd = outputs[i], .events = ZMQ_POLLIN};
    for (int i = 0; i < CONNECTION_CHANNELS; i++)
        if (bridge->channels.sockets[i])
            items[count++] = (zmq_pollitem_t){.socket = bridge->channels.sockets[i], .events = ZMQ_POLLIN};
    return count;
}

/* ms; -1: until something comes. */
static long patience(const struct bridge *bridge)
{
    const struct run *run = &bridge->run;
    if (bridge->stage < STAGE_READY)
        return bridge_start_patience(bridge);
    if (bridge->stage == STAGE_ENDING)
        return SHUTDOWN_MS;
    if (run->is_active && bridge->wants_interrupt)
        return INTERRUPT_WAIT_MS;
    return run->is_active && run->is_replied ? IDLE_WAIT_MS : -1;
}

static bool read_requests(struct bridge *bridge, const zmq_pollitem_t *items, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        if (items[i].socket == NULL && items[i].fd == bridge->requests.fd &&
            (items[i].revents & (ZMQ_POLLIN | ZMQ_POLLERR)))
            return requests_read(&bridge->requests, err);
    return true;
}

static bool turn(struct bridge *bridge, struct error *err)
{
    zmq_pollitem_t items[ITEMS_MAX];
    int count = collect(bridge, items);
    if (zmq_poll(items, count, patience(bridge)) < 0 && zmq_errno() != EINTR)
        return error_set(err, ERROR_INTERNAL, "wait for the kernel: %s", zmq_strerror(zmq_errno()));
    on_signals(bridge);
    receive_all(bridge);
    if (!read_requests(bridge, items, count, err))
        return false;
    if (bridge->stage < STAGE_READY)
        return bridge_advance_start(bridge, err);
    return bridge->stage != STAGE_READY || advance_run(bridge, err);
}

/* What it had sent is still in its sockets, whose other end our thread reads. */
static void hear_last_words(struct bridge *bridge)
{
    uint64_t began_ns = clock_monotonic_ns();
    while (bridge_ms_since(began_ns) < LAST_WORDS_MAX_MS) { /* what it started may speak on */
        zmq_pollitem_t items[ITEMS_MAX];
        int count = 0;
        for (int j = 0; j < CONNECTION_CHANNELS; j++)
            if (bridge->channels.sockets[j])
                items[count++] = (zmq_pollitem_t){.socket = bridge->channels.sockets[j], .events = ZMQ_POLLIN};
        if (count == 0 || zmq_poll(items, count, LAST_WORDS_MS) <= 0)
            break;
        receive_all(bridge);
    }
    receive_all(bridge);
    if (bridge->run.is_active && bridge->run.is_replied)
        run_end(&bridge->run, &bridge->frames);
}

static int tell_death(struct bridge *bridge)
{
    char how[64];
    hear_last_words(bridge);
    kernel_tell_end(&bridge->kernel, how, sizeof how);
    AUTO_FREE char *message = memory_printf("the kernel %.80s %s%s", kernelspec_title(bridge->spec), how,
                                            bridge->run.was_interrupted && bridge->run.is_active
                                                ? ", when it was interrupted" /* xeus-python knows no other way */
                                                : "");
    frames_failed(&bridge->frames, message);
    return kernel_exit_status(&bridge->kernel);
}

/* Until the end, whose exit status it returns. */
static int serve(struct bridge *bridge)
{
    struct error err = {0};
    bool fine = bridge_start(bridge, kernelspec_wants_tcp(bridge->spec), &err);
    while (fine && !bridge->frames.broken) {
        fine = turn(bridge, &err);
        if (fine && bridge->stage < STAGE_READY && bridge->told_to_end)
            return 128 + SIGTERM;
        if (!fine || bridge->stage < STAGE_READY)
            continue;
        bool has_ended = kernel_has_ended(&bridge->kernel);
        if (bridge->stage == STAGE_ENDING && (has_ended || bridge_ms_since(bridge->since_ns) >= SHUTDOWN_MS)) {
            hear_last_words(bridge);
            return bridge->told_to_end ? 128 + SIGTERM : 0;
        }
        if (has_ended)
            return tell_death(bridge);
        if (bridge->told_to_end && bridge->stage != STAGE_ENDING)
            end_kernel(bridge);
    }
    if (!fine)
        frames_failed(&bridge->frames, err.message);
    return 1;
}

static bool catch_signals(struct bridge *bridge)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGINT, SIG_DFL); /* an ignored one would never come */
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGCHLD, SIG_DFL);
    bridge->signals = sigprocmask(SIG_BLOCK, &set, NULL) == 0 ? signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK) : -1;
    return bridge->signals >= 0;
}

int bridge_run(const struct kernelspec *spec, int requests, int frames)
{
    struct bridge bridge = {.spec = spec,
                            .kernel = KERNEL_NONE,
                            .connection = CONNECTION_NONE,
                            .frames = {.fd = frames},
                            .requests = {.fd = requests},
                            .signals = -1};
    int status = 1;
    if (catch_signals(&bridge))
        status = serve(&bridge);
    else
        frames_failed(&bridge.frames, "no descriptor for signals");
    bridge_stop(&bridge);
    run_done(&bridge.run);
    output_done(&bridge.output);
    requests_done(&bridge.requests);
    if (bridge.signals >= 0)
        close(bridge.signals);
    return status;
}
