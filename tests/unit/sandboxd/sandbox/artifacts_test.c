/* Tickets: each opens one file of one execution of one sandbox, once, and not for long; there are not too many. */
#include "sandboxd/sandbox/executions/artifacts.h"

#include "sandboxd/sandbox/executions/executions_internal.h"
#include "sandboxd/sandbox/sandbox_internal.h"
#include "shared/base/clock.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static struct sandboxes all;
static const struct artifact_name NAME = {.sandbox_id = "sbx_a", .execution_id = "run_a", .name = "x/y"};
static const uint64_t HOUR_NS = UINT64_C(3600) * 1000000000;

static int make_file(void)
{
    int file = memfd_create("artifact", MFD_CLOEXEC);
    CHECK(file >= 0 && write(file, "abc", 3) == 3);
    return file;
}

static void keep(char ticket[static ARTIFACT_TICKET_BYTES])
{
    struct error err = {0};
    CHECK(artifacts_keep(&all, &NAME, make_file(), 3, clock_boot_ns() + HOUR_NS, ticket, &err));
}

static enum error_kind take(const struct artifact_name *name, const char *ticket)
{
    struct error err = {0};
    int file = -1;
    uint64_t size = 0;
    if (!artifacts_take(&all, name, ticket, &file, &size, &err)) {
        CHECK(file == -1);
        return err.kind;
    }
    char bytes[4] = "";
    CHECK(size == 3 && pread(file, bytes, 3, 0) == 3 && strcmp(bytes, "abc") == 0);
    close(file);
    return ERROR_NONE;
}

static void test_once(void)
{
    char ticket[ARTIFACT_TICKET_BYTES], other[ARTIFACT_TICKET_BYTES];
    struct error err = {0};
    uint64_t size = 0;
    int looked = -1;
    keep(ticket);
    keep(other);
    CHECK(strcmp(ticket, other) != 0 && strlen(ticket) == ARTIFACT_TICKET_BYTES - 1);
    CHECK(artifacts_look(&all, &NAME, ticket, &looked, &size, &err) && size == 3 && looked >= 0);
    close(looked);
    CHECK(take(&NAME, ticket) == ERROR_NONE);
    CHECK(take(&NAME, ticket) == ERROR_GONE);
    CHECK(!artifacts_look(&all, &NAME, ticket, &looked, &size, &err) && err.kind == ERROR_GONE);
    CHECK(take(&NAME, other) == ERROR_NONE); /* of the same file, and another download */
}

static void test_nothing_else(void)
{
    char ticket[ARTIFACT_TICKET_BYTES];
    keep(ticket);
    const struct artifact_name others[] = {{"sbx_b", "run_a", "x/y"},
                                           {"sbx_a", "run_b", "x/y"},
                                           {"sbx_a", "run_a", "x"},
                                           {"sbx_a", "run_a", ""},
                                           {"sbx_a", "run_a", "x/y/"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(take(&others[i], ticket) == ERROR_NOT_FOUND);
    CHECK(take(&NAME, "") == ERROR_NOT_FOUND);
    CHECK(take(&NAME, "0123456789abcdef0123456789abcdef") == ERROR_NOT_FOUND);
    ticket[0] = ticket[0] == '0' ? '1' : '0';
    CHECK(take(&NAME, ticket) == ERROR_NOT_FOUND);
}

static void test_dropped_with_its_sandbox(void)
{
    char ticket[ARTIFACT_TICKET_BYTES];
    struct error err = {0};
    int file = make_file();
    CHECK(artifacts_keep(&all, &NAME, file, 3, clock_boot_ns() + HOUR_NS, ticket, &err));
    artifacts_drop(&all, "sbx_b");
    CHECK(fcntl(file, F_GETFD) >= 0);
    artifacts_drop(&all, "sbx_a");
    CHECK(fcntl(file, F_GETFD) < 0);
    CHECK(take(&NAME, ticket) == ERROR_NOT_FOUND);
}

static void test_too_old(void)
{
    char ticket[ARTIFACT_TICKET_BYTES];
    struct error err = {0};
    CHECK(artifacts_keep(&all, &NAME, make_file(), 3, clock_boot_ns(), ticket, &err));
    CHECK(take(&NAME, ticket) == ERROR_GONE);
    artifacts_drop(&all, "sbx_a");
}

static void test_bound(void)
{
    char ticket[ARTIFACT_TICKET_BYTES];
    struct error err = {0};
    for (int i = 0; i < ARTIFACTS_OF_SANDBOX; i++)
        keep(ticket);
    int file = make_file();
    CHECK(!artifacts_keep(&all, &NAME, file, 3, clock_boot_ns() + HOUR_NS, ticket, &err));
    CHECK(err.kind == ERROR_NO_CAPACITY && fcntl(file, F_GETFD) >= 0); /* still the caller's */
    struct artifact_name other = NAME;
    other.sandbox_id = "sbx_b";
    CHECK(artifacts_keep(&all, &other, file, 3, clock_boot_ns() + HOUR_NS, ticket, &err));
    artifacts_drop(&all, "sbx_a");
    keep(ticket);
}

static void test_how_many_run(void)
{
    struct execution_entry entry;
    struct error err = {0};
    int64_t later = clock_wall_ms() + 60000;
    CHECK(execution_book_enter(all.executions, "sbx_c", 0, &entry, &err) && entry.is_first && !entry.is_soon);
    CHECK(execution_book_enter(all.executions, "sbx_d", later, &entry, &err) && !entry.is_first);
    for (int i = 1; i < EXECUTIONS_MAX; i++)
        CHECK(execution_book_enter(all.executions, "sbx_c", 0, &entry, &err) && !entry.is_first && entry.is_soon);
    CHECK(!execution_book_enter(all.executions, "sbx_c", 0, &entry, &err) && err.kind == ERROR_RATE_LIMITED);
    execution_book_leave(all.executions, "sbx_c");
    CHECK(execution_book_enter(all.executions, "sbx_c", 0, &entry, &err));
    artifacts_drop(&all, "sbx_c"); /* it ended: those that ran there leave nothing */
    execution_book_leave(all.executions, "sbx_c");
}

int main(void)
{
    all.executions = execution_book_new();
    test_once();
    test_nothing_else();
    test_dropped_with_its_sandbox();
    test_too_old();
    test_bound();
    test_how_many_run();
    execution_book_free(all.executions);
    return check_done();
}
