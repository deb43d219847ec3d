#include "clients/c/terminal.h"

#include "clients/c/terminal_frames.h"
#include "clients/c/terminal_internal.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static const unsigned TURN_MAX_MS = 1000;
static const unsigned RETRY_FIRST_MS = 50, RETRY_LAST_MS = 3000;
static const unsigned BEGIN_FOR_S = 15; /* how long a connection is tried before the first word of the process */
static const unsigned REFUSALS_MAX = 3; /* fresh tokens refused in a row */
static const uint64_t NS_PER_MS = 1000000;

void terminal_note(const struct terminal *terminal, const char *sentence)
{
    if (terminal->wanted.note)
        terminal->wanted.note(terminal->wanted.cookie, sentence);
}

/* The first failure is the one that counts. */
static void fail(struct terminal *terminal, const struct error *err)
{
    if (terminal->failure.kind == ERROR_NONE)
        terminal->failure = *err;
}

void terminal_fail(struct terminal *terminal, enum error_kind kind, const char *sentence)
{
    struct error err = {0};
    error_set(&err, kind, "%s", sentence);
    fail(terminal, &err);
}

bool terminal_is_token_error(enum error_kind kind)
{
    return kind == ERROR_TOKEN_EXPIRED || kind == ERROR_TOKEN_REVOKED || kind == ERROR_UNAUTHENTICATED;
}

bool terminal_may_pass(enum error_kind kind)
{
    return kind == ERROR_NODE_UNREACHABLE || kind == ERROR_TIMEOUT || error_retryable(kind);
}

/* ---- the token ---- */

/* The grant's token as it is to be shown; the caller wipes and frees. */
static char *credential(struct terminal *terminal)
{
    const struct grant *grant = terminal->wanted.keeping->grant;
    snprintf(terminal->jti, sizeof terminal->jti, "%s", grant->jti);
    if (!terminal->wanted.narrow_to)
        return memory_string(grant->token);
    char *narrowed = memory_new(CAPABILITY_TEXT_BYTES);
    struct error err = {0};
    if (capability_attenuate(narrowed, grant->token, &(struct capability_link){.scope = terminal->wanted.narrow_to},
                             &err))
        return narrowed;
    free(narrowed);
    error_prefix(&err, "the token cannot be narrowed");
    fail(terminal, &err);
    return NULL;
}

static void wipe(char *secret)
{
    if (secret)
        sodium_memzero(secret, strlen(secret));
    free(secret);
}

void terminal_send(struct terminal *terminal, const char *frame)
{
    if (frame && terminal->socket)
        websocket_send(terminal->socket, true, frame, strlen(frame));
}

/* The grant was refreshed meanwhile: the socket goes on with its token. */
static void renew_token(struct terminal *terminal)
{
    if (!terminal->attached || strcmp(terminal->jti, terminal->wanted.keeping->grant->jti) == 0)
        return;
    char *token = credential(terminal);
    char *frame = token ? terminal_frame_auth(token) : NULL;
    terminal_send(terminal, frame);
    wipe(frame);
    wipe(token);
}

/* Whether it is worth another try: with a token that is fresh by then. */
static bool take_refusal(struct terminal *terminal)
{
    if (!terminal->facts.started || ++terminal->refusals > REFUSALS_MAX)
        return false;
    if (strcmp(terminal->jti, terminal->wanted.keeping->grant->jti) == 0)
        grant_keeper_refused(terminal->keeper);
    terminal->waits_for_token = true;
    return true;
}

void terminal_send_size(struct terminal *terminal)
{
    const struct terminal_facts *facts = &terminal->facts;
    bool known = terminal->columns && terminal->rows;
    if (!terminal->attached || !facts->tty || !facts->drives || !known ||
        (facts->columns == terminal->columns && facts->rows == terminal->rows))
        return;
    AUTO_FREE char *frame = terminal_frame_resize(terminal->columns, terminal->rows);
    terminal_send(terminal, frame);
    terminal->facts.columns = terminal->columns;
    terminal->facts.rows = terminal->rows;
}

/* ---- the connection ---- */

static unsigned long long ms_since(uint64_t then)
{
    uint64_t now = clock_boot_ns();
    return now > then ? (now - then) / NS_PER_MS : 0;
}

static void connect_now(struct terminal *terminal)
{
    char *token = credential(terminal);
    if (!token)
        return;
    struct error err = {0};
    AUTO_FREE char *url = memory_printf("%s/ws", terminal->wanted.keeping->grant->http);
    const struct websocket_wanted wanted = {
        .url = url, .credential = token, .message = terminal_read, .cookie = terminal};
    terminal->greeted = terminal->attached = false;
    terminal->said = (struct error){0};
    terminal->socket = websocket_new(&wanted, terminal->multi, &err);
    if (!terminal->socket)
        fail(terminal, &err);
    wipe(token);
}

/* Makes the next connection once it is due, and there is a token for it. */
static void connect_when_due(struct terminal *terminal)
{
    if (terminal->socket || clock_boot_ns() < terminal->retry_ns)
        return;
    struct error err = {0};
    enum grant_keeper_state state =
        terminal->waits_for_token ? grant_keeper_state(terminal->keeper, &err) : GRANT_KEEPER_FRESH;
    if (state == GRANT_KEEPER_TRYING)
        return;
    terminal->waits_for_token = false;
    if (state == GRANT_KEEPER_FRESH) {
        connect_now(terminal);
        return;
    }
    error_prefix(&err, "the token ended and there is no other");
    fail(terminal, &err);
}

static void retry_later(struct terminal *terminal, const struct error *err)
{
    unsigned for_s = terminal->facts.started ? terminal->wanted.resume_for_s : BEGIN_FOR_S;
    if (terminal->lost_ns == 0)
        terminal->lost_ns = clock_boot_ns();
    if (for_s && ms_since(terminal->lost_ns) > for_s * 1000ULL) {
        fail(terminal, err);
        return;
    }
    unsigned wait_ms = RETRY_FIRST_MS << (terminal->tries < 8 ? terminal->tries : 8);
    wait_ms = wait_ms < RETRY_LAST_MS ? wait_ms : RETRY_LAST_MS;
    terminal->tries++;
    terminal->retry_ns = clock_boot_ns() + wait_ms * NS_PER_MS;
}

/* Why the socket ended, in our kinds. */
static void reason_of(const struct terminal *terminal, const struct websocket_end *end, struct error *err)
{
    const char *reason = end->reason[0] ? end->reason : "no reason was told";
    bool said = terminal->said.kind != ERROR_NONE;
    switch (end->code) {
    case 0:
        *err = end->error;
        return;
    case 4401:
        error_set(err, error_kind_of_code(reason), "%s", said ? terminal->said.message : reason);
        if (!terminal_is_token_error(err->kind))
            err->kind = ERROR_UNAUTHENTICATED;
        return;
    case 4403:
        error_set(err, ERROR_CAPABILITY_DENIED, "%s", said ? terminal->said.message : reason);
        return;
    case 4410:
        error_set(err, ERROR_GONE, "the sandbox is gone: %s", reason);
        return;
    case 4429:
        error_set(err, ERROR_RATE_LIMITED, "%s", reason);
        return;
    case 4400: /* both are told by one who found a mistake of ours or the other's: again would be the same */
    case 1002:
    case 1003:
    case 1007:
    case 1009:
        error_set(err, ERROR_INTERNAL, "the WebSocket was ended with %d: %s", end->code,
                  said ? terminal->said.message : reason);
        return;
    default:
        error_set(err, ERROR_NODE_UNREACHABLE, "the connection to the sandbox broke");
    }
}

static void on_closed(struct terminal *terminal, const struct websocket_end *end)
{
    struct error err = {0};
    reason_of(terminal, end, &err);
    websocket_free(TAKE(terminal->socket));
    terminal->attached = false;
    if (terminal_is_token_error(err.kind) && take_refusal(terminal)) {
        retry_later(terminal, &err);
        return;
    }
    if (terminal_may_pass(err.kind))
        retry_later(terminal, &err);
    else
        fail(terminal, &err);
}

static void greet(struct terminal *terminal)
{
    bool starts = terminal->wanted.use == TERMINAL_START && !terminal->facts.started;
    AUTO_FREE char *frame = starts ? terminal_frame_start(&terminal->wanted, terminal->columns, terminal->rows)
                                   : terminal_frame_attach(&terminal->wanted, terminal->had);
    terminal->greeted = true;
    if (frame)
        terminal_send(terminal, frame);
    else
        terminal_fail(terminal, ERROR_INVALID, "the command or its environment is not UTF-8");
}

static void send_input(struct terminal *terminal)
{
    struct terminal_piece piece;
    if (!terminal->attached || !terminal->facts.drives)
        return;
    while (terminal_input_next(&terminal->input, &piece)) {
        if (piece.has_offset) {
            AUTO_FREE char *frame = terminal_frame_input(&piece);
            terminal_send(terminal, frame);
            continue;
        }
        AUTO_FREE char *frame = memory_new(piece.size + 1);
        frame[0] = TERMINAL_STDIN;
        memcpy(frame + 1, piece.data, piece.size);
        websocket_send(terminal->socket, false, frame, piece.size + 1);
    }
    if (terminal->input_ended && !terminal->eof_sent && terminal_input_is_sent(&terminal->input)) {
        AUTO_FREE char *frame = terminal_frame_eof();
        terminal_send(terminal, frame);
        terminal->eof_sent = true;
    }
}

/* ---- the loop ---- */

/* True: the keeper has got somewhere. */
static bool take_results(struct terminal *terminal)
{
    int left;
    bool kept = false;
    for (CURLMsg *message; (message = curl_multi_info_read(terminal->multi, &left)) != NULL;) {
        CURL *done = message->easy_handle;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE || websocket_done(terminal->socket, done, code))
            continue;
        curl_multi_remove_handle(terminal->multi, done);
        kept = grant_keeper_done(terminal->keeper, done, code) || kept;
    }
    return kept;
}

/* True: come again without waiting. */
static bool follow_socket(struct terminal *terminal)
{
    struct websocket_end end;
    if (!terminal->socket)
        return false;
    bool more = websocket_turn(terminal->socket);
    enum websocket_state state = websocket_state(terminal->socket, &end);
    if (state == WEBSOCKET_OPEN && !terminal->greeted) {
        greet(terminal);
        return true;
    }
    if (state == WEBSOCKET_CLOSED && !terminal->over)
        on_closed(terminal, &end);
    return more || (state == WEBSOCKET_CLOSED && !terminal->over);
}

static void tell_loss(struct terminal *terminal)
{
    if (!terminal->facts.started || terminal->lost_ns == 0 || terminal->told_lost ||
        ms_since(terminal->lost_ns) < terminal->wanted.note_lost_ms)
        return;
    terminal->told_lost = true;
    terminal_note(terminal, "connection lost, resuming");
}

static unsigned ms_until_retry(const struct terminal *terminal, unsigned most)
{
    uint64_t now = clock_boot_ns();
    uint64_t left = terminal->retry_ns > now ? (terminal->retry_ns - now) / NS_PER_MS + 1 : 0;
    if (terminal->socket || (left == 0 && terminal->waits_for_token))
        return most;
    return left < most ? (unsigned)left : most;
}

static void wait_for(struct terminal *terminal, struct curl_waitfd *extra, unsigned count, unsigned wait_ms)
{
    struct curl_waitfd all[TERMINAL_EXTRA_MAX + 1];
    count = count < TERMINAL_EXTRA_MAX ? count : TERMINAL_EXTRA_MAX;
    memcpy(all, extra, count * sizeof *all);
    bool has_socket = terminal->socket && websocket_wait(terminal->socket, &all[count]);
    curl_multi_poll(terminal->multi, all, count + has_socket, (int)wait_ms, NULL);
    for (unsigned i = 0; i < count; i++)
        extra[i].revents = all[i].revents;
}

bool terminal_turn(struct terminal *terminal, struct curl_waitfd *extra, unsigned count, struct error *err)
{
    int running;
    for (unsigned i = 0; i < count; i++)
        extra[i].revents = 0;
    unsigned wait_ms = grant_keeper_turn(terminal->keeper, terminal->multi);
    connect_when_due(terminal);
    curl_multi_perform(terminal->multi, &running);
    bool kept = take_results(terminal);
    bool more = follow_socket(terminal) || kept;
    renew_token(terminal);
    send_input(terminal);
    tell_loss(terminal);
    if (terminal->failure.kind != ERROR_NONE) {
        *err = terminal->failure;
        return false;
    }
    if (terminal->over)
        return true;
    wait_ms = wait_ms < TURN_MAX_MS ? wait_ms : TURN_MAX_MS;
    wait_for(terminal, extra, count, more ? 0 : ms_until_retry(terminal, wait_ms));
    return true;
}

/* ---- what the caller does ---- */

struct terminal *terminal_new(const struct terminal_wanted *wanted, struct error *err)
{
    AUTO(terminal) *terminal = memory_new(sizeof *terminal);
    terminal->wanted = *wanted;
    terminal->had[0] = wanted->has_from ? wanted->from : 0;
    terminal->columns = wanted->columns;
    terminal->rows = wanted->rows;
    terminal->multi = curl_multi_init();
    if (!terminal->multi) {
        error_set(err, ERROR_INTERNAL, "libcurl does not start");
        return NULL;
    }
    terminal->keeper = grant_keeper_new(wanted->keeping);
    return TAKE(terminal);
}

void terminal_free(struct terminal *terminal)
{
    if (!terminal)
        return;
    websocket_free(terminal->socket);
    grant_keeper_free(terminal->keeper);
    curl_multi_cleanup(terminal->multi);
    terminal_input_done(&terminal->input);
    free(terminal);
}

bool terminal_over(const struct terminal *terminal, struct remote_end *end)
{
    if (terminal->over)
        *end = terminal->end;
    return terminal->over;
}

const struct terminal_facts *terminal_facts(const struct terminal *terminal)
{
    return &terminal->facts;
}

uint64_t terminal_had(const struct terminal *terminal)
{
    return terminal->had[0];
}

size_t terminal_room(const struct terminal *terminal)
{
    return terminal->input_ended ? 0 : terminal_input_room(&terminal->input);
}

void terminal_write(struct terminal *terminal, const void *data, size_t size)
{
    bool only_watches = terminal->attached && !terminal->facts.drives;
    if (terminal->input_ended || only_watches)
        return;
    terminal_input_add(&terminal->input, data, size);
    send_input(terminal);
}

void terminal_end_input(struct terminal *terminal)
{
    terminal->input_ended = true;
    send_input(terminal);
}

void terminal_resize(struct terminal *terminal, unsigned columns, unsigned rows)
{
    terminal->columns = columns < TERMINAL_CELLS_MAX ? columns : TERMINAL_CELLS_MAX;
    terminal->rows = rows < TERMINAL_CELLS_MAX ? rows : TERMINAL_CELLS_MAX;
    terminal_send_size(terminal);
}

void terminal_signal(struct terminal *terminal, const char *name)
{
    if (!terminal->attached)
        return;
    AUTO_FREE char *frame = terminal_frame_signal(name);
    terminal_send(terminal, frame);
}
