/* process_streams.c - the descriptors that init tells of with a command, checked: they come from inside a sandbox. */
#include "sandboxd/sandbox/sandbox_internal.h"

#include <sys/stat.h>

/* epoll(7), and with it the loop, takes no regular file. */
static bool is_pipe(int fd, struct error *err)
{
    struct stat status;
    return (fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode)) ||
           error_set(err, ERROR_INVALID, "a stream of the command is not a pipe");
}

static bool open_input(struct process *process, int *fds, struct error *err)
{
    struct input *input = is_pipe(fds[FI_FD_STDIN_PIPE], err) ? input_new(TAKE_FD(fds[FI_FD_STDIN_MEMORY]), err) : NULL;
    if (input)
        process_input_open(process, input, TAKE_FD(fds[FI_FD_STDIN_PIPE]));
    return input != NULL;
}

/* Before init says whether the command has ended: then look_for_end closes it. */
static bool open_terminal(struct process *process, int *fds, bool held, struct error *err)
{
    AUTO(input) *input = input_new(TAKE_FD(fds[FI_TERMINAL_FD_STDIN_MEMORY]), err);
    struct output *output = input ? output_new(TAKE_FD(fds[FI_TERMINAL_FD_STDOUT_MEMORY]), err) : NULL;
    struct terminal *terminal = output ? terminal_new(process->sandbox->loop, fds, err) : NULL;
    if (!terminal) {
        output_release(output);
        return false;
    }
    process->terminal = terminal;
    sandbox_count_descriptors(process->sandbox, TERMINAL_DESCRIPTORS);
    process_input_open(process, TAKE(input), -1);
    process_output_open(&process->streams[OUTPUT_STDOUT], output, -1, held);
    return true;
}

/* init has closed it: only what was written there is left. */
static bool open_former_terminal(struct process *process, int *fds, bool held, struct error *err)
{
    struct output *output = output_new(TAKE_FD(fds[0]), err);
    if (output)
        process_output_open(&process->streams[OUTPUT_STDOUT], output, -1, held);
    return output != NULL;
}

void process_close_terminal(struct process *process)
{
    if (!process->terminal)
        return;
    struct error closed = {0};
    error_set(&closed, ERROR_CONFLICT, "the terminal of command %s is closed", process->view.id);
    terminal_size(process->terminal, &process->view.columns, &process->view.rows);
    process_input_close(process, &closed);
    terminal_free(TAKE(process->terminal));
    sandbox_count_descriptors(process->sandbox, -TERMINAL_DESCRIPTORS);
}

static bool open_pipes(struct process *process, int *fds, bool held, struct error *err)
{
    struct output *outputs[OUTPUT_STREAMS] = {NULL};
    if (!is_pipe(fds[FI_FD_STDOUT_PIPE], err) || !is_pipe(fds[FI_FD_STDERR_PIPE], err))
        return false;
    for (int i = 0; i < OUTPUT_STREAMS; i++) {
        outputs[i] = output_new(TAKE_FD(fds[FI_FD_STDOUT_MEMORY + i]), err);
        if (!outputs[i]) {
            output_release(outputs[0]);
            return false;
        }
    }
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        process_output_open(&process->streams[i], outputs[i], TAKE_FD(fds[FI_FD_STDOUT_PIPE + i]), held);
    return true;
}

bool process_open_streams(struct process *process, const struct fi_started *started, int *fds, struct error *err)
{
    bool held = !process->hash_known;
    process->view.terminal = started->terminal;
    if (started->terminal)
        return started->has_stdin ? open_terminal(process, fds, held, err)
                                  : open_former_terminal(process, fds, held, err);
    return open_pipes(process, fds, held, err) && (!started->has_stdin || open_input(process, fds, err));
}
