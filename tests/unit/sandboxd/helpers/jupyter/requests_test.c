/* requests_test.c - lines of the front: one at a time, whatever pieces they come in, and nothing beyond the bound. */
#include "sandboxd/helpers/jupyter/requests.h"

#include "sandboxd/helpers/drivers/drivers.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <sys/mman.h>
#include <unistd.h>

static int file_of(const void *data, size_t size)
{
    int fd = memfd_create("requests", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static void test_lines(void)
{
    static const char LINES[] = "{\"run\":{\"id\":\"r1\",\"code\":\"a\\u0000b\\n\",\"silent\":true}}\n"
                                "{\"run\":{\"id\":\"r2\",\"code\":\"\"}}\n{\"exit\":{}}\n";
    struct requests requests = {.fd = file_of(LINES, sizeof LINES - 1)};
    struct request request;
    struct error err = {0};
    CHECK(requests_take(&requests, &request, &err) && request.kind == REQUEST_NONE);
    CHECK(requests_read(&requests, &err));
    CHECK(requests_take(&requests, &request, &err) && request.kind == REQUEST_RUN);
    CHECK_TEXT(request.run, "r1");
    CHECK(request.silent && json_string_length(request.code) == 4);
    request_done(&request);
    CHECK(requests_take(&requests, &request, &err) && request.kind == REQUEST_RUN && !request.silent);
    request_done(&request);
    CHECK(requests_take(&requests, &request, &err) && request.kind == REQUEST_EXIT);
    CHECK(requests_take(&requests, &request, &err) && request.kind == REQUEST_NONE);
    CHECK(requests_read(&requests, &err) && requests.has_ended);
    CHECK(requests_take(&requests, &request, &err) && request.kind == REQUEST_EXIT); /* the end of file */
    requests_done(&requests);
    close(requests.fd);
}

static void test_refused(void)
{
    static const char *const BAD[] = {"x\n",
                                      "{}\n",
                                      "[]\n",
                                      "{\"run\":{}}\n",
                                      "{\"run\":{\"id\":1,\"code\":\"\"}}\n",
                                      "{\"run\":{\"id\":\"r\",\"code\":[]}}\n",
                                      "\n"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct requests requests = {.fd = file_of(BAD[i], strlen(BAD[i]))};
        struct request request;
        struct error err = {0};
        CHECK(requests_read(&requests, &err));
        CHECK(!requests_take(&requests, &request, &err) && err.kind == ERROR_INVALID);
        request_done(&request);
        requests_done(&requests);
        close(requests.fd);
    }
}

static void test_bound(void)
{
    size_t size = DRIVER_REQUEST_MAX + 1024 * 1024;
    AUTO_FREE char *much = memory_new(size);
    memset(much, ' ', size);
    struct requests requests = {.fd = file_of(much, size)};
    struct error err = {0};
    int reads = 0;
    while (requests_read(&requests, &err) && !requests.has_ended)
        reads++;
    CHECK(!requests.has_ended && err.kind == ERROR_TOO_LARGE && reads > 60);
    requests_done(&requests);
    close(requests.fd);
}

int main(void)
{
    test_lines();
    test_refused();
    test_bound();
    return check_done();
}
