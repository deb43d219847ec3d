/* tls_keeper.c - looks once a second whether one of two files has changed, by whatever way: written, renamed over, a
 * link that leads elsewhere. stat(2) sees all of them; inotify would have to follow every link of the paths. */
#include "shared/http/tls_keeper.h"

#include "shared/base/confine.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/http/tls.h"

#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_EVERY_MS = 1000, FOLDERS = 4 };

bool tls_keeper_read(const char *cert_path, const char *key_path, char **cert, size_t *cert_size, char **key,
                     size_t *key_size, struct error *err)
{
    AUTO_FREE char *read_cert = fd_read_file(cert_path, HTTP_TLS_PEM_MAX_BYTES, cert_size, err);
    if (read_cert == NULL)
        return error_prefix(err, "tls_cert");
    *key = fd_read_file(key_path, HTTP_TLS_PEM_MAX_BYTES, key_size, err);
    if (*key == NULL)
        return error_prefix(err, "tls_key");
    *cert = TAKE(read_cert);
    return true;
}

/* ---- the process ---- */

struct files {
    const char *cert, *key;
    int socket;
};

/* What tells one content of a file from another. Zero: there is no file. */
struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
};

static void take_stamp(const char *path, struct stamp *stamp)
{
    struct stat found;
    memset(stamp, 0, sizeof *stamp); /* compared by bytes */
    if (stat(path, &found) != 0)
        return;
    stamp->device = found.st_dev;
    stamp->inode = found.st_ino;
    stamp->size = found.st_size;
    stamp->modified = found.st_mtim;
    stamp->changed = found.st_ctim;
}

static void send_pair(const struct files *files)
{
    char *cert = NULL, *key = NULL;
    struct tls_keeper_head head = {0};
    struct error err;
    bool is_read = tls_keeper_read(files->cert, files->key, &cert, &head.cert_size, &key, &head.key_size, &err);
    if (!is_read)
        head = (struct tls_keeper_head){0};
    struct iovec parts[] = {{&head, sizeof head}, {cert, head.cert_size}, {key, head.key_size}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = is_read ? 3 : 1};
    if (sendmsg(files->socket, &message, MSG_NOSIGNAL) < 0)
        _exit(errno == EPIPE ? 0 : 1);
    if (is_read)
        sodium_memzero(key, head.key_size);
    free(key);
    free(cert);
}

/* The parent never sends: readable means that it is gone. */
static void keep(const struct files *files)
{
    struct stamp sent[2], seen[2], now[2];
    take_stamp(files->cert, &seen[0]);
    take_stamp(files->key, &seen[1]);
    memset(sent, 0, sizeof sent); /* what the parent read may be older than what was just seen: it is sent once more */
    struct pollfd parent = {.fd = files->socket, .events = POLLIN};
    while (poll(&parent, 1, LOOK_EVERY_MS) == 0 || (parent.revents == 0 && errno == EINTR)) {
        take_stamp(files->cert, &now[0]);
        take_stamp(files->key, &now[1]);
        bool is_still = memcmp(now, seen, sizeof now) == 0; /* whoever replaces two files is through with both */
        memcpy(seen, now, sizeof seen);
        if (!is_still || memcmp(now, sent, sizeof now) == 0)
            continue;
        send_pair(files);
        memcpy(sent, now, sizeof sent);
    }
}

/* Of root's rights only that to read what belongs to others. */
static void keep_reading_alone(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct reads[_LINUX_CAPABILITY_U32S_3] = {0};
    if (geteuid() != 0)
        return;
    if (syscall(SYS_capget, &header, reads) != 0)
        _exit(1);
    uint32_t kept =
        reads[0].permitted & (1U << CAP_DAC_READ_SEARCH); /* a unit may have taken it: then what is root's */
    memset(reads, 0, sizeof reads);
    reads[0].effective = reads[0].permitted = kept;
    for (unsigned long number = 0; prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; number++)
        (void)prctl(PR_CAPBSET_DROP, number, 0, 0, 0);
    if (syscall(SYS_capset, &header, reads) != 0)
        _exit(1);
}

static char *folder_of(const char *path)
{
    char *folder = memory_string(path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder) {
        free(folder);
        return memory_string(slash == NULL ? "." : "/");
    }
    *slash = '\0';
    return folder;
}

/* The folders that the paths name, and those where they lead: a renewed file has another inode. */
static void see_folders_alone(const struct files *files)
{
    const char *paths[] = {files->cert, files->key};
    struct confine_path allowed[FOLDERS];
    size_t count = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char *real = realpath(paths[i], NULL);
        allowed[count++] = (struct confine_path){folder_of(paths[i]), CONFINE_READ};
        allowed[count++] = (struct confine_path){folder_of(real != NULL ? real : paths[i]), CONFINE_READ};
        free(real);
    }
    int abi = 0;
    struct error err = {0};
    if (!confine_landlock(allowed, count, true, &abi, &err) && abi != 0)
        _exit(1);
    for (size_t i = 0; i < count; i++)
        free((char *)(uintptr_t)allowed[i].path);
}

/* It ends when its socket does, which is when the parent is gone: a parent that has given up root may not even signal
 * it (PR_SET_PDEATHSIG). */
static _Noreturn void run(const char *cert_path, const char *key_path, int socket)
{
    struct error err;
    sigset_t none;
    sigemptyset(&none);
    (void)signal(SIGTERM, SIG_IGN); /* a service's stop goes to all of it: this one ends with its parent */
    (void)signal(SIGINT, SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    struct files files = {cert_path, key_path, dup2(socket, STDERR_FILENO + 1)};
    if (files.socket < 0 || syscall(SYS_close_range, STDERR_FILENO + 2, ~0U, 0) != 0)
        _exit(1);
    (void)prctl(PR_SET_NAME, "parley-tls", 0, 0, 0);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    see_folders_alone(&files);
    keep_reading_alone();
    if (!confine_calls(&err))
        _exit(1);
    keep(&files);
    _exit(0);
}

/* Paths must hold wherever the process goes. */
static char *whole_path(const char *path)
{
    AUTO_FREE char *here = path[0] != '/' ? realpath(".", NULL) : NULL;
    return here != NULL ? memory_printf("%s/%s", here, path) : memory_string(path);
}

bool tls_keeper_start(const char *cert_path, const char *key_path, struct tls_keeper *keeper, struct error *err)
{
    int ends[2];
    AUTO_FREE char *cert = whole_path(cert_path);
    AUTO_FREE char *key = whole_path(key_path);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return error_set_errno(err, ERROR_INTERNAL, "socket to the TLS files' reader");
    AUTO_FD int ours = ends[0];
    AUTO_FD int its = ends[1];
    if (!fd_set_nonblocking(ours, err))
        return false;
    pid_t child = fork();
    if (child == 0)
        run(cert, key, its);
    if (child < 0)
        return error_set_errno(err, ERROR_INTERNAL, "start the TLS files' reader");
    *keeper = (struct tls_keeper){.socket = TAKE_FD(ours), .process = child};
    return true;
}

void tls_keeper_stop(struct tls_keeper *keeper)
{
    if (keeper->process <= 0)
        return;
    if (keeper->socket >= 0)
        close(keeper->socket);
    while (waitpid(keeper->process, NULL, 0) < 0 && errno == EINTR)
        continue;
    *keeper = (struct tls_keeper){.socket = -1};
}
