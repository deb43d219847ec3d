#include "clients/c/remote.h"

#include "clients/c/call.h"
#include "clients/c/remote_events.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"
#include "shared/capability/capability.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#define STDIN_CHUNK_BYTES (64 * 1024)
#define REFUSAL_MAX_BYTES (64 * 1024)
static const uint64_t RESUME_FOR_NS = 15000000000; /* how long a lost connection is tried again */
static const int RESUME_EVERY_MS = 200;
static const unsigned TURN_MAX_MS = 1000;
static const unsigned REFUSALS_MAX = 3; /* fresh tokens refused in a row */

/* One side request at a time each: stdin bytes in order, signals as typed. */
struct side_post {
    CURL *curl;
    struct curl_slist *headers;
    char *path, *body;
    size_t size;
    bool busy;
    bool waits;                    /* for a fresh token, to be sent again */
    char jti[CAPABILITY_ID_BYTES]; /* of the token it bore */
};

struct run {
    const struct grant *grant;
    const struct remote_command *command;
    struct remote_events events;
    CURLM *multi;
    CURL *main;
    struct curl_slist *main_headers;
    char *main_body, *main_url;
    struct text refusal; /* the body of a reply that is not 200 */
    struct side_post input, signal;
    struct grant_keeper *keeper;        /* NULL: none */
    bool main_waits;                    /* for a fresh token, to be sent again */
    char main_jti[CAPABILITY_ID_BYTES]; /* of the token it bore */
    unsigned refusals;                  /* in a row */
    bool input_ended;                   /* nothing more will be read from stdin_fd */
    uint64_t lost_since;                /* boot ns of the first failure in a row; 0 connected */
    unsigned interrupts;                /* how often the user pressed Ctrl-C */
};

void remote_command_new_id(struct remote_command *command)
{
    char id[RANDOM_ID_BYTES];
    random_id(id, "exc");
    snprintf(command->id, sizeof command->id, "%s", id);
}

static long status_of(CURL *curl)
{
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static size_t on_main_data(char *data, size_t one, size_t count, void *cookie)
{
    struct run *run = cookie;
    size_t size = one * count;
    if (status_of(run->main) != 200) {
        if (run->refusal.length + size <= REFUSAL_MAX_BYTES)
            text_append(&run->refusal, data, size);
        return size;
    }
    run->lost_since = 0;
    run->refusals = 0;
    return remote_events_feed(&run->events, data, size) ? size : 0;
}

static size_t ignore_data(char *data UNUSED, size_t one, size_t count, void *cookie UNUSED)
{
    return one * count;
}

static json_t *exec_body(const struct remote_command *command)
{
    json_t *body = json_object();
    json_t *arguments = json_array();
    for (size_t i = 0; command->arguments[i]; i++)
        json_array_append_new(arguments, json_string(command->arguments[i]));
    json_object_set_new(body, "argv", arguments);
    json_object_set_new(body, "id", json_string(command->id));
    if (command->cwd)
        json_object_set_new(body, "cwd", json_string(command->cwd));
    if (command->timeout_s > 0)
        json_object_set_new(body, "timeout", json_real(command->timeout_s));
    if (command->stdin_fd >= 0)
        json_object_set_new(body, "stdin_open", json_true());
    json_t *variables = json_object();
    for (size_t i = 0; command->variables && command->variables[i]; i++) {
        const char *equals = strchr(command->variables[i], '=');
        AUTO_FREE char *name = memory_copy(command->variables[i], (size_t)(equals - command->variables[i]));
        json_object_set_new(variables, name, json_string(equals + 1));
    }
    if (json_object_size(variables) > 0)
        json_object_set(body, "env", variables);
    json_decref(variables);
    return body;
}

/* The first connection starts the command (or attaches, by its id); later ones follow its output from where we are. */
static void prepare_main(struct run *run)
{
    free(run->main_url);
    curl_easy_reset(run->main);
    call_prepare(run->main);
    if (!run->events.end->started) {
        run->main_url = memory_printf("%s/exec", run->grant->http);
        curl_easy_setopt(run->main, CURLOPT_POSTFIELDS, run->main_body);
    } else {
        run->main_url = memory_printf("%s/processes/%s/output?follow=1&stdout_offset=%llu&stderr_offset=%llu",
                                      run->grant->http, run->command->id, (unsigned long long)run->events.offsets[0],
                                      (unsigned long long)run->events.offsets[1]);
    }
    curl_slist_free_all(run->main_headers);
    run->main_headers = call_add_credential(NULL, run->grant->token);
    run->main_headers = curl_slist_append(run->main_headers, "Content-Type: application/json");
    run->main_headers = curl_slist_append(run->main_headers, "Expect:");
    snprintf(run->main_jti, sizeof run->main_jti, "%s", run->grant->jti);
    curl_easy_setopt(run->main, CURLOPT_URL, run->main_url);
    curl_easy_setopt(run->main, CURLOPT_HTTPHEADER, run->main_headers);
    curl_easy_setopt(run->main, CURLOPT_WRITEFUNCTION, on_main_data);
    curl_easy_setopt(run->main, CURLOPT_WRITEDATA, run);
    run->refusal.length = 0;
    remote_events_restart(&run->events);
    curl_multi_add_handle(run->multi, run->main);
}

static void send_side(struct run *run, struct side_post *side)
{
    AUTO_FREE char *url = memory_printf("%s/processes/%s/%s", run->grant->http, run->command->id, side->path);
    curl_easy_reset(side->curl);
    call_prepare(side->curl);
    curl_slist_free_all(side->headers);
    side->headers = call_add_credential(NULL, run->grant->token);
    bool json = side == &run->signal;
    side->headers = curl_slist_append(side->headers, json ? "Content-Type: application/json"
                                                          : "Content-Type: application/octet-stream");
    side->headers = curl_slist_append(side->headers, "Expect:");
    snprintf(side->jti, sizeof side->jti, "%s", run->grant->jti);
    curl_easy_setopt(side->curl, CURLOPT_URL, url);
    curl_easy_setopt(side->curl, CURLOPT_HTTPHEADER, side->headers);
    curl_easy_setopt(side->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)side->size);
    curl_easy_setopt(side->curl, CURLOPT_POSTFIELDS, side->body);
    curl_easy_setopt(side->curl, CURLOPT_WRITEFUNCTION, ignore_data);
    curl_multi_add_handle(run->multi, side->curl);
    side->waits = false;
}

static void post(struct run *run, struct side_post *side, const char *path, const char *body, size_t size)
{
    if (!side->curl)
        side->curl = curl_easy_init();
    if (!side->curl)
        return;
    free(side->body);
    free(side->path);
    side->body = memory_copy(body, size);
    side->path = memory_string(path);
    side->size = size;
    side->busy = true;
    send_side(run, side);
}

static void read_stdin(struct run *run)
{
    char chunk[STDIN_CHUNK_BYTES];
    ssize_t got = read(run->command->stdin_fd, chunk, sizeof chunk);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0) {
        run->input_ended = true;
        post(run, &run->input, "stdin?eof=1", "", 0);
        return;
    }
    post(run, &run->input, "stdin", chunk, (size_t)got);
}

static bool abandon(struct run *run, enum error_kind kind, const char *sentence, struct error *err)
{
    run->events.end->abandoned = true;
    return error_set(err, kind, "%s", sentence);
}

/* Before the command started there is nobody to pass it to; the third Ctrl-C leaves at once. */
static bool read_signal(struct run *run, struct error *err)
{
    struct signalfd_siginfo info;
    if (read(run->command->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return true;
    int number = (int)info.ssi_signo;
    if (!run->events.end->started || (number == SIGINT && ++run->interrupts >= 3))
        return abandon(run, ERROR_TIMEOUT, "interrupted", err);
    if (number == SIGINT && run->interrupts == 2)
        number = SIGKILL;
    if (run->signal.busy)
        return true;
    AUTO_FREE char *body = memory_printf("{\"signal\":\"%s\"}", sigabbrev_np(number));
    post(run, &run->signal, "signal", body, strlen(body));
    return true;
}

static void wait_a_little(struct run *run)
{
    struct timespec pause = {.tv_nsec = RESUME_EVERY_MS * 1000000L};
    if (run->lost_since == 0) {
        run->lost_since = clock_boot_ns();
        if (run->command->note)
            run->command->note(run->command->cookie, "connection lost, resuming");
    }
    nanosleep(&pause, NULL);
}

static bool may_resume(const struct run *run)
{
    return run->lost_since == 0 || clock_boot_ns() - run->lost_since < RESUME_FOR_NS;
}

/* The token that something bore was refused: it goes again, at once if there is a fresh one by now, else when the
 * keeper has got one. */
static bool may_go_again(struct run *run, const char *jti, bool *waits)
{
    if (!run->keeper || !run->events.end->started || run->refusals >= REFUSALS_MAX)
        return false;
    run->refusals++;
    if (strcmp(jti, run->grant->jti) == 0)
        grant_keeper_refused(run->keeper);
    *waits = true;
    return true;
}

/* Sends what waits for a fresh token, once it is there. */
static bool send_waiting(struct run *run, struct error *err)
{
    if (!run->main_waits && !run->input.waits && !run->signal.waits)
        return true;
    enum grant_keeper_state state = grant_keeper_state(run->keeper, err);
    if (state == GRANT_KEEPER_TRYING)
        return true;
    if (state == GRANT_KEEPER_FAILED)
        return error_prefix(err, "the token ended and there is no other");
    run->lost_since = 0;
    if (run->main_waits)
        prepare_main(run);
    if (run->input.waits)
        send_side(run, &run->input);
    if (run->signal.waits)
        send_side(run, &run->signal);
    run->main_waits = false;
    return true;
}

static bool is_token_error(enum error_kind kind)
{
    return kind == ERROR_TOKEN_EXPIRED || kind == ERROR_TOKEN_REVOKED || kind == ERROR_UNAUTHENTICATED;
}

/* The main transfer ended before the exit event: refused, broken, or cut. */
static bool on_main_done(struct run *run, CURLcode code, struct error *err)
{
    long status = status_of(run->main);
    bool refused = is_token_error(run->events.error.kind) || (code == CURLE_OK && status == 401);
    if (refused && may_go_again(run, run->main_jti, &run->main_waits)) {
        run->events.error = (struct error){0};
        return true;
    }
    if (run->events.error.kind != ERROR_NONE) {
        *err = run->events.error;
        return false;
    }
    bool lost = (code != CURLE_OK && code != CURLE_WRITE_ERROR) || status == 200 || status == 503;
    if (lost && may_resume(run)) {
        wait_a_little(run);
        prepare_main(run);
        return true;
    }
    if (code != CURLE_OK)
        return call_failed(code, run->main_url, err);
    return call_refused(status, run->refusal.data, run->refusal.length, err);
}

/* A refusal of stdin means that the command wants no more of it. Bytes whose fate is unknown can be neither sent again
 * nor left out: the command must not go on with them missing. */
static bool on_input_done(struct run *run, CURLcode code, struct error *err)
{
    long status = status_of(run->input.curl);
    if (code == CURLE_OK && status == 401 && may_go_again(run, run->input.jti, &run->input.waits))
        return true; /* who it comes from is judged before any byte is taken */
    run->input.busy = false;
    if (code != CURLE_OK || status >= 500)
        return abandon(run, ERROR_NODE_UNREACHABLE, "stdin was cut when the connection broke; the command was ended",
                       err);
    if (status >= 400)
        run->input_ended = true;
    return true;
}

static void on_signal_done(struct run *run, CURLcode code)
{
    bool refused = code == CURLE_OK && status_of(run->signal.curl) == 401;
    run->signal.busy = refused && may_go_again(run, run->signal.jti, &run->signal.waits);
}

static bool take_results(struct run *run, struct error *err)
{
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(run->multi, &left)) != NULL;) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURL *done = message->easy_handle;
        CURLcode code = message->data.result;
        curl_multi_remove_handle(run->multi, done);
        if (done == run->main && !run->events.ended && !on_main_done(run, code, err))
            return false;
        if (done == run->input.curl && !run->events.ended && !on_input_done(run, code, err))
            return false;
        if (done == run->signal.curl)
            on_signal_done(run, code);
        if (run->keeper)
            (void)!grant_keeper_done(run->keeper, done, code);
    }
    return true;
}

static bool turn(struct run *run, struct error *err)
{
    int running;
    unsigned wait_ms = run->keeper ? grant_keeper_turn(run->keeper, run->multi) : TURN_MAX_MS;
    curl_multi_perform(run->multi, &running);
    if (!take_results(run, err))
        return false;
    if (run->events.ended)
        return true;
    if (!send_waiting(run, err))
        return false;
    struct curl_waitfd extra[2];
    unsigned count = 0;
    bool wants_input = run->command->stdin_fd >= 0 && run->events.end->started && !run->input_ended && !run->input.busy;
    if (wants_input)
        extra[count++] = (struct curl_waitfd){.fd = run->command->stdin_fd, .events = CURL_WAIT_POLLIN};
    if (run->command->signal_fd >= 0)
        extra[count++] = (struct curl_waitfd){.fd = run->command->signal_fd, .events = CURL_WAIT_POLLIN};
    curl_multi_poll(run->multi, extra, count, (int)(wait_ms < TURN_MAX_MS ? wait_ms : TURN_MAX_MS), NULL);
    if (wants_input && extra[0].revents)
        read_stdin(run);
    if (run->command->signal_fd >= 0 && extra[count - 1].revents)
        return read_signal(run, err);
    return true;
}

static void side_done(struct run *run, struct side_post *side)
{
    if (side->busy && !side->waits)
        curl_multi_remove_handle(run->multi, side->curl);
    curl_easy_cleanup(side->curl);
    curl_slist_free_all(side->headers);
    free(side->body);
    free(side->path);
}

static void run_done(struct run *run)
{
    grant_keeper_free(run->keeper);
    curl_multi_remove_handle(run->multi, run->main);
    side_done(run, &run->input);
    side_done(run, &run->signal);
    curl_easy_cleanup(run->main);
    curl_multi_cleanup(run->multi);
    curl_slist_free_all(run->main_headers);
    free(run->main_body);
    free(run->main_url);
    text_done(&run->refusal);
    remote_events_done(&run->events);
}

/* Best effort: what it waits for here will never come. */
static void end_command(const struct run *run)
{
    AUTO_FREE char *url = memory_printf("%s/processes/%s", run->grant->http, run->command->id);
    struct call call = {.method = "DELETE", .url = url, .credential = run->grant->token, .timeout_ms = 3000};
    (void)!call_json(&call, NULL, NULL, NULL);
}

bool remote_run(const struct grant *grant, const struct remote_command *command, struct remote_end *end,
                struct error *err)
{
    struct run run = {.grant = grant, .command = command, .events = {.command = command, .end = end}};
    *end = (struct remote_end){0};
    run.multi = curl_multi_init();
    run.main = curl_easy_init();
    if (!run.multi || !run.main) {
        curl_easy_cleanup(run.main);
        curl_multi_cleanup(run.multi);
        return error_set(err, ERROR_INTERNAL, "libcurl does not start");
    }
    json_t *body = exec_body(command);
    run.main_body = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (command->keeping)
        run.keeper = grant_keeper_new(command->keeping);
    bool good = run.main_body != NULL || error_set(err, ERROR_INVALID, "the command or its environment is not UTF-8");
    if (good)
        prepare_main(&run);
    while (good && !run.events.ended)
        good = turn(&run, err);
    if (!good && end->abandoned)
        end_command(&run);
    run_done(&run);
    return good;
}

bool remote_start(const struct grant *grant, const struct remote_command *command, struct error *err)
{
    AUTO_FREE char *url = memory_printf("%s/exec", grant->http);
    json_t *body = exec_body(command);
    json_object_set_new(body, "detach", json_true());
    struct call call = {.method = "POST", .url = url, .credential = grant->token, .body = body};
    bool started = call_json(&call, NULL, NULL, err);
    json_decref(body);
    return started;
}
