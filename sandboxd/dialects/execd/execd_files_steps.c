/* execd_files_steps.c - the first that fails is the answer; what was done before stays, as with its own daemon. */
#include "sandboxd/dialects/execd/execd_files_steps.h"

#include "sandboxd/dialects/execd/execd_errors.h"
#include "sandboxd/dialects/native/files/files_batch.h"
#include "sandboxd/dialects/native/files/files_entry.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SHOWN_MAX = 200,      /* bytes of a path in a sentence */
    PATHS_BYTES = 1 << 20 /* of all paths: what is told of them is larger */
};

struct execd_steps *execd_steps_new(struct http_request *request)
{
    struct execd_steps *steps = memory_new(sizeof *steps);
    steps->request = request;
    return steps;
}

static void free_any(void *cookie)
{
    struct execd_steps *steps = cookie;
    for (size_t i = 0; i < steps->count; i++) {
        execd_place_done(&steps->all[i].place);
        execd_place_done(&steps->all[i].to);
        json_decref(steps->all[i].old);
        json_decref(steps->all[i].new);
        free(steps->all[i].owner);
        free(steps->all[i].group);
        free(steps->all[i].given);
    }
    free(steps->all);
    text_done(&steps->shown);
    free(steps);
}

void execd_steps_free(struct execd_steps *steps)
{
    free_any(steps);
}

static bool count_path(struct execd_steps *steps, size_t size, struct error *err)
{
    steps->path_bytes += size;
    return steps->path_bytes <= PATHS_BYTES ||
           error_set(err, ERROR_TOO_LARGE, "the paths of one request are over %d bytes", PATHS_BYTES);
}

struct execd_step *execd_steps_add(struct execd_steps *steps, enum scope_verb verb, const char *given,
                                   struct error *err)
{
    if (steps->count == FILES_BATCH_MAX) {
        error_set(err, ERROR_TOO_LARGE, "at most %d paths in one request", FILES_BATCH_MAX);
        return NULL;
    }
    if ((steps->count & (steps->count - 1)) == 0)
        steps->all = memory_resize(steps->all, (steps->count * 2 + 1) * sizeof *steps->all);
    struct execd_step *step = &steps->all[steps->count++];
    *step = (struct execd_step){.given = memory_string(given)};
    if (!count_path(steps, strlen(given), err) || !execd_place_find(&step->place, steps->request, verb, given, err) ||
        !count_path(steps, strlen(step->place.path), err))
        return NULL;
    step->asked = (struct files_request){.root = step->place.root,
                                         .path = step->place.path,
                                         .to_root = "",
                                         .to_path = "",
                                         .pattern = "",
                                         .glob = "",
                                         .upload = ""};
    return step;
}

bool execd_step_set_target(struct execd_steps *steps, struct execd_step *step, const char *given, struct error *err)
{
    if (!execd_place_find(&step->to, steps->request, SCOPE_FS_RW, given, err) ||
        !count_path(steps, strlen(step->to.path), err))
        return false;
    step->asked.to_root = step->to.root;
    step->asked.to_path = step->to.path;
    return true;
}

void execd_step_keep_users(struct execd_step *step)
{
    step->owner = step->asked.owner ? memory_string(step->asked.owner) : NULL;
    step->group = step->asked.group ? memory_string(step->asked.group) : NULL;
    step->asked.owner = step->owner;
    step->asked.group = step->group;
}

/* ---- one after another ---- */

static struct files_bytes bytes_of(const json_t *text)
{
    return (struct files_bytes){.data = json_string_value(text), .size = json_string_length(text)};
}

static int seal_edit(const struct execd_step *step, struct error *err)
{
    struct files_edit edit = {.old = bytes_of(step->old), .new = bytes_of(step->new), .all = true, .optional = true};
    return front_files_edits_seal(&edit, 1, err);
}

static enum files_batch_next on_next(void *cookie, struct files_step *step, struct error *err)
{
    const struct execd_steps *steps = cookie;
    if (steps->at == steps->count)
        return FILES_BATCH_OVER;
    const struct execd_step *one = &steps->all[steps->at];
    step->asked = one->asked;
    step->action = one->action;
    if (one->old)
        step->descriptor = seal_edit(one, err);
    return one->old && step->descriptor < 0 ? FILES_BATCH_FAILED : FILES_BATCH_STEP;
}

static void append_key(struct execd_steps *steps)
{
    const char *given = steps->all[steps->at].given;
    if (steps->shown.length > 0)
        text_append(&steps->shown, ",", 1);
    files_entry_quoted(&steps->shown, (struct files_bytes){.data = given, .size = strlen(given)});
    text_append(&steps->shown, ":", 1);
}

static void on_record(void *cookie, const struct files_record *record)
{
    struct execd_steps *steps = cookie;
    if (!steps->shows_entries || record->kind != FILES_ENTRY)
        return;
    append_key(steps);
    execd_file_append(&steps->shown, record, steps->all[steps->at].place.path, (struct files_bytes){"", 0});
}

static bool on_stepped(void *cookie, const struct files_record *done, const struct error *why)
{
    struct execd_steps *steps = cookie;
    if (why && !(steps->forgives_missing && why->kind == ERROR_NOT_FOUND))
        return false;
    if (done && steps->counts) {
        append_key(steps);
        text_append_format(&steps->shown, "{\"replacedCount\":%" PRIu64 "}",
                           done->count > INT64_MAX ? INT64_MAX : done->count);
    }
    steps->at++;
    return true;
}

static void reply_failed(const struct execd_steps *steps, const struct error *err)
{
    struct error why = *err;
    if (steps->at < steps->count) {
        const char *given = steps->all[steps->at].given;
        size_t shown = strnlen(given, SHOWN_MAX);
        shown = text_utf8_prefix(given, shown); /* cut between characters */
        error_set(&why, err->kind, "%.*s: %.250s", (int)shown, given, err->message);
    }
    if (why.kind == ERROR_NOT_FOUND && steps->missing_is_broken)
        execd_reply_error(steps->request, 500, "RUNTIME_ERROR", why.message);
    else
        execd_files_fail(steps->request, &why);
}

static void on_over(void *cookie, const struct error *err)
{
    const struct execd_steps *steps = cookie;
    if (err)
        reply_failed(steps, err);
    else if (steps->shows_entries || steps->counts) {
        AUTO_FREE char *body = memory_printf("{%s}", steps->shown.data ? steps->shown.data : "");
        http_reply_bytes(steps->request, 200, "application/json", body, strlen(body));
    } else
        http_reply_empty(steps->request, 200);
    free_any(cookie);
}

static const struct files_batch_events EVENTS = {
    .next = on_next, .record = on_record, .stepped = on_stepped, .over = on_over, .gone = free_any};

void execd_steps_start(struct execd_steps *steps)
{
    files_batch_start(steps->request, &EVENTS, steps);
}
