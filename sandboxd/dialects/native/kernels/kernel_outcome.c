/* kernel_outcome.c - events added up, as a notebook shows them. */
#include "sandboxd/dialects/native/kernels/kernel_outcome.h"

#include <string.h>

void kernel_outcome_done(struct kernel_outcome *outcome)
{
    text_done(&outcome->texts[0]);
    text_done(&outcome->texts[1]);
    json_decref(outcome->displays);
    json_decref(outcome->result);
    json_decref(outcome->error);
    json_decref(outcome->run);
    *outcome = (struct kernel_outcome){0};
}

static void add_text(struct kernel_outcome *outcome, struct text *text, const json_t *body)
{
    const json_t *value = json_object_get(body, "text");
    size_t size = json_string_length(value), room = KERNEL_OUTCOME_TEXT_MAX - text->length;
    if (size > room) {
        size = text_utf8_prefix(json_string_value(value), room);
        outcome->truncated = true;
    }
    text_append(text, json_string_value(value), size);
}

/* False: it does not fit any more. */
static bool has_room(struct kernel_outcome *outcome, size_t cost)
{
    if (outcome->cost + cost > KERNEL_OUTCOME_DISPLAY_MAX) {
        outcome->truncated = true;
        return false;
    }
    outcome->cost += cost;
    return true;
}

/* One of the same display_id that is to be changed takes the place of the one before; it is shown once. */
static void add_display(struct kernel_outcome *outcome, json_t *body)
{
    const char *id = json_string_value(json_object_get(body, "display_id"));
    bool updates = json_is_true(json_object_get(body, "update"));
    size_t index;
    json_t *display;
    json_array_foreach (outcome->displays, index, display) {
        const char *known = json_string_value(json_object_get(display, "display_id"));
        if (!updates || !id || !known || strcmp(id, known) != 0)
            continue;
        json_object_set(display, "data", json_object_get(body, "data"));
        json_object_set(display, "metadata", json_object_get(body, "metadata"));
    }
    if (updates)
        return;
    if (!outcome->displays)
        outcome->displays = json_array();
    json_array_append(outcome->displays, body);
}

static void clear(struct kernel_outcome *outcome)
{
    text_done(&outcome->texts[0]);
    text_done(&outcome->texts[1]);
    json_decref(outcome->displays);
    outcome->displays = NULL;
    outcome->cost = 0;
}

static void keep(json_t **to, json_t *body)
{
    json_decref(*to);
    *to = json_incref(body);
}

/* Displays do not take its room: it says why there is no result. */
static void keep_error(struct kernel_outcome *outcome, const struct kernel_event *event)
{
    if (event->cost <= KERNEL_OUTCOME_ERROR_MAX)
        keep(&outcome->error, event->body);
    else
        outcome->truncated = true;
}

void kernel_outcome_add(struct kernel_outcome *outcome, const struct kernel_event *event)
{
    if (strcmp(event->type, "stdout") == 0)
        add_text(outcome, &outcome->texts[0], event->body);
    else if (strcmp(event->type, "stderr") == 0)
        add_text(outcome, &outcome->texts[1], event->body);
    else if (strcmp(event->type, "clear") == 0)
        clear(outcome);
    else if (strcmp(event->type, "started") == 0)
        keep(&outcome->run, json_object_get(event->body, "run"));
    else if (strcmp(event->type, "error") == 0)
        keep_error(outcome, event);
    else if (!has_room(outcome, event->cost))
        ;
    else if (strcmp(event->type, "display") == 0)
        add_display(outcome, event->body);
    else if (strcmp(event->type, "result") == 0)
        keep(&outcome->result, event->body);
    json_decref(event->body);
}

static json_t *text_value(const struct text *text)
{
    return json_stringn(text->data ? text->data : "", text->length);
}

json_t *kernel_outcome_finish(struct kernel_outcome *outcome, json_t *done)
{
    json_t *object = json_object();
    json_object_set(object, "run", outcome->run);
    json_object_set_new(object, "stdout", text_value(&outcome->texts[0]));
    json_object_set_new(object, "stderr", text_value(&outcome->texts[1]));
    json_object_set_new(object, "displays", outcome->displays ? json_incref(outcome->displays) : json_array());
    json_object_set_new(object, "result", outcome->result ? json_incref(outcome->result) : json_null());
    json_object_set_new(object, "error", outcome->error ? json_incref(outcome->error) : json_null());
    json_object_set_new(object, "truncated", json_boolean(outcome->truncated));
    json_object_update(object, done);
    json_decref(done);
    return object;
}
