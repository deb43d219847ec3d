/* node_logs.c - the call `logs`: the last bytes of what one command wrote, without waking its sandbox. */
#include "sandboxd/dialects/node_calls.h"

#include "sandboxd/dialects/plane.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <stdlib.h>
#include <string.h>

enum { TAIL_MAX_BYTES = 65536, CHUNK_BYTES = 16384 };

/* One call; freed when it is answered, or nobody waits for it any more. */
struct tail {
    struct plane *plane;
    struct loop *loop;
    uint64_t request, number; /* the request's, and of the message that it answers */
    uint64_t most;            /* bytes of each stream */
    struct process_view view; /* as it was when it was asked for */
    struct follower *follower;
    uint64_t at[OUTPUT_STREAMS]; /* read up to here, of view.length */
    struct text texts[OUTPUT_STREAMS];
};

static void tail_free(struct tail *tail)
{
    follower_close(tail->follower);
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        text_done(&tail->texts[i]);
    free(tail);
}

static void on_gone(void *cookie)
{
    tail_free(cookie);
}

/* --- the answer --- */

/* As UTF-8: what is none becomes U+FFFD, and a character that the cut went through is left out. */
static json_t *printable(const struct text *text)
{
    AUTO_TEXT clean = {0};
    size_t at = 0;
    while (at < text->length && at < 3 && ((unsigned char)text->data[at] & 0xc0) == 0x80)
        at++;
    while (at < text->length) {
        size_t good = text_utf8_prefix(text->data + at, text->length - at);
        text_append(&clean, text->data + at, good);
        at += good;
        if (at < text->length) {
            text_append_string(&clean, "\xef\xbf\xbd");
            at++;
        }
    }
    for (size_t i = 0; i < clean.length; i++) /* JSON could say it, but no terminal, file or log wants it */
        clean.data[i] = clean.data[i] == '\0' ? ' ' : clean.data[i];
    return json_stringn(clean.data ? clean.data : "", clean.length);
}

static void answer(struct tail *tail, const struct error *err)
{
    struct http_request *request = http_request_find(tail->loop, tail->request);
    const struct process_view *view = &tail->view;
    bool is_cut = false;
    json_t *json = NULL;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        is_cut = is_cut || tail->texts[i].length < view->length[i];
    if (request && err->kind == ERROR_NONE)
        json = json_pack("{s:b, s:b, s:o, s:o, s:b}", "ok", 1, "running", !view->ended, "stdout",
                         printable(&tail->texts[OUTPUT_STDOUT]), "stderr", printable(&tail->texts[OUTPUT_STDERR]),
                         "truncated", (int)is_cut);
    if (json)
        json_object_set_new(json, "exit_code", view->ended ? json_integer(view->end.exit_code) : json_null());
    uint64_t number = tail->number;
    if (request)
        http_request_when_gone(request, NULL, NULL);
    tail_free(tail);
    if (request && json)
        node_reply(request, number, json);
    else if (request)
        node_reply_error(request, number, err);
}

/* --- reading --- */

static bool has_all(const struct tail *tail)
{
    bool has = true;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        has = has && tail->at[i] >= tail->view.length[i];
    return has;
}

/* Bytes that came later than the question are left out. */
static void take(struct tail *tail, const struct follower_item *item, const char *bytes)
{
    uint64_t end = tail->view.length[item->stream];
    size_t size = item->offset >= end ? 0 : item->size < end - item->offset ? item->size : (size_t)(end - item->offset);
    text_append(&tail->texts[item->stream], bytes, size);
    tail->at[item->stream] = item->offset + item->size;
    follower_consumed(tail->follower, item->stream, item->size);
}

static void pull(void *cookie)
{
    struct tail *tail = cookie;
    struct follower_item item;
    struct error err = {0};
    char bytes[CHUNK_BYTES];
    enum follower_what what;
    while (!has_all(tail) && (what = follower_next(tail->follower, &item, bytes, sizeof bytes)) != FOLLOWER_NOTHING) {
        if (what == FOLLOWER_DATA)
            take(tail, &item, bytes);
        else if (what == FOLLOWER_GAP)
            tail->at[item.stream] = item.gap_to;
        else if (what == FOLLOWER_FAILED)
            err = *item.error;
        if (what == FOLLOWER_ENDED || what == FOLLOWER_FAILED) {
            answer(tail, &err);
            return;
        }
    }
    if (has_all(tail))
        answer(tail, &err);
}

static void follow(struct tail *tail, const char *sandbox_id)
{
    const struct error none = {0};
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        uint64_t length = tail->view.length[i], from = length > tail->most ? length - tail->most : 0;
        tail->at[i] = from > tail->view.kept_from[i] ? from : tail->view.kept_from[i];
    }
    if (tail->view.output_gone || has_all(tail)) {
        answer(tail, &none);
        return;
    }
    tail->follower = follower_new(FOLLOWER_WATCHER, tail->at, pull, tail);
    process_follow(tail->plane->sandboxes, sandbox_id, tail->view.id, tail->follower);
}

/* --- the call --- */

static void seen(void *cookie, const struct verb_answer *answer)
{
    struct http_request *request = node_find(cookie, answer);
    if (!request)
        return;
    const struct node_waiting *waiting = http_request_identity(request);
    struct tail *tail = memory_new(sizeof *tail);
    *tail = (struct tail){.plane = plane_of(request),
                          .loop = http_request_loop(request),
                          .request = http_request_number(request),
                          .number = waiting->number,
                          .most = waiting->most,
                          .view = answer->views[0]};
    http_request_when_gone(request, on_gone, tail);
    follow(tail, waiting->sandbox_id);
}

bool node_logs(struct http_request *request, const json_t *message, uint64_t number, struct error *err)
{
    uint64_t most = TAIL_MAX_BYTES;
    const char *id = node_text(message, "id", err), *process = id ? node_text(message, "process", err) : NULL;
    if (!process || !node_number(message, "tail_bytes", TAIL_MAX_BYTES, &most, err))
        return false;
    if (!process_is_id(process))
        return error_set(err, ERROR_INVALID, "process: the id of a command");
    struct process_call call = {
        .sandbox_id = id, .process_id = process, .done = seen, .cookie = node_wait(request, number, id)};
    struct node_waiting *waiting = http_request_identity(request);
    waiting->most = most;
    process_list(plane_of(request)->sandboxes, &call);
    return true;
}
