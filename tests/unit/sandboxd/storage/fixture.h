/** fixture.h - a state folder in a mount namespace of the test's own, and a storage of a kind in it. */
#pragma once

#include "sandboxd/storage/storage.h"
#include "shared/base/fd.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1ULL << 20)

static char fixture_state[64];

/** Root, a private mount namespace, and a fresh folder; skips where the host truly cannot. */
static inline void fixture_begin(void)
{
    if (geteuid() != 0)
        check_skip("needs root");
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        check_skip("cannot make a mount namespace");
    snprintf(fixture_state, sizeof fixture_state, "/var/tmp/parley-storage-XXXXXX");
    if (mkdtemp(fixture_state) == NULL)
        check_skip("cannot make a folder in /var/tmp");
}

static inline void fixture_end(void)
{
    struct error err = {0};
    if (!fd_remove_tree(fixture_state, &err))
        fprintf(stderr, "%s\n", err.message);
}

/** NULL, with the reason on stderr, when it cannot be had. */
static inline struct storage *fixture_open(const char *kind, uint64_t pool_bytes_max)
{
    struct error err = {0};
    const struct storage_options options = {
        .kind = kind, .state_folder = fixture_state, .pool_bytes_max = pool_bytes_max};
    struct storage *storage = storage_open(&options, &err);
    if (storage == NULL)
        fprintf(stderr, "%s: %s\n", kind, err.message);
    return storage;
}

static inline bool fixture_has_btrfs(void)
{
    char detail[256];
    const struct storage_options options = {.kind = "btrfs", .state_folder = "/nowhere"};
    bool has = storage_probe(&options, detail, sizeof detail);
    if (!has)
        printf("no btrfs here: %s\n", detail);
    return has;
}

/** The root of the area. */
static inline int fixture_area(const struct storage_area *area)
{
    return area->mount >= 0 ? openat(area->mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                            : open(area->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/** Writes `bytes` that do not compress; returns how many went in before errno. */
static inline uint64_t fixture_fill(int folder, const char *name, uint64_t bytes, int *why)
{
    static char piece[1 << 20];
    uint64_t done = 0;
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    *why = fd < 0 ? errno : 0;
    for (size_t i = 0; i < sizeof piece; i++)
        piece[i] = (char)(i * 2654435761U >> 13);
    while (*why == 0 && done < bytes) {
        size_t most = bytes - done < sizeof piece ? (size_t)(bytes - done) : sizeof piece;
        ssize_t put = write(fd, piece, most);
        if (put < 0)
            *why = errno;
        else
            done += (uint64_t)put;
    }
    if (fd >= 0) {
        if (*why == 0 && fsync(fd) < 0)
            *why = errno;
        close(fd);
    }
    return done;
}

/** Waits for the job, if there is one. */
static inline bool fixture_finish(struct storage_job *job)
{
    struct error err = {0};
    if (job == NULL)
        return true;
    struct pollfd watch = {.fd = storage_job_fd(job), .events = POLLIN};
    CHECK(poll(&watch, 1, 120000) == 1);
    bool ok = storage_job_finish(job, &err);
    if (!ok)
        fprintf(stderr, "job: %s\n", err.message);
    return ok;
}
