#include "clients/c/session.h"

#include "clients/c/session_frames.h"
#include "clients/c/session_internal.h"

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

void session_note(const struct session *session, const char *sentence)
{
    if (session->wanted.note)
        session->wanted.note(session->wanted.cookie, sentence);
}

/* The first failure is the one that counts. */
static void fail(struct session *session, const struct error *err)
{
    if (session->failure.kind == ERROR_NONE)
        session->failure = *err;
}

void session_fail(struct session *session, enum error_kind kind, const char *sentence)
{
    struct error err = {0};
    error_set(&err, kind, "%s", sentence);
    fail(session, &err);
}

bool session_is_token_error(enum error_kind kind)
{
    return kind == ERROR_TOKEN_EXPIRED || kind == ERROR_TOKEN_REVOKED || kind == ERROR_UNAUTHENTICATED;
}

bool session_may_pass(enum error_kind kind)
{
    return kind == ERROR_NODE_UNREACHABLE || kind == ERROR_TIMEOUT || error_retryable(kind);
}

/* ---- the token ---- */

/* The grant's token as it is to be shown; the caller wipes and frees. */
static char *credential(struct session *session)
{
    const struct grant *grant = session->wanted.keeping->grant;
    snprintf(session->jti, sizeof session->jti, "%s", grant->jti);
    if (!session->wanted.narrow_to)
        return memory_string(grant->token);
    char *narrowed = memory_new(CAPABILITY_TEXT_BYTES);
    struct error err = {0};
    if (capability_attenuate(narrowed, grant->token, &(struct capability_link){.scope = session->wanted.narrow_to},
                             &err))
        return narrowed;
    free(narrowed);
    error_prefix(&err, "the token cannot be narrowed");
    fail(session, &err);
    return NULL;
}

static void wipe(char *secret)
{
    if (secret)
        sodium_memzero(secret, strlen(secret));
    free(secret);
}

void session_send(struct session *session, const char *frame)
{
    if (frame && session->socket)
        websocket_send(session->socket, true, frame, strlen(frame));
}

/* The grant was refreshed meanwhile: the socket goes on with its token. */
static void renew_token(struct session *session)
{
    if (!session->attached || strcmp(session->jti, session->wanted.keeping->grant->jti) == 0)
        return;
    char *token = credential(session);
    char *frame = token ? session_frame_auth(token) : NULL;
    session_send(session, frame);
    wipe(frame);
    wipe(token);
}

/* Whether it is worth another try: with a token that is fresh by then. */
static bool take_refusal(struct session *session)
{
    if (!session->facts.started || ++session->refusals > REFUSALS_MAX)
        return false;
    if (strcmp(session->jti, session->wanted.keeping->grant->jti) == 0)
        grant_keeper_refused(session->keeper);
    session->waits_for_token = true;
    return true;
}

void session_send_size(struct session *session)
{
    const struct session_facts *facts = &session->facts;
    bool known = session->columns && session->rows;
    if (!session->attached || !facts->tty || !facts->drives || !known ||
        (facts->columns == session->columns && facts->rows == session->rows))
        return;
    AUTO_FREE char *frame = session_frame_resize(session->columns, session->rows);
    session_send(session, frame);
    session->facts.columns = session->columns;
    session->facts.rows = session->rows;
}

void session_send_signal(struct session *session)
{
    if (!session->attached || !session->signal[0])
        return;
    AUTO_FREE char *frame = session_frame_signal(session->signal);
    session_send(session, frame);
    session->signal[0] = '\0';
}

/* ---- the connection ---- */

static unsigned long long ms_since(uint64_t then)
{
    uint64_t now = clock_boot_ns();
    return now > then ? (now - then) / NS_PER_MS : 0;
}

static void connect_now(struct session *session)
{
    char *token = credential(session);
    if (!token)
        return;
    struct error err = {0};
    AUTO_FREE char *url = memory_printf("%s/ws", session->wanted.keeping->grant->http);
    const struct websocket_wanted wanted = {
        .url = url, .credential = token, .message = session_read, .cookie = session};
    session->greeted = session->attached = false;
    session->said = (struct error){0};
    session->socket = websocket_new(&wanted, session->multi, &err);
    if (session->socket)
        websocket_pause(session->socket, session->paused);
    else
        fail(session, &err);
    wipe(token);
}

/* Makes the next connection once it is due, and there is a token for it. */
static void connect_when_due(struct session *session)
{
    if (session->socket || clock_boot_ns() < session->retry_ns)
        return;
    struct error err = {0};
    enum grant_keeper_state state =
        session->waits_for_token ? grant_keeper_state(session->keeper, &err) : GRANT_KEEPER_FRESH;
    if (state == GRANT_KEEPER_TRYING)
        return;
    session->waits_for_token = false;
    if (state == GRANT_KEEPER_FRESH) {
        connect_now(session);
        return;
    }
    error_prefix(&err, "the token ended and there is no other");
    fail(session, &err);
}

/* Asked to start it, the sandbox was not heard any more. */
static void give_up(struct session *session, const struct error *why)
{
    struct error err = *why;
    if (!session->facts.started && session->asked) {
        session->facts.started = true;
        error_prefix(&err, "it is not known whether the command started");
    }
    fail(session, &err);
}

static void retry_later(struct session *session, const struct error *err)
{
    unsigned for_s = session->facts.started ? session->wanted.resume_for_s : BEGIN_FOR_S;
    if (session->lost_ns == 0)
        session->lost_ns = clock_boot_ns();
    if (for_s && ms_since(session->lost_ns) > for_s * 1000ULL) {
        give_up(session, err);
        return;
    }
    unsigned wait_ms = RETRY_FIRST_MS << (session->tries < 8 ? session->tries : 8);
    wait_ms = wait_ms < RETRY_LAST_MS ? wait_ms : RETRY_LAST_MS;
    session->tries++;
    session->retry_ns = clock_boot_ns() + wait_ms * NS_PER_MS;
}

/* Why the socket ended, in our kinds. */
static void reason_of(const struct session *session, const struct websocket_end *end, struct error *err)
{
    const char *reason = end->reason[0] ? end->reason : "no reason was told";
    bool said = session->said.kind != ERROR_NONE;
    switch (end->code) {
    case 0:
        *err = end->error;
        return;
    case 4401:
        error_set(err, error_kind_of_code(reason), "%s", said ? session->said.message : reason);
        if (!session_is_token_error(err->kind))
            err->kind = ERROR_UNAUTHENTICATED;
        return;
    case 4403:
        error_set(err, ERROR_CAPABILITY_DENIED, "%s", said ? session->said.message : reason);
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
                  said ? session->said.message : reason);
        return;
    default:
        error_set(err, ERROR_NODE_UNREACHABLE, "the connection to the sandbox broke");
    }
}

static void on_closed(struct session *session, const struct websocket_end *end)
{
    struct error err = {0};
    reason_of(session, end, &err);
    websocket_free(TAKE(session->socket));
    session->attached = false;
    if (session_is_token_error(err.kind) && take_refusal(session)) {
        retry_later(session, &err);
        return;
    }
    if (session_may_pass(err.kind))
        retry_later(session, &err);
    else
        fail(session, &err);
}

static void greet(struct session *session)
{
    bool starts = session->wanted.use == SESSION_START && !session->facts.started;
    struct error err = {0};
    AUTO_FREE char *frame = starts ? session_frame_start(&session->wanted, session->columns, session->rows, &err)
                                   : session_frame_attach(&session->wanted, session->had);
    session->greeted = true;
    session->asked = session->asked || (starts && frame);
    if (frame)
        session_send(session, frame);
    else
        fail(session, &err);
}

static void send_input(struct session *session)
{
    struct session_piece piece;
    if (!session->attached || !session->facts.drives)
        return;
    while (session_input_next(&session->input, &piece)) {
        if (piece.has_offset) {
            AUTO_FREE char *frame = session_frame_input(&piece);
            session_send(session, frame);
            continue;
        }
        AUTO_FREE char *frame = memory_new(piece.size + 1);
        frame[0] = SESSION_STDIN;
        memcpy(frame + 1, piece.data, piece.size);
        websocket_send(session->socket, false, frame, piece.size + 1);
    }
    if (session->input_ended && !session->eof_sent && session_input_is_sent(&session->input)) {
        AUTO_FREE char *frame = session_frame_eof();
        session_send(session, frame);
        session->eof_sent = true;
    }
}

/* ---- the loop ---- */

/* True: the keeper has got somewhere. */
static bool take_results(struct session *session)
{
    int left;
    bool kept = false;
    for (CURLMsg *message; (message = curl_multi_info_read(session->multi, &left)) != NULL;) {
        CURL *done = message->easy_handle;
        CURLcode code = message->data.result;
        if (message->msg != CURLMSG_DONE || websocket_done(session->socket, done, code))
            continue;
        curl_multi_remove_handle(session->multi, done);
        kept = grant_keeper_done(session->keeper, done, code) || kept;
    }
    return kept;
}

/* True: come again without waiting. */
static bool follow_socket(struct session *session)
{
    struct websocket_end end;
    if (!session->socket)
        return false;
    bool more = websocket_turn(session->socket);
    enum websocket_state state = websocket_state(session->socket, &end);
    if (state == WEBSOCKET_OPEN && !session->greeted) {
        greet(session);
        return true;
    }
    if (state == WEBSOCKET_CLOSED && !session->over)
        on_closed(session, &end);
    return more || (state == WEBSOCKET_CLOSED && !session->over);
}

static void tell_loss(struct session *session)
{
    if (!session->facts.started || session->lost_ns == 0 || session->told_lost ||
        ms_since(session->lost_ns) < session->wanted.note_lost_ms)
        return;
    session->told_lost = true;
    session_note(session, "connection lost, resuming");
}

static unsigned ms_until_retry(const struct session *session, unsigned most)
{
    uint64_t now = clock_boot_ns();
    uint64_t left = session->retry_ns > now ? (session->retry_ns - now) / NS_PER_MS + 1 : 0;
    if (session->socket || (left == 0 && session->waits_for_token))
        return most;
    return left < most ? (unsigned)left : most;
}

static void wait_for(struct session *session, struct curl_waitfd *extra, unsigned count, unsigned wait_ms)
{
    struct curl_waitfd all[SESSION_EXTRA_MAX + 1];
    count = count < SESSION_EXTRA_MAX ? count : SESSION_EXTRA_MAX;
    memcpy(all, extra, count * sizeof *all);
    bool has_socket = session->socket && websocket_wait(session->socket, &all[count]);
    curl_multi_poll(session->multi, all, count + has_socket, (int)wait_ms, NULL);
    for (unsigned i = 0; i < count; i++)
        extra[i].revents = all[i].revents;
}

bool session_turn(struct session *session, struct curl_waitfd *extra, unsigned count, struct error *err)
{
    int running;
    for (unsigned i = 0; i < count; i++)
        extra[i].revents = 0;
    unsigned wait_ms = grant_keeper_turn(session->keeper, session->multi);
    connect_when_due(session);
    curl_multi_perform(session->multi, &running);
    bool kept = take_results(session), was_paused = session->paused;
    bool more = follow_socket(session) || kept;
    renew_token(session);
    send_input(session);
    tell_loss(session);
    if (session->failure.kind != ERROR_NONE) {
        *err = session->failure;
        return false;
    }
    if (session->over)
        return true;
    wait_ms = wait_ms < TURN_MAX_MS ? wait_ms : TURN_MAX_MS;
    more = more || (session->paused && !was_paused); /* what that waits for is not among `extra` yet */
    wait_for(session, extra, count, more ? 0 : ms_until_retry(session, wait_ms));
    return true;
}

/* ---- what the caller does ---- */

struct session *session_new(const struct session_wanted *wanted, struct error *err)
{
    AUTO(session) *session = memory_new(sizeof *session);
    session->wanted = *wanted;
    session->had[0] = wanted->has_from ? wanted->from : 0;
    session->columns = wanted->columns;
    session->rows = wanted->rows;
    session->multi = curl_multi_init();
    if (!session->multi) {
        error_set(err, ERROR_INTERNAL, "libcurl does not start");
        return NULL;
    }
    session->keeper = grant_keeper_new(wanted->keeping);
    return TAKE(session);
}

void session_free(struct session *session)
{
    if (!session)
        return;
    websocket_free(session->socket);
    grant_keeper_free(session->keeper);
    curl_multi_cleanup(session->multi);
    session_input_done(&session->input);
    free(session);
}

bool session_over(const struct session *session, struct session_end *end)
{
    if (session->over)
        *end = session->end;
    return session->over;
}

const struct session_facts *session_facts(const struct session *session)
{
    return &session->facts;
}

uint64_t session_had(const struct session *session)
{
    return session->had[0];
}

size_t session_room(const struct session *session)
{
    return session->input_ended ? 0 : session_input_room(&session->input);
}

void session_write(struct session *session, const void *data, size_t size)
{
    bool only_watches = session->attached && !session->facts.drives;
    if (session->input_ended || only_watches)
        return;
    session_input_add(&session->input, data, size);
    send_input(session);
}

void session_end_input(struct session *session)
{
    session->input_ended = true;
    send_input(session);
}

void session_resize(struct session *session, unsigned columns, unsigned rows)
{
    session->columns = columns < SESSION_CELLS_MAX ? columns : SESSION_CELLS_MAX;
    session->rows = rows < SESSION_CELLS_MAX ? rows : SESSION_CELLS_MAX;
    session_send_size(session);
}

void session_pause(struct session *session, bool pause)
{
    session->paused = pause;
    if (session->socket)
        websocket_pause(session->socket, pause);
}

void session_signal(struct session *session, const char *name)
{
    snprintf(session->signal, sizeof session->signal, "%s", name);
    session_send_signal(session);
}
