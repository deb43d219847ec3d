/* zygotes.c - see zygotes.h: the lives of the processes themselves; what they are asked for is orders.c. */
#include "sandboxd/init/zygotes.h"

#include "sandboxd/init/child.h"
#include "sandboxd/init/deadline.h"
#include "sandboxd/init/family.h"
#include "sandboxd/init/helpers.h"
#include "sandboxd/init/orders.h"
#include "sandboxd/init/spare.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { COMPARED_BYTES = 4096 };

static uint8_t number_of(const struct init *init, const struct zygote *zygote)
{
    return (uint8_t)(zygote - init->zygotes + 1);
}

/* ---- what it says ---- */

/* The error that child_run wrote in place of execve; or a zygote, that then gets to tell its user a sentence. */
static bool is_error(const struct error *said, ssize_t size)
{
    return size == (ssize_t)sizeof *said && said->kind > ERROR_NONE && said->kind < ERROR_KINDS &&
           memchr(said->message, 0, sizeof said->message) &&
           text_utf8_prefix(said->message, strlen(said->message)) == strlen(said->message);
}

static void on_zygote(struct init *init, struct watch *watch, uint32_t events)
{
    struct zygote *zygote = watch->owner;
    union {
        char byte;
        struct error error;
    } said;
    struct error why = {0};
    (void)events;
    ssize_t size = recv(watch->fd, &said, sizeof said, MSG_TRUNC); /* descriptors that come with it the kernel drops */
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (!zygote->is_ready && size == 1 && said.byte == 'R') {
        zygote->is_ready = true;
        zygote->due_boot_ns = 0;
        orders_give(init, number_of(init, zygote));
        return;
    }
    if (!zygote->is_ready && is_error(&said.error, size)) {
        orders_refuse(init, number_of(init, zygote), &said.error);
        size = 0;
    }
    error_set(&why, ERROR_INTERNAL, "the process to be forked %s", size <= 0 ? "ended" : "broke the rules");
    zygotes_end(init, zygote, &why);
}

/* ---- beginning ---- */

void zygotes_open(struct init *init)
{
    for (size_t i = 0; i < FRONT_INIT_ZYGOTES; i++)
        init->zygotes[i] =
            (struct zygote){.watch = {.ready = on_zygote, .owner = &init->zygotes[i], .fd = -1}, .command = -1};
}

static struct child_plan plan_of(const struct init *init, const struct zygote_wish *wish)
{
    const struct fi_start like = {.open_files = wish->open_files};
    return child_plan_of(init, &like);
}

static _Noreturn void run(const struct child_plan *plan, const struct front_init_command *command, int program,
                          int socket)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const struct child_order order = {
        .command = command,
        .terminal_end = -1,
        .stdin_end = -1,
        .stdout_end = null,
        .stderr_end = null,
        .program = program,
        .order_socket = socket,
        .refusal = socket, /* a packet before execve is the error */
    };
    child_run(plan, &order);
}

/* Its process, `theirs` being its end of the socket. */
static bool clone_zygote(struct init *init, struct zygote *zygote, const struct zygote_wish *wish, int theirs,
                         struct error *err)
{
    struct front_init_command command;
    AUTO_FREE void *held = NULL;
    if (!front_init_command_read(wish->command, &command, &held, err))
        return error_prefix(err, "the zygote");
    const struct child_plan plan = plan_of(init, wish);
    pid_t pid = helpers_clone(init, &zygote->serial, err);
    if (pid == 0)
        run(&plan, &command, wish->program, theirs);
    zygote->files = plan.files.rlim_cur;
    return pid > 0;
}

static bool take_descriptors(struct init *init, struct zygote *zygote, const struct zygote_wish *wish, int *socket,
                             struct error *err)
{
    struct stat program;
    if (fstat(wish->program, &program) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fstat of the program");
    zygote->device = program.st_dev;
    zygote->inode = program.st_ino;
    zygote->command = fcntl(wish->command, F_DUPFD_CLOEXEC, 0);
    if (zygote->command < 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "a descriptor for the zygote");
    return fd_set_nonblocking(*socket, err) && watch_add(init, &zygote->watch, TAKE_FD(*socket), EPOLLIN, err);
}

static void forget(struct init *init, struct zygote *zygote)
{
    watch_end(init, &zygote->watch);
    if (zygote->command >= 0)
        close(zygote->command);
    zygote->command = -1;
    zygote->is_ready = false;
    zygote->due_boot_ns = 0;
}

static bool start(struct init *init, struct zygote *zygote, const struct zygote_wish *wish, struct error *err)
{
    int ends[2];
    if (!front_init_program_check(wish->program, err))
        return false;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return error_set_errno(err, ERROR_NO_CAPACITY, "a socket for the zygote");
    AUTO_FD int ours = ends[0];
    bool is_cloned = clone_zygote(init, zygote, wish, ends[1], err);
    close(ends[1]);
    if (!is_cloned)
        return false;
    if (!take_descriptors(init, zygote, wish, &ours, err)) {
        family_kill(init, zygote->serial); /* it is reaped as a helper */
        forget(init, zygote);
        return false;
    }
    zygote->due_boot_ns = clock_boot_ns() + ZYGOTES_READY_MS * UINT64_C(1000000);
    deadline_consider(init, zygote->due_boot_ns);
    return true;
}

/* ---- whether it is the one ---- */

static bool is_same_text(int a, int b)
{
    char of_a[COMPARED_BYTES], of_b[COMPARED_BYTES];
    for (off_t at = 0;;) {
        ssize_t size = pread(a, of_a, sizeof of_a, at);
        if (size < 0 || pread(b, of_b, sizeof of_b, at) != size || memcmp(of_a, of_b, (size_t)size) != 0)
            return false;
        if (size == 0)
            return true;
        at += size;
    }
}

static bool is_as_wished(const struct init *init, const struct zygote *zygote, const struct zygote_wish *wish)
{
    struct stat program;
    return fstat(wish->program, &program) == 0 && zygote->device == program.st_dev && zygote->inode == program.st_ino &&
           zygote->files == plan_of(init, wish).files.rlim_cur && is_same_text(zygote->command, wish->command);
}

/* It has left, and the word of that is still to be read. */
static bool has_left(const struct zygote *zygote)
{
    char byte;
    return recv(zygote->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

struct zygote *zygotes_get(struct init *init, const struct zygote_wish *wish, struct error *err)
{
    struct zygote *zygote = &init->zygotes[wish->number - 1];
    if (zygote->watch.fd >= 0 && !has_left(zygote) && is_as_wished(init, zygote, wish))
        return zygote;
    /* It leaves at the end of its socket; the children it has made say hello without it. */
    bool had_one = zygote->watch.fd >= 0;
    forget(init, zygote);
    if (had_one && !orders_are_with(init, zygote->serial))
        family_kill(init, zygote->serial);
    return start(init, zygote, wish, err) ? zygote : NULL;
}

bool zygotes_has(const struct init *init, uint64_t serial)
{
    for (size_t i = 0; i < FRONT_INIT_ZYGOTES; i++) {
        if (init->zygotes[i].watch.fd >= 0 && init->zygotes[i].serial == serial)
            return true;
    }
    return false;
}

/* ---- end ---- */

void zygotes_end(struct init *init, struct zygote *zygote, const struct error *why)
{
    if (zygote->watch.fd < 0)
        return;
    forget(init, zygote);
    family_kill(init, zygote->serial);
    orders_fail(init, number_of(init, zygote), why);
}

void zygotes_time_out(struct init *init, uint64_t now_boot_ns)
{
    struct error why = {0};
    error_set(&why, ERROR_TIMEOUT, "the process to be forked was not ready within %d s", ZYGOTES_READY_MS / 1000);
    for (size_t i = 0; i < FRONT_INIT_ZYGOTES; i++) {
        struct zygote *zygote = &init->zygotes[i];
        if (zygote->due_boot_ns != 0 && zygote->due_boot_ns <= now_boot_ns)
            zygotes_end(init, zygote, &why);
        deadline_consider(init, zygote->due_boot_ns);
    }
}

void zygotes_end_all(struct init *init)
{
    struct error why = {0};
    error_set(&why, ERROR_GONE, "the sandbox is ending");
    for (uint8_t number = 1; number <= FRONT_INIT_ZYGOTES; number++) {
        forget(init, &init->zygotes[number - 1]);
        orders_refuse(init, number, &why);
    }
}
