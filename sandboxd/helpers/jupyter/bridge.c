#include "sandboxd/helpers/jupyter/bridge.h"

#include "sandboxd/helpers/jupyter/channels.h"
#include "sandboxd/helpers/jupyter/connection.h"
#include "sandboxd/helpers/jupyter/frames.h"
#include "sandboxd/helpers/jupyter/kernel.h"
#include "sandboxd/helpers/jupyter/output.h"
#include "sandboxd/helpers/jupyter/plain.h"
#include "sandboxd/helpers/jupyter/requests.h"
#include "sandboxd/helpers/jupyter/run.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <zmq.h>

static const uint64_t MS = 1000000;
enum {
    START_MAX_MS = 60000,    /* until the kernel has made its sockets, and as long again until it answers */
    SOCKETS_LOOK_MS = 4,     /* between two looks for them */
    GREET_AGAIN_MS = 20,     /* an answer came and its status did not: the subscription was not there yet */
    ASK_AGAIN_MS = 10000,    /* no answer came */
    INTERRUPT_WAIT_MS = 300, /* for a run that began and shows nothing: some kernels only then can be interrupted */
    IDLE_WAIT_MS = 10000,    /* for the end of a replied run whose idle status was lost */
    SHUTDOWN_MS = 3000,      /* for a kernel that was asked to go */
    LAST_WORDS_MS = 100,     /* of silence, after what a kernel that is gone had sent */
    LAST_WORDS_MAX_MS = 2000,
    TURN_MESSAGES_MAX = 256, /* of one channel before the others */
    COMPLAINTS_MAX = 3       /* of one run */
};

enum stage { STAGE_SOCKETS, STAGE_GREETING, STAGE_READY, STAGE_ENDING };

struct bridge {
    const struct kernelspec *spec;
    struct kernel kernel;
    struct connection connection;
    struct channels channels;
    struct frames frames;
    struct requests requests;
    struct output output;
    struct run run;
    int signals;
    enum stage stage;
    uint64_t since_ns, asked_ns; /* CLOCK_MONOTONIC: of the stage; of the last kernel_info_request */
    uint64_t heard_ns;           /* ... of the last message */
    json_t *info;                /* content of kernel_info_reply */
    bool heard_iopub;
    bool wants_interrupt;
    bool told_to_end; /* by a signal */
    int complaints;
};

static uint64_t ms_since(uint64_t then_ns)
{
    return (clock_monotonic_ns() - then_ns) / MS;
}

static void enter(struct bridge *bridge, enum stage stage)
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

static bool ask(struct bridge *bridge, enum connection_channel channel, const char *type, json_t *content, char *id)
{
    char unwanted[MESSAGE_ID_BYTES];
    struct error err = {0};
    bool sent = channels_send(&bridge->channels, channel, type, content, id ? id : unwanted, &err);
    json_decref(content);
    if (!sent)
        complain(bridge, &err);
    return sent;
}

/* ---- start ---- */

static bool start(struct bridge *bridge, bool tcp, struct error *err)
{
    if (!connection_make(&bridge->connection, tcp, bridge->spec->name, err) ||
        !kernel_start(&bridge->kernel, bridge->spec, bridge->connection.file, err))
        return false;
    enter(bridge, STAGE_SOCKETS);
    return true;
}

static void stop(struct bridge *bridge)
{
    kernel_end(&bridge->kernel);
    channels_done(&bridge->channels);
    connection_done(&bridge->connection);
    json_decref(TAKE(bridge->info));
    bridge->heard_iopub = false;
}

static void ask_info(struct bridge *bridge)
{
    bridge->asked_ns = clock_monotonic_ns();
    (void)!ask(bridge, CONNECTION_SHELL, "kernel_info_request", json_object(), NULL);
}

static bool look_for_sockets(struct bridge *bridge, struct error *err)
{
    char address[CONNECTION_ADDRESS_BYTES];
    for (int channel = 0; channel < CONNECTION_HEARTBEAT; channel++)
        if (!connection_address(&bridge->connection, (enum connection_channel)channel, address))
            return true;
    if (!channels_open(&bridge->channels, &bridge->connection, err))
        return false;
    enter(bridge, STAGE_GREETING);
    ask_info(bridge);
    return true;
}

static const char *info_text(const json_t *object, const char *name, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text && strlen(text) <= 128 ? text : otherwise;
}

/* ipykernel, since the versions that come with IPython 8, takes descriptors 1 and 2 for itself, tells what is written
 * there as its own messages, and writes a copy to where they led. */
static bool echoes_output(const json_t *info)
{
    const char *version = info_text(info, "implementation_version", "");
    return text_equal(info_text(info, "implementation", ""), "ipython") && strtol(version, NULL, 10) >= 8;
}

static void tell_ready(struct bridge *bridge)
{
    const json_t *language = json_object_get(bridge->info, "language_info");
    AUTO_FREE char *implementation =
        memory_printf("jupyter:%s %s %s", bridge->spec->name, info_text(bridge->info, "implementation", "kernel"),
                      info_text(bridge->info, "implementation_version", ""));
    const struct frames_ready ready = {.language = info_text(language, "name", bridge->spec->name),
                                       .version = info_text(language, "version", ""),
                                       .implementation = implementation};
    bridge->output.is_shown = !echoes_output(bridge->info);
    bridge->output.early.length = 0;
    frames_ready(&bridge->frames, &ready);
    enter(bridge, STAGE_READY);
}

static void greet(struct bridge *bridge)
{
    if (bridge->info && bridge->heard_iopub)
        tell_ready(bridge);
    else if (ms_since(bridge->asked_ns) >= (bridge->info ? GREET_AGAIN_MS : ASK_AGAIN_MS))
        ask_info(bridge);
}

/* Of what it wrote, which mostly says why it ended. */
static void append_last_line(struct text *to, const struct text *early)
{
    AUTO_TEXT plain = {0};
    plain_append_uncoloured(&plain, early->data, early->length);
    size_t end = plain.length;
    while (end > 0 && isspace((unsigned char)plain.data[end - 1]))
        end--;
    size_t start = end;
    while (start > 0 && plain.data[start - 1] != '\n')
        start--;
    text_append(to, start < end ? plain.data + start : "", end - start);
}

/* One that did not come up over sockets in a folder may over TCP; one that did not over TCP does not. */
static bool start_over_tcp(struct bridge *bridge, const char *why, struct error *err)
{
    bool may = !bridge->connection.is_tcp && !bridge->told_to_end;
    stop(bridge);
    if (may)
        return start(bridge, true, err);
    AUTO_TEXT last = {0};
    append_last_line(&last, &bridge->output.early);
    return error_set(err, ERROR_INTERNAL, "the kernel %.80s %s%s%.150s", kernelspec_title(bridge->spec), why,
                     last.length ? ": " : "", last.length ? last.data : "");
}

static bool advance_start(struct bridge *bridge, struct error *err)
{
    char how[64];
    if (kernel_has_ended(&bridge->kernel)) {
        output_drain(&bridge->output, &bridge->kernel, "", &bridge->frames);
        kernel_tell_end(&bridge->kernel, how, sizeof how);
        return start_over_tcp(bridge, how, err);
    }
    if (ms_since(bridge->since_ns) > START_MAX_MS)
        return start_over_tcp(bridge, "does not answer", err);
    if (bridge->stage == STAGE_SOCKETS)
        return look_for_sockets(bridge, err);
    greet(bridge);
    return true;
}

/* ---- messages ---- */

static void interrupt(struct bridge *bridge)
{
    bridge->wants_interrupt = false;
    bridge->run.was_interrupted = true;
    if (kernelspec_interrupts_by_message(bridge->spec))
        (void)!ask(bridge, CONNECTION_CONTROL, "interrupt_request", json_object(), NULL);
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
    json_t *content = json_pack("{s:O, s:b, s:b, s:{}, s:b, s:b}", "code", request->code, "silent", request->silent,
                                "store_history", !request->silent, "user_expressions", "allow_stdin", 0,
                                "stop_on_error", 0);
    bridge->wants_interrupt = false;
    bridge->complaints = 0;
    bridge->heard_ns = clock_monotonic_ns();
    if (ask(bridge, CONNECTION_SHELL, "execute_request", content, id))
        run_begin(&bridge->run, request->run, id);
    else
        bridge->told_to_end = true; /* a kernel that takes no request is lost; its end is told */
}

static void end_kernel(struct bridge *bridge)
{
    if (bridge->channels.context)
        (void)!ask(bridge, CONNECTION_CONTROL, "shutdown_request", json_pack("{s:b}", "restart", 0), NULL);
    enter(bridge, STAGE_ENDING);
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
    if (bridge->wants_interrupt && (run->is_executing || (run->is_busy && ms_since(bridge->heard_ns) >= INTERRUPT_WAIT_MS)))
        interrupt(bridge);
    if (run->is_replied && (run->is_idle || ms_since(bridge->heard_ns) >= IDLE_WAIT_MS)) {
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
    if (bridge->stage == STAGE_SOCKETS)
        return SOCKETS_LOOK_MS;
    if (bridge->stage == STAGE_GREETING)
        return bridge->info ? GREET_AGAIN_MS : START_MAX_MS / 100;
    if (bridge->stage == STAGE_ENDING)
        return SHUTDOWN_MS;
    if (run->is_active && bridge->wants_interrupt)
        return INTERRUPT_WAIT_MS;
    return run->is_active && run->is_replied ? IDLE_WAIT_MS : -1;
}

static bool read_requests(struct bridge *bridge, const zmq_pollitem_t *items, int count, struct error *err)
{
    for (int i = 0; i < count; i++)
        if (items[i].socket == NULL && items[i].fd == bridge->requests.fd && (items[i].revents & (ZMQ_POLLIN | ZMQ_POLLERR)))
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
        return advance_start(bridge, err);
    return bridge->stage != STAGE_READY || advance_run(bridge, err);
}

/* What it had sent is still in its sockets, whose other end our thread reads. */
static void hear_last_words(struct bridge *bridge)
{
    uint64_t began_ns = clock_monotonic_ns();
    while (ms_since(began_ns) < LAST_WORDS_MAX_MS) { /* what it started may speak on */
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
    bool fine = start(bridge, kernelspec_wants_tcp(bridge->spec), &err);
    while (fine && !bridge->frames.broken) {
        fine = turn(bridge, &err);
        if (fine && bridge->stage < STAGE_READY && bridge->told_to_end)
            return 128 + SIGTERM;
        if (!fine || bridge->stage < STAGE_READY)
            continue;
        bool has_ended = kernel_has_ended(&bridge->kernel);
        if (bridge->stage == STAGE_ENDING && (has_ended || ms_since(bridge->since_ns) >= SHUTDOWN_MS)) {
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
    stop(&bridge);
    run_done(&bridge.run);
    output_done(&bridge.output);
    requests_done(&bridge.requests);
    if (bridge.signals >= 0)
        close(bridge.signals);
    return status;
}
