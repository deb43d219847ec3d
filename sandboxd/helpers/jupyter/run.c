#include "sandboxd/helpers/jupyter/run.h"

#include "shared/base/text.h"

#include <string.h>

static const char STDIN_ERROR[] = "StdinNotSupported";
static const char STDIN_ADVICE[] =
    "this code runs where nobody can type: put the value into a variable, pass it in the "
    "environment, or start the program as a process, which has a stdin";

void run_begin(struct run *run, const char *id, const char *message)
{
    struct run fresh = {.is_active = true, .count = run->count};
    run_done(run);
    if (text_copy(fresh.id, sizeof fresh.id, id) && text_copy(fresh.message, sizeof fresh.message, message))
        *run = fresh;
}

static void hear_count(struct run *run, const json_t *content)
{
    const json_t *count = json_object_get(content, "execution_count");
    if (json_is_number(count))
        run->count = frames_count(count);
}

static void tell_started(struct run *run, struct frames *frames)
{
    run->is_executing = true;
    if (!run->told_started)
        frames_started(frames, run->id, run->count);
    run->told_started = true;
}

/* As ipykernel and xeus say it when they were told that stdin is not allowed. */
static bool is_about_stdin(const json_t *content)
{
    const char *value = json_string_value(json_object_get(content, "evalue"));
    return text_equal(json_string_value(json_object_get(content, "ename")), "StdinNotImplementedError") ||
           (value && strcasestr(value, "frontend does not support input requests"));
}

static void tell_error(struct run *run, const json_t *content, struct frames *frames)
{
    if (run->refused_stdin)
        return; /* the interrupt that followed */
    run->told_error = true;
    if (is_about_stdin(content))
        frames_own_error(frames, run->id, STDIN_ERROR, STDIN_ADVICE);
    else
        frames_error(frames, run->id, content);
}

static void tell_stream(const char *run, const json_t *content, struct frames *frames)
{
    bool is_stderr = text_equal(json_string_value(json_object_get(content, "name")), "stderr");
    const json_t *text = json_object_get(content, "text");
    if (json_is_string(text))
        frames_stream(frames, is_stderr ? "stderr" : "stdout", run, json_string_value(text), json_string_length(text));
}

/* True: it was output. */
static bool tell_output(const char *run, const struct message *message, struct frames *frames)
{
    bool updates = text_equal(message->type, "update_display_data");
    if (text_equal(message->type, "stream"))
        tell_stream(run, message->content, frames);
    else if (updates || text_equal(message->type, "display_data"))
        frames_display(frames, run, message->content, message->transient, updates);
    else
        return false;
    return true;
}

static void hear_status(struct run *run, const json_t *content)
{
    const char *state = json_string_value(json_object_get(content, "execution_state"));
    run->is_busy = run->is_busy || text_equal(state, "busy");
    run->is_idle = run->is_idle || text_equal(state, "idle");
}

/* Comms, debug events and whatever else there is are not for a context. */
static void on_own(struct run *run, const struct message *message, struct frames *frames)
{
    const char *type = message->type;
    if (text_equal(type, "status")) {
        hear_status(run, message->content);
        return;
    }
    hear_count(run, message->content);
    tell_started(run, frames);
    if (text_equal(type, "execute_result"))
        frames_result(frames, run->id, message->content);
    else if (text_equal(type, "error"))
        tell_error(run, message->content, frames);
    else if (text_equal(type, "clear_output"))
        frames_clear(frames, run->id, json_is_true(json_object_get(message->content, "wait")));
    else
        (void)tell_output(run->id, message, frames);
}

void run_on_iopub(struct run *run, const struct message *message, struct frames *frames)
{
    bool is_of_it = *message->parent && text_equal(message->parent, run->message);
    if (is_of_it && run->is_active)
        on_own(run, message, frames);
    else
        (void)tell_output(is_of_it ? run->id : "", message, frames);
}

/* What IPython would show in a pager: the answer to `name?`. */
static void tell_pages(const struct run *run, const json_t *content, struct frames *frames)
{
    size_t i;
    json_t *one;
    json_array_foreach (json_object_get(content, "payload"), i, one)
        if (text_equal(json_string_value(json_object_get(one, "source")), "page"))
            frames_display(frames, run->id, one, NULL, false);
}

void run_on_reply(struct run *run, const struct message *message, struct frames *frames)
{
    if (!run->is_active || run->is_replied || !text_equal(message->type, "execute_reply") ||
        !text_equal(message->parent, run->message))
        return;
    const char *status = json_string_value(json_object_get(message->content, "status"));
    hear_count(run, message->content);
    run->reply = json_incref(message->content);
    run->is_replied = true;
    if (!text_copy(run->status, sizeof run->status, status))
        (void)!text_copy(run->status, sizeof run->status, "error");
    tell_pages(run, message->content, frames);
}

void run_refuse_stdin(struct run *run, struct frames *frames)
{
    if (!run->is_active || run->refused_stdin)
        return;
    tell_started(run, frames);
    run->refused_stdin = run->told_error = true;
    frames_own_error(frames, run->id, STDIN_ERROR, STDIN_ADVICE);
}

static const char *status_of(const struct run *run)
{
    const char *error = json_string_value(json_object_get(run->reply, "ename"));
    bool names_interrupt = error == NULL || *error == '\0' || strcasestr(error, "interrupt") != NULL;
    if (run->refused_stdin)
        return "error";
    if (text_equal(run->status, "ok"))
        return "ok";
    if (text_equal(run->status, "aborted") || text_equal(run->status, "abort") ||
        text_equal(error, "KeyboardInterrupt") || (run->was_interrupted && names_interrupt))
        return "interrupted";
    return "error";
}

void run_end(struct run *run, struct frames *frames)
{
    tell_started(run, frames);
    if (text_equal(run->status, "error") && !run->told_error)
        tell_error(run, run->reply, frames); /* kernels that say it in the reply alone */
    frames_done(frames, run->id, status_of(run), run->count);
    run->is_active = false;
}

void run_done(struct run *run)
{
    json_decref(run->reply);
    run->reply = NULL;
}
