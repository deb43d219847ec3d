/* process_input.c - bytes for a command's stdin: accepted within a bound, moved on as the command takes them. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <string.h>

enum {
    BUDGET_BYTES = 1 << 20, /* a turn, so that one command leaves the loop to others */
    VERBS_MAX = 64          /* that wait for a command: to be started, or to read */
};
static const uint64_t PROMPT_BYTES = UINT64_C(256) << 10; /* while more waits, who sent it is not answered */

/* ---- what waits, over the sandbox ---- */

static void count(struct process *process)
{
    uint64_t waiting = process->input ? input_waiting(process->input) : process->early.bytes;
    if (waiting > PROCESS_INPUT_BYTES) /* of an earlier front, whose memory was tampered with inside */
        waiting = PROCESS_INPUT_BYTES;
    process->sandbox->input_bytes += waiting - process->input_bytes;
    process->input_bytes = waiting;
}

bool process_input_has_room(const struct sandbox *sandbox, size_t size, struct error *err)
{
    if (sandbox->input_bytes + size <= SANDBOX_INPUT_BYTES)
        return true;
    return error_set(err, ERROR_RATE_LIMITED,
                     "the commands of this sandbox have not read their input yet; send more when they have");
}

static bool may_wait(const struct process *process, uint64_t waiting, size_t size, struct error *err)
{
    if (waiting > PROCESS_INPUT_BYTES || size > PROCESS_INPUT_BYTES - waiting)
        return error_set(err, ERROR_RATE_LIMITED, "command %s has not read its input yet; send more when it has",
                         process->view.id);
    return process_input_has_room(process->sandbox, size, err);
}

/* ---- verbs that wait ---- */

static void push(struct process_verbs *verbs, struct verb *verb)
{
    verb->next = NULL;
    if (verbs->last)
        verbs->last->next = verb;
    else
        verbs->first = verb;
    verbs->last = verb;
    verbs->count++;
    verbs->bytes += verb->size;
}

static struct verb *pop(struct process_verbs *verbs)
{
    struct verb *verb = verbs->first;
    verbs->first = verb->next;
    if (!verbs->first)
        verbs->last = NULL;
    verbs->count--;
    verbs->bytes -= verb->size;
    verb->next = NULL;
    return verb;
}

static void finish(const struct process *process, struct verb *verb)
{
    verb->views = memory_array(1, sizeof *verb->views);
    verb->view_count = 1;
    process_show(process, verb->views);
    verb_finish(verb, NULL);
}

static void finish_all(struct process *process, const struct error *err)
{
    while (process->unread.first) {
        if (err)
            verb_finish(pop(&process->unread), err);
        else
            finish(process, pop(&process->unread));
    }
}

/* ---- the end ---- */

void process_input_close(struct process *process, const struct error *err)
{
    if (process->stdin_pipe) {
        loop_watch_free(TAKE(process->stdin_pipe));
        sandbox_count_descriptors(process->sandbox, -1);
    }
    if (process->input) {
        input_free(TAKE(process->input));
        sandbox_count_descriptors(process->sandbox, -1);
    }
    process->writing = false;
    finish_all(process, err);
    while (process->early.first)
        verb_finish(pop(&process->early), err);
    count(process);
}

void process_tell_end_of_input(struct process *process)
{
    struct front_init_message message = {.type = FI_EOF};
    memcpy(message.as.name.id, process->view.id, sizeof message.as.name.id);
    struct error err = {0};
    if (!sandbox_send(process->sandbox, &message, -1, &err)) /* init_link_send refuses no FI_EOF */
        log_warn("sandbox", "init was not told of the end of a stdin: %s sandbox=%s", err.message,
                 process->sandbox->facts.id);
}

void process_input_abandon(struct process *process, const struct error *err)
{
    if (process->stdin_pipe)
        process_tell_end_of_input(process);
    process_input_close(process, err);
}

/* ---- moving on ---- */

static void wait_for_room(struct process *process)
{
    struct loop_watch *watch = process->terminal ? terminal_watch(process->terminal) : process->stdin_pipe;
    process->writing = true;
    loop_watch_writable(watch, process_input_move, process);
}

static enum input_moved move(struct process *process)
{
    struct input *input = process->input;
    bool is_terminal = process->terminal != NULL;
    int pipe = is_terminal ? terminal_input_pipe(process->terminal) : loop_watch_fd(process->stdin_pipe);
    enum input_moved moved =
        is_terminal ? terminal_feed(process->terminal, input, BUDGET_BYTES) : input_move(input, pipe, BUDGET_BYTES);
    input_punch(input, pipe);
    count(process);
    return moved;
}

void process_input_move(void *cookie)
{
    struct process *process = cookie;
    process->writing = false;
    if (!process->input)
        return;
    enum input_moved moved = move(process);
    if (moved == INPUT_FULL || moved == INPUT_MORE) {
        wait_for_room(process);
    } else if (moved == INPUT_BROKEN && process->terminal) {
        process_output_pump(&process->streams[OUTPUT_STDOUT]); /* finds its end */
    } else if (moved == INPUT_BROKEN) {
        struct error err = {0};
        error_set(&err, ERROR_CONFLICT, "command %s does not read its stdin any more", process->view.id);
        process_input_abandon(process, &err);
    } else if (moved == INPUT_EMPTY && process->input->is_ended && !process->terminal) {
        process_tell_end_of_input(process);
        process_input_close(process, NULL);
    }
    if (process->input && input_waiting(process->input) <= PROMPT_BYTES)
        finish_all(process, NULL);
}

/* ---- taking ---- */

/* Of a terminal, the end is a character, that the line discipline reads; it ends what is read, not the terminal. */
static void put_end_character(const struct process *process, struct verb *verb)
{
    verb->data = memory_resize(verb->data, verb->size + 1);
    verb->data[verb->size++] = (uint8_t)terminal_end_character(process->terminal);
    verb->eof = false;
}

/* The same bytes again, by a client that does not know that they have all been had. */
static bool is_repeated(const struct process *process, const struct verb *verb)
{
    uint64_t accepted = process->view.stdin_offset;
    return process->input_ended && verb->offset != INPUT_OFFSET_NONE && verb->offset <= accepted &&
           verb->size <= accepted - verb->offset;
}

static bool take(struct process *process, struct verb *verb, struct error *err)
{
    if (process->state == PROCESS_ENDED)
        return error_set(err, ERROR_CONFLICT, "command %s has ended", process->view.id);
    if (process->input_ended && is_repeated(process, verb))
        return true;
    struct input *input = process->input;
    if (!input || input->is_ended)
        return error_set(err, ERROR_CONFLICT, "stdin of command %s is closed", process->view.id);
    if (verb->eof && process->terminal)
        put_end_character(process, verb);
    size_t size = verb->size;
    if (!input_find_new(input, verb->offset, &size, err) ||
        (size > 0 && !may_wait(process, input_waiting(input), size, err)))
        return false;
    bool is_taken = size == 0 || input_append(input, verb->data + (verb->size - size), size, err);
    process->view.stdin_offset = input->accepted;
    count(process);
    if (is_taken && verb->eof) {
        input_end(input);
        process->input_ended = true;
    }
    return is_taken;
}

static void write_now(struct process *process, struct verb *verb)
{
    struct error err = {0};
    bool is_taken = take(process, verb, &err);
    free(TAKE(verb->data));
    if (!is_taken) {
        verb_finish(verb, &err);
        return;
    }
    /* Accepted: all that waits for is that a client, told how fast the command reads, slows down. */
    bool waits = process->input && process->unread.count < VERBS_MAX;
    if (waits)
        push(&process->unread, verb);
    if (!process->writing)
        process_input_move(process);
    if (!waits)
        finish(process, verb);
    else if (process->input && input_waiting(process->input) <= PROMPT_BYTES)
        finish_all(process, NULL);
}

void process_input_write(struct process *process, struct verb *verb)
{
    struct error err = {0};
    if (process->state != PROCESS_STARTING)
        write_now(process, verb);
    else if (process->early.count >= VERBS_MAX)
        error_set(&err, ERROR_RATE_LIMITED, "command %s is not started yet; send more when it is", process->view.id);
    else if (may_wait(process, process->early.bytes, verb->size, &err))
        push(&process->early, verb);
    if (err.kind != ERROR_NONE)
        verb_finish(verb, &err);
    else if (process->state == PROCESS_STARTING)
        count(process);
}

void process_input_open(struct process *process, struct input *input, int pipe)
{
    process->input = input;
    process->view.stdin_offset = input->accepted;
    process->input_ended = input->is_ended;
    sandbox_count_descriptors(process->sandbox, 1);
    if (pipe < 0)
        return;
    process->stdin_pipe = loop_watch_new(process->sandbox->loop, pipe);
    sandbox_count_descriptors(process->sandbox, 1);
}

void process_input_start(struct process *process)
{
    struct process_verbs early = process->early;
    process->early = (struct process_verbs){0};
    count(process);
    while (early.first)
        write_now(process, pop(&early));
    if (process->input && !process->writing)
        process_input_move(process);
}
