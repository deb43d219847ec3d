/* process_input.c - bytes for a command's stdin: queued within a bound, written as the pipe takes them. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include "shared/base/memory.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

bool process_input_has_room(const struct sandbox *sandbox, size_t size, struct error *err)
{
    if (sandbox->input_bytes + size <= SANDBOX_INPUT_BYTES)
        return true;
    return error_set(err, ERROR_RATE_LIMITED,
                     "the commands of this sandbox have not read their input yet; send more when they have");
}

bool process_input_add(struct process *process, uint8_t *data, size_t size, bool eof, struct verb *asked,
                       struct error *err)
{
    AUTO_FREE uint8_t *held = data;
    if (process->state == PROCESS_ENDED)
        return error_set(err, ERROR_CONFLICT, "command %s has ended", process->view.id);
    bool closing = process->inputs_last && process->inputs_last->eof;
    if (closing || (process->state == PROCESS_RUNNING && !process->stdin_pipe))
        return error_set(err, ERROR_CONFLICT, "stdin of command %s is closed", process->view.id);
    if (process->input_bytes + size > PROCESS_INPUT_BYTES)
        return error_set(err, ERROR_RATE_LIMITED, "command %s has not read its input yet; send more when it has",
                         process->view.id);
    if (!process_input_has_room(process->sandbox, size, err))
        return false;
    struct process_input *input = memory_new(sizeof *input);
    *input = (struct process_input){.data = TAKE(held), .size = size, .eof = eof, .asked = asked};
    process->input_bytes += size;
    process->sandbox->input_bytes += size;
    if (process->inputs_last)
        process->inputs_last->next = input;
    else
        process->inputs = input;
    process->inputs_last = input;
    if (process->stdin_pipe && !process->writing)
        process_input_write(process);
    return true;
}

static void finish_first(struct process *process, const struct error *err)
{
    struct process_input *input = process->inputs;
    process->inputs = input->next;
    if (!process->inputs)
        process->inputs_last = NULL;
    process->input_bytes -= input->size;
    process->sandbox->input_bytes -= input->size;
    if (input->asked)
        verb_finish(input->asked, err);
    free(input->data);
    free(input);
}

void process_input_close(struct process *process, const struct error *err)
{
    if (process->stdin_pipe) {
        loop_watch_free(TAKE(process->stdin_pipe));
        sandbox_count_descriptors(process->sandbox, -1);
    }
    process->writing = false;
    while (process->inputs)
        finish_first(process, err);
}

/* init holds this open file too and could have made it blocking; RWF_NOWAIT does not care. Kernels that know it not for
 * pipes get at most PIPE_BUF bytes once poll says so, which never blocks (pipe(7)). */
static ssize_t write_now(int fd, const uint8_t *data, size_t size)
{
    struct iovec part = {.iov_base = (uint8_t *)(uintptr_t)data, .iov_len = size};
    ssize_t written = pwritev2(fd, &part, 1, -1, RWF_NOWAIT);
    if (written >= 0 || (errno != EOPNOTSUPP && errno != EINVAL && errno != ESPIPE))
        return written;
    struct pollfd poll_one = {.fd = fd, .events = POLLOUT};
    if (poll(&poll_one, 1, 0) != 1) {
        errno = EAGAIN;
        return -1;
    }
    return write(fd, data, size < PIPE_BUF ? size : PIPE_BUF);
}

static void close_for_good(struct process *process)
{
    struct front_init_message message = {.type = FI_EOF};
    memcpy(message.as.name.id, process->view.id, sizeof message.as.name.id);
    struct error err = {0};
    if (!sandbox_send(process->sandbox, &message, -1, &err))
        return; /* init_link_send refuses no FI_EOF */
    error_set(&err, ERROR_CONFLICT, "stdin of command %s is closed", process->view.id);
    process_input_close(process, &err);
}

void process_input_write(void *cookie)
{
    struct process *process = cookie;
    process->writing = false;
    while (process->stdin_pipe && process->inputs) {
        struct process_input *input = process->inputs;
        size_t left = input->size - input->done;
        ssize_t written = left ? write_now(loop_watch_fd(process->stdin_pipe), input->data + input->done, left) : 0;
        if (written < 0 && errno == EAGAIN) {
            process->writing = true;
            loop_watch_writable(process->stdin_pipe, process_input_write, process);
            return;
        }
        if (written < 0) { /* EPIPE: nobody reads it any more */
            struct error err = {0};
            error_set(&err, ERROR_CONFLICT, "command %s does not read its stdin any more", process->view.id);
            process_input_close(process, &err);
            return;
        }
        input->done += (size_t)written;
        if (input->done < input->size)
            continue;
        bool eof = input->eof;
        finish_first(process, NULL);
        if (eof)
            close_for_good(process);
    }
}
