/* socket_input.c - one piece at a time goes to the command's stdin; the answer is the pace. While much waits, the
 * socket is not read. */
#include "sandboxd/dialects/native/socket/socket_session.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

enum {
    PAUSE_BYTES = 256 * 1024,  /* held at most, and one message; then nothing is read ... */
    RESUME_BYTES = 128 * 1024, /* ... until no more than this is held */
    JOINED_BYTES = 64 * 1024,  /* small pieces become one of this size */
    RETRY_FIRST_MS = 5,
    RETRY_LAST_MS = 1000
};

static void pump(struct socket_session *session);

/* ---- the list ---- */

static size_t cost_of(const struct socket_piece *piece)
{
    return sizeof *piece + piece->data.length;
}

static void pace(struct socket_session *session)
{
    struct socket_input *input = &session->input;
    bool pause = input->held > (input->paused ? RESUME_BYTES : PAUSE_BYTES);
    if (session->over || pause == input->paused)
        return;
    input->paused = pause;
    http_websocket_pause(session->socket, pause);
}

static void free_first(struct socket_input *input)
{
    struct socket_piece *piece = input->first;
    input->held -= cost_of(piece);
    input->first = piece->next;
    if (!input->first)
        input->last = NULL;
    text_done(&piece->data);
    free(piece);
}

/* The piece before, unless it is on its way: keys typed quickly need not be a write each. */
static struct socket_piece *joinable(const struct socket_input *input, size_t size, uint64_t offset)
{
    struct socket_piece *last = input->last;
    if (!last || last->eof || (last == input->first && input->writing && !input->stale))
        return NULL;
    bool follows =
        last->offset == SOCKET_OFFSET_NONE ? offset == SOCKET_OFFSET_NONE : offset == last->offset + last->data.length;
    return follows && last->data.length + size <= JOINED_BYTES ? last : NULL;
}

void socket_input_add(struct socket_session *session, uint8_t *data, size_t size, uint64_t offset, bool eof)
{
    AUTO_FREE uint8_t *taken = data;
    struct socket_input *input = &session->input;
    struct socket_piece *piece = joinable(input, size, offset);
    if (!piece) {
        piece = memory_new(sizeof *piece);
        piece->offset = offset;
        input->held += sizeof *piece;
        if (input->last)
            input->last->next = piece;
        else
            input->first = piece;
        input->last = piece;
    }
    text_append(&piece->data, taken, size);
    piece->eof = eof;
    input->held += size;
    pump(session);
    pace(session);
}

void socket_input_drop(struct socket_session *session)
{
    struct socket_input *input = &session->input;
    input->stale = input->writing;
    input->ack_due = false;
    loop_timer_cancel(TAKE(input->retry));
    while (input->first)
        free_first(input);
    pace(session);
}

/* ---- acknowledgements ---- */

static void acknowledge(struct socket_session *session)
{
    if (!session->input.ack_due || session->full || session->over)
        return;
    session->input.ack_due = false;
    AUTO_TEXT text = {0};
    socket_print_stdin_ack(&text, session->input.acked);
    socket_session_send(session, &text);
}

/* ---- writing ---- */

static void on_retry(void *cookie)
{
    struct socket_session *session = cookie;
    session->input.retry = NULL;
    socket_session_enter(session);
    pump(session);
    socket_session_leave(session);
}

/* The command does not read what it has, or its sandbox is just not reached: nobody tells when that changes. */
static void retry_later(struct socket_session *session)
{
    struct socket_input *input = &session->input;
    input->retry_ms = input->retry_ms ? input->retry_ms * 2 : RETRY_FIRST_MS;
    if (input->retry_ms > RETRY_LAST_MS)
        input->retry_ms = RETRY_LAST_MS;
    input->retry = loop_timer_start(http_request_loop(session->request),
                                    clock_boot_ns() + input->retry_ms * UINT64_C(1000000), on_retry, session);
}

static void take_answer(struct socket_session *session, const struct verb_answer *answer)
{
    struct socket_input *input = &session->input;
    enum error_kind kind = answer->error.kind;
    if (kind == ERROR_RATE_LIMITED || kind == ERROR_STARTING) {
        retry_later(session);
        return;
    }
    input->retry_ms = 0;
    free_first(input);
    if (kind != ERROR_NONE) {
        socket_session_tell(session, &answer->error);
        socket_input_drop(session); /* what came behind belongs behind it */
        return;
    }
    input->acked = answer->count == 1 ? answer->views[0].stdin_offset : input->acked;
    input->ack_due = session->acks;
    acknowledge(session);
    pump(session);
    pace(session);
}

static void on_written(void *cookie, const struct verb_answer *answer)
{
    struct socket_session *session = socket_session_find((uint64_t)(uintptr_t)cookie);
    if (!session)
        return;
    struct socket_input *input = &session->input;
    bool stale = input->stale;
    input->writing = input->stale = false;
    socket_session_enter(session);
    if (stale)
        pump(session);
    else
        take_answer(session, answer);
    socket_session_leave(session);
}

static void pump(struct socket_session *session)
{
    struct socket_input *input = &session->input;
    const struct socket_piece *piece = input->first;
    if (session->over || session->attached != SOCKET_ATTACHED || !piece || input->writing || input->retry)
        return;
    struct process_call call = {.sandbox_id = session->sandbox_id,
                                .process_id = session->process_id,
                                .done = on_written,
                                .cookie = socket_session_cookie(session),
                                .origin = session->origin};
    input->writing = true;
    process_write(session->plane->sandboxes, &call, piece->data.data ? piece->data.data : "", piece->data.length,
                  piece->offset, piece->eof);
}

void socket_input_go_on(struct socket_session *session)
{
    acknowledge(session);
    pump(session);
}
