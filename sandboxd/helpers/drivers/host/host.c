#include "sandboxd/helpers/drivers/host/host.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PIECE_BYTES = 32768, REQUEST_BYTES = 4 * 1024 * 1024 + 65536, PIPE_BYTES = 1 << 20 };

static const char *const STREAM_NAMES[HOST_STREAMS] = {"stdout", "stderr"};

static volatile sig_atomic_t interrupts;
static int failure_fd = 1; /* where the channel is */

static void on_interrupt(int number)
{
    (void)number;
    interrupts++;
}

/* SIGINT comes in while we wait and right behind: none falls between the look at `interrupts` and the wait. */
static void hold_interrupts(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(how, &set, NULL);
}

/* --- out --- */

static void write_out(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t wrote = write(fd, bytes, size);
        if (wrote < 0 && errno == EAGAIN)
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        else if (wrote < 0 && errno != EINTR)
            _exit(1); /* nobody listens any more */
        bytes += wrote > 0 ? wrote : 0;
        size -= wrote > 0 ? (size_t)wrote : 0;
    }
}

void host_pass(struct host *host, const char *bytes, size_t size)
{
    write_out(host->frames, bytes, size);
}

static void write_frame(int fd, const char *kind, json_t *body)
{
    json_t *frame = json_pack("{s:o}", kind, body);
    char *line = frame ? json_dumps(frame, JSON_COMPACT) : NULL;
    if (line == NULL)
        _exit(1);
    write_out(fd, line, strlen(line));
    write_out(fd, "\n", 1);
    free(line);
    json_decref(frame);
}

void host_frame(struct host *host, const char *kind, json_t *body)
{
    write_frame(host->frames, kind, body);
}

static json_t *run_id(const struct host *host)
{
    return json_loads(host->run_id, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static void send_text(struct host *host, enum host_stream stream, const char *json, size_t size)
{
    if (size == 0 || !host->is_ready)
        return;
    AUTO_FREE char *head = memory_printf("{\"%s\":{\"run\":%s,\"text\":\"", STREAM_NAMES[stream], host->run_id);
    write_out(host->frames, head, strlen(head));
    write_out(host->frames, json, size);
    write_out(host->frames, "\"}}\n", 4);
}

static void pass_output(struct host *host, enum host_stream stream, size_t wanted)
{
    static char piece[PIECE_BYTES], json[TEXT_GROWTH * (PIECE_BYTES + TEXT_LEFT_BYTES)];
    while (wanted > 0) {
        ssize_t got = read(host->output[stream], piece, wanted < sizeof piece ? wanted : sizeof piece);
        if (got <= 0)
            return;
        send_text(host, stream, json, text_to_json(&host->decoders[stream], piece, (size_t)got, json));
        wanted -= (size_t)got;
    }
}

void host_drain(struct host *host, bool is_final)
{
    char json[TEXT_GROWTH * TEXT_LEFT_BYTES];
    for (enum host_stream stream = HOST_STDOUT; stream < HOST_STREAMS; stream++) {
        int waiting = 0;
        if (ioctl(host->output[stream], FIONREAD, &waiting) == 0 && waiting > 0)
            pass_output(host, stream, (size_t)waiting);
        if (is_final)
            send_text(host, stream, json, text_finish(&host->decoders[stream], json));
    }
}

void host_ready(struct host *host, const char *version, const char *implementation)
{
    host_drain(host, true); /* what a start says is nobody's */
    host->is_ready = true;
    host_frame(host, "ready",
               json_pack("{s:s,s:s,s:s}", "language", host->language->name, "version", version, "implementation",
                         implementation));
}

void host_error(struct host *host, const char *name, const char *value)
{
    host_frame(host, "error",
               json_pack("{s:o,s:s,s:s,s:[s]}", "run", run_id(host), "name", name, "value", value, "traceback", value));
}

void host_done(struct host *host, const char *status)
{
    json_t *body = json_pack("{s:o,s:s,s:I}", "run", run_id(host), "status", status, "count", (json_int_t)host->count);
    if (host->status >= 0)
        json_object_set_new(body, "exit_code", json_integer(host->status));
    host_frame(host, "done", body);
    host->count += host->is_silent ? 0 : 1;
    host->is_running = false;
}

_Noreturn void host_failed(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0)
        _exit(1);
    va_end(arguments);
    write_frame(failure_fd, "failed", json_pack("{s:s}", "message", text));
    _exit(1);
}

/* --- the start --- */

static int move_high(int fd)
{
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, 200);
    if (moved < 0)
        moved = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    if (moved < 0)
        host_failed("no descriptors left");
    close(fd);
    return moved;
}

static void make_pipe(int *out, int *in)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        host_failed("no pipe: %s", strerror(errno));
    *out = move_high(ends[0]);
    *in = move_high(ends[1]);
    (void)fcntl(*out, F_SETPIPE_SZ, PIPE_BYTES);
    (void)fcntl(*out, F_SETFL, O_NONBLOCK);
}

void host_init(struct host *host, const struct host_language *language)
{
    *host =
        (struct host){.language = language, .child_fd = -1, .count = 1, .run_id = memory_string("\"\""), .status = -1};
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    hold_interrupts(SIG_BLOCK);
    signal(SIGPIPE, SIG_IGN);
    for (enum host_stream stream = HOST_STDOUT; stream < HOST_STREAMS; stream++)
        make_pipe(&host->output[stream], &host->output_in[stream]);
    make_pipe(&host->control, &host->control_in);
    host->requests = move_high(0);
    host->frames = fcntl(1, F_DUPFD_CLOEXEC, 200);
    if (host->frames < 0)
        host->frames = fcntl(1, F_DUPFD_CLOEXEC, 10);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (host->frames < 0 || null < 0 || (null != 0 && dup2(null, 0) < 0))
        host_failed("/dev/null: %s", strerror(errno));
    if (null > 2)
        close(null);
    failure_fd = host->frames;
    (void)dup2(2, 1); /* nothing but frames gets into the channel */
}

static _Noreturn void become(const char *path, char *const *arguments, const int *fds, size_t count, pid_t host)
{
    /* Whoever kills the host, or the lack of memory, must not leave code behind that runs for nobody. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != host)
        _exit(126);
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGPIPE, &action, NULL);
    hold_interrupts(SIG_UNBLOCK);
    /* All are above those that they become (move_high), or the one itself. */
    for (size_t i = 0; i < count; i++) {
        if (fds[i] == (int)i ? fcntl(fds[i], F_SETFD, 0) < 0 : dup2(fds[i], (int)i) < 0)
            _exit(126);
    }
    execv(path, arguments);
    _exit(127);
}

void host_spawn(struct host *host, const char *path, char *const *arguments, int input, const int *fds, size_t fd_count)
{
    int all[8] = {input < 0 ? 0 : input, host->output_in[HOST_STDOUT], host->output_in[HOST_STDERR]};
    for (size_t i = 0; i < fd_count; i++)
        all[3 + i] = fds[i];
    const pid_t own = getpid();
    host->child = fork();
    if (host->child < 0)
        host_failed("no process: %s", strerror(errno));
    if (host->child == 0)
        become(path, arguments, all, 3 + fd_count, own);
    if (host->child_fd >= 0)
        close(host->child_fd);
    host->child_fd = (int)syscall(SYS_pidfd_open, host->child, 0);
}

/* --- requests --- */

/* A line of the channel, NUL-ended; NULL: there is no whole one yet. */
static char *take_line(struct host *host)
{
    char *end = host->size ? memchr(host->data, '\n', host->size) : NULL;
    if (end == NULL)
        return NULL;
    size_t length = (size_t)(end - host->data);
    char *line = memory_copy(host->data, length);
    memmove(host->data, end + 1, host->size - length - 1);
    host->size -= length + 1;
    return line;
}

static void read_requests(struct host *host)
{
    if (host->room - host->size < 65536) {
        host->room = host->size + 131072;
        host->data = memory_resize(host->data, host->room);
    }
    ssize_t got = read(host->requests, host->data + host->size, host->room - host->size);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN) || host->size > REQUEST_BYTES)
        host->is_at_end = true;
    host->size += got > 0 ? (size_t)got : 0;
}

static void start_run(struct host *host, json_t *run)
{
    json_t *id = json_object_get(run, "id"), *code = json_object_get(run, "code");
    if (!json_is_string(id) || !json_is_string(code))
        return;
    free(host->run_id);
    free(host->cwd);
    host->run_id = json_dumps(id, JSON_ENCODE_ANY);
    host->cwd = memory_string(json_string_value(json_object_get(run, "cwd")));
    host->merges = json_is_true(json_object_get(run, "merge"));
    host->status = -1;
    host->is_running = true;
    host->is_silent = json_is_true(json_object_get(run, "silent"));
    host->may_be_interrupted = host->was_interrupted || interrupts > 0;
    host->was_interrupted = false;
    interrupts = 0;
    host_frame(host, "started", json_pack("{s:O,s:I}", "run", id, "count", (json_int_t)host->count));
    host->language->run(host, json_string_value(code), json_string_length(code));
}

static void take_request(struct host *host)
{
    AUTO_FREE char *line = take_line(host);
    if (line == NULL)
        return;
    json_t *request = json_loads(line, JSON_ALLOW_NUL, NULL);
    if (json_object_get(request, "exit") != NULL)
        host->is_at_end = true;
    else if (json_is_object(json_object_get(request, "run")))
        start_run(host, json_object_get(request, "run"));
    json_decref(request);
}

/* --- the loop --- */

static void read_control(struct host *host)
{
    static char bytes[65536];
    if (!host->is_in_line)
        host_drain(host, false);
    ssize_t got = read(host->control, bytes, sizeof bytes);
    if (got > 0)
        host->language->control(host, bytes, (size_t)got);
}

static int status_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* True: it has ended, and what it wrote is out. */
static bool has_ended(struct host *host, int *status)
{
    int how = 0;
    if (waitpid(host->child, &how, WNOHANG) != host->child)
        return false;
    *status = status_of(how);
    while (poll(&(struct pollfd){.fd = host->control, .events = POLLIN}, 1, 0) > 0)
        read_control(host);
    if (host->is_in_line)
        write_out(host->frames, "\n", 1);
    host->is_in_line = false;
    host_drain(host, true);
    if (host->language->revive && host->language->revive(host, *status))
        return false;
    if (!host->is_ready)
        host_failed("the %s interpreter ended as it started, with exit status %d", host->language->name, *status);
    if (host->is_running) {
        AUTO_FREE char *text = WIFSIGNALED(how)
                                   ? memory_printf("the interpreter was ended by signal %d", WTERMSIG(how))
                                   : memory_printf("the code ended its interpreter with exit status %d", *status);
        host->status = *status;
        if (*status != 0)
            host_error(host, "Exit", text);
        host_done(host, *status == 0 ? "ok" : "error");
    }
    return true;
}

static void wait_for_something(struct host *host)
{
    bool takes_output = !host->is_in_line; /* nothing comes between the parts of a line */
    bool takes_requests = host->is_ready && !host->is_running && !host->is_at_end;
    struct pollfd fds[] = {
        {.fd = host->control, .events = POLLIN},
        {.fd = takes_output ? host->output[HOST_STDOUT] : -1, .events = POLLIN},
        {.fd = takes_output ? host->output[HOST_STDERR] : -1, .events = POLLIN},
        {.fd = takes_requests ? host->requests : -1, .events = POLLIN},
        {.fd = host->child_fd, .events = POLLIN},
    };
    bool is_impatient = host->is_running && host->was_interrupted && host->language->still_runs;
    const struct timespec while_impatient = {.tv_nsec = 200000000};
    sigset_t none;
    sigemptyset(&none);
    int ready =
        ppoll(fds, sizeof fds / sizeof fds[0], host->child_fd < 0 || is_impatient ? &while_impatient : NULL, &none);
    /* What is there to be read keeps ppoll(2) from letting one in: it belongs to the run all the same. */
    hold_interrupts(SIG_UNBLOCK);
    hold_interrupts(SIG_BLOCK);
    if (ready == 0 && is_impatient && host->is_running)
        host->language->still_runs(host);
    if (interrupts > 0 && host->is_running) {
        interrupts = 0;
        host->was_interrupted = true;
        if (host->language->interrupt)
            host->language->interrupt(host);
    }
    if (ready <= 0)
        return;
    if (fds[0].revents)
        read_control(host);
    else if (fds[1].revents || fds[2].revents)
        host_drain(host, false);
    if (fds[3].revents)
        read_requests(host);
}

int host_serve(struct host *host)
{
    bool was_told = false;
    int status = 0;
    while (!has_ended(host, &status)) {
        if (host->is_ready && !host->is_running)
            take_request(host);
        if (host->is_at_end && !host->is_running && !was_told) {
            was_told = true;
            host->language->finish(host);
        }
        if (host->is_running || host->size == 0 || memchr(host->data, '\n', host->size) == NULL)
            wait_for_something(host);
    }
    return status;
}

/* --- programs --- */

static char *find_in(const char *folders, const char *name)
{
    for (const char *at = folders;;) {
        size_t length = strcspn(at, ":");
        char *path = memory_printf("%.*s%s%s", (int)length, at, length ? "/" : "./", name);
        if (access(path, X_OK) == 0)
            return path;
        free(path);
        if (at[length] == 0)
            return NULL;
        at += length + 1;
    }
}

char *host_find(const char *name)
{
    const char *path = getenv("PATH");
    char *found = path && *path ? find_in(path, name) : NULL;
    return found ? found : find_in("/usr/local/bin:/usr/bin:/bin", name);
}

char *const *host_arguments(const char *const *first, char *const *more)
{
    size_t first_count = 0, more_count = 0;
    while (first[first_count])
        first_count++;
    while (more && more[more_count])
        more_count++;
    char **all = memory_array(first_count + more_count + 1, sizeof *all);
    for (size_t i = 0; i < first_count; i++)
        all[i] = memory_string(first[i]);
    for (size_t i = 0; i < more_count; i++)
        all[first_count + i] = more[i];
    return all;
}

int host_memfd(const char *name, const char *bytes, size_t size)
{
    struct error err;
    int fd = fd_sealed_memfd(name, bytes, size, &err);
    if (fd < 0)
        host_failed("%s", err.message);
    return fd;
}
