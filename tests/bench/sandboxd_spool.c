/* sandboxd_spool.c - what one audit record costs on the path of an exec: sandboxd_spool [folder] */
#include "sandboxd/journal/spool.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <time.h>

enum { RECORDS = 100000, SLICE = 100 };

static struct spool *spool;

static int by_size(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

static void *add_records(void *cookie)
{
    struct spool_record record = {.action = "exec",
                                  .outcome = "ok",
                                  .principal = "ada",
                                  .actor = "human:ada",
                                  .thread_id = "thread-0123456789",
                                  .sandbox_id = "sbx_0123456789abcdefghij",
                                  .lease = "lse_0123456789abcdefghij",
                                  .jti = "tok_0123456789abcdefghij",
                                  .scope = "fs:rw shell process",
                                  .remote = "127.0.0.1",
                                  .request_id = "req_0123456789abcdefghij",
                                  .detail = "id=exe_0123456789abcdefghij cwd=/workspace timeout_ms=0 stdin=0 "
                                            "arguments=3 command=/bin/bash -c 'make -j8 check 2>&1 | tail -50'"};
    struct error err = {0};
    uint64_t *took = cookie;
    for (size_t i = 0; i < RECORDS; i++) {
        uint64_t start = clock_monotonic_ns();
        if (!spool_add(spool, &record, &err)) {
            (void)fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
        took[i] = clock_monotonic_ns() - start;
        if (i % SLICE == 0) { /* an exec takes longer than this: the disk has time */
            struct timespec pause = {.tv_nsec = 200000};
            nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

static void measure(unsigned threads)
{
    pthread_t ids[8];
    uint64_t *took = calloc((size_t)threads * RECORDS, sizeof *took);
    for (unsigned i = 0; i < threads; i++)
        if (!took || pthread_create(&ids[i], NULL, add_records, took + (size_t)i * RECORDS) != 0)
            exit(1);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    size_t count = (size_t)threads * RECORDS;
    qsort(took, count, sizeof *took, by_size);
    (void)printf("%u threads: p50 %.1f us, p99 %.1f us, p99.99 %.1f us, most %.1f us\n", threads,
                 (double)took[count / 2] / 1e3, (double)took[count - count / 100] / 1e3,
                 (double)took[count - count / 10000] / 1e3, (double)took[count - 1] / 1e3);
    free(took);
}

int main(int argc, char *argv[])
{
    char path[256];
    struct error err = {0};
    if (sodium_init() < 0 || !text_format(path, sizeof path, "%s/spool-bench-XXXXXX", argc > 1 ? argv[1] : "/tmp") ||
        !mkdtemp(path))
        return 1;
    struct spool_options options = {.folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC),
                                    .bytes_max = UINT64_C(1) << 30};
    spool = spool_open(&options, &err);
    if (!spool) {
        (void)fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    measure(1);
    measure(2);
    measure(4);
    spool_free(spool);
    close(options.folder);
    return fd_remove_tree(path, &err) ? 0 : 1;
}
