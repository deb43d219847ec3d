/** job.c - a child process that copies or removes, and what becomes of what it made. */
#include "sandboxd/storage/job.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t LOOK_NS = 100ULL * 1000 * 1000;

enum { PATIENCE_MS = 20, NICENESS = 5, DESCRIPTORS = 8192, PIPE_FD = JOB_FDS_MAX + 3 };

struct storage_job {
    struct storage *storage;
    pid_t pid;
    int pidfd, result; /* pipe: a struct error, whose kind is ERROR_NONE when all went well */
    struct job_work work;
    struct storage_job *next; /* of the cancelled that still die */
};

/* --- in the child --- */

static bool drop_rights(uint64_t keep, struct error *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {
        {.effective = (uint32_t)keep, .permitted = (uint32_t)keep},
        {.effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32)},
    };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "prctl in a storage job");
    if (syscall(SYS_capset, &header, sets) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "give up capabilities in a storage job");
    return true;
}

/* The work's descriptors become 3, 4, ...; the pipe's comes behind them; all others are closed. */
static bool keep_descriptors(struct job_work *work, int pipe, struct error *err)
{
    int high[JOB_FDS_MAX + 1];
    size_t count = 0;
    while (count < JOB_FDS_MAX && work->fds[count] >= 0)
        count++;
    for (size_t i = 0; i <= count; i++) {
        high[i] = fcntl(i < count ? work->fds[i] : pipe, F_DUPFD_CLOEXEC, PIPE_FD + 1);
        if (high[i] < 0)
            return error_set_errno(err, ERROR_INTERNAL, "keep a descriptor for a storage job");
    }
    for (size_t i = 0; i <= count; i++) {
        int to = i < count ? (int)i + 3 : PIPE_FD;
        if (dup3(high[i], to, O_CLOEXEC) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "keep a descriptor for a storage job");
        if (i < count)
            work->fds[i] = to;
    }
    for (int fd = 3 + (int)count; fd < PIPE_FD; fd++)
        close(fd);
    return syscall(SYS_close_range, PIPE_FD + 1, ~0U, 0) == 0 ||
           error_set_errno(err, ERROR_INTERNAL, "close_range in a storage job");
}

static void become_child(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_NAME, "storage-job", 0, 0, 0);
    setpriority(PRIO_PROCESS, 0, NICENESS);
    struct rlimit many = {.rlim_cur = DESCRIPTORS, .rlim_max = DESCRIPTORS};
    setrlimit(RLIMIT_NOFILE, &many);
}

__attribute__((noreturn)) static void run_child(struct job_work *work, int pipe, pid_t parent)
{
    struct error err = {0};
    bool ok = prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0;
    if (!ok || getppid() != parent)
        _exit(1);
    become_child();
    if (keep_descriptors(work, pipe, &err) && drop_rights(work->capabilities, &err) && work->run(work, &err))
        err = (struct error){.kind = ERROR_NONE};
    else if (err.kind == ERROR_NONE)
        error_set(&err, ERROR_INTERNAL, "a storage job failed");
    _exit(write(PIPE_FD, &err, sizeof err) == (ssize_t)sizeof err ? 0 : 1);
}

/* --- in the launcher --- */

struct storage_job *job_start(struct storage *storage, const struct job_work *work, struct error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "pipe of a storage job");
        return NULL;
    }
    pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        struct job_work own = *work;
        run_child(&own, ends[1], self);
    }
    close(ends[1]);
    int pidfd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "start a storage job");
        close(ends[0]);
        if (pid > 0) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
        return NULL;
    }
    struct storage_job *job = memory_new(sizeof *job);
    *job = (struct storage_job){.storage = storage, .pid = pid, .pidfd = pidfd, .result = ends[0], .work = *work};
    return job;
}

int storage_job_fd(const struct storage_job *job)
{
    return job->pidfd;
}

static void discard_made(struct storage_job *job)
{
    struct error err = {0};
    const struct storage_driver *driver = job->storage->driver;
    if (!job->work.made[0])
        return;
    bool ok = driver->discard ? driver->discard(job->storage, job->work.made, &err)
                              : storage_discard(job->storage, job->work.made, &err);
    if (!ok && err.kind != ERROR_NOT_FOUND)
        log_warn("storage", "%s", err.message);
}

static bool settle(struct storage_job *job, struct error *err)
{
    if (!job->work.made[0] || !job->work.final[0])
        return true;
    if (renameat2(AT_FDCWD, job->work.made, AT_FDCWD, job->work.final, RENAME_NOREPLACE) < 0)
        return error_set_errno(err, errno == EEXIST ? ERROR_CONFLICT : ERROR_INTERNAL, "name %s", job->work.final);
    return true;
}

static void job_free(struct storage_job *job)
{
    close(job->pidfd);
    close(job->result);
    free(job);
}

static void reap(const struct storage_job *job)
{
    while (waitpid(job->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

bool storage_job_finish(struct storage_job *job, struct error *err)
{
    struct error told = {0};
    reap(job);
    bool ok = read(job->result, &told, sizeof told) == (ssize_t)sizeof told;
    if (!ok)
        error_set(err, ERROR_INTERNAL, "a storage job was killed before it ended");
    else if (told.kind != ERROR_NONE && err)
        *err = told;
    ok = ok && told.kind == ERROR_NONE && settle(job, err);
    if (!ok)
        discard_made(job);
    job_free(job);
    return ok;
}

/* One in the middle of a system call that cannot be interrupted (the kernel writes out what a snapshot is to hold) dies
 * when that is over, and perhaps has made what it was to make. */
void storage_job_cancel(struct storage_job *job)
{
    struct storage *storage = job->storage;
    struct pollfd end = {.fd = job->pidfd, .events = POLLIN};
    kill(job->pid, SIGKILL);
    (void)poll(&end, 1, PATIENCE_MS);
    job->next = storage->dying;
    storage->dying = job;
    job_bury(storage, false);
}

void job_bury(struct storage *storage, bool waits)
{
    for (struct storage_job **at = &storage->dying; *at;) {
        struct storage_job *job = *at;
        if (!waits && waitpid(job->pid, NULL, WNOHANG) == 0) {
            at = &job->next;
            continue;
        }
        if (waits)
            reap(job);
        *at = job->next;
        discard_made(job);
        job_free(job);
    }
    storage->bury_at = storage->dying ? clock_boot_ns() + LOOK_NS : 0;
}
