/* program_test.c - the bridge's program reaches a sandbox as a file that runs and that nobody can change. */
#include "sandboxd/helpers/drivers/bridge.h"

#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_names(void)
{
    static const char *const BAD[] = {"jupyter:", "jupyter:../x", "jupyter:-x", "jupyter:.x", "jupyter:a b",
                                      "jupyter",  "python",       "",           "Jupyter:x",  "jupyter:x/y"};
    char longest[DRIVER_NAME_BYTES + 1] = "jupyter:";
    struct driver_start start;
    struct error err = {0};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        CHECK(driver_bridge_spec(BAD[i]) == NULL);
        CHECK(!driver_bridge_context(BAD[i], &start, &err) && err.kind == ERROR_INVALID);
    }
    memset(longest + strlen(longest), 'x', DRIVER_NAME_BYTES - strlen(longest));
    CHECK(driver_bridge_spec(longest) == NULL);
    longest[DRIVER_NAME_BYTES - 1] = '\0';
    CHECK(driver_bridge_spec(longest) != NULL);
    CHECK(driver_bridge_context("jupyter:ir.4_x-y", &start, &err));
    CHECK_TEXT(start.arguments[0], "/proc/self/fd/3");
    CHECK_TEXT(start.arguments[1], "ir.4_x-y");
    CHECK(start.arguments[2] == NULL && start.zygote == DRIVER_ZYGOTE_NONE);
    driver_bridge_list(&start);
    CHECK_TEXT(start.arguments[1], "--list");
}

static void test_missing(void)
{
    struct error err = {0};
    CHECK(driver_bridge_program(&err) < 0 && err.kind == ERROR_INVALID);
    CHECK(!driver_bridge_load("/no/such/program", &err) && err.kind == ERROR_NOT_FOUND);
    CHECK(driver_bridge_program(&err) < 0 && err.kind == ERROR_INVALID);
    CHECK(strstr(err.message, "/no/such") == NULL); /* clients read it */
}

/* Whoever has the descriptor tries. */
static void test_sealed(int program)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    CHECK(write(program, "x", 1) < 0);
    int again = open(path, O_RDWR | O_CLOEXEC);
    CHECK(again < 0 || write(again, "x", 1) < 0);
    CHECK(again < 0 || ftruncate(again, 0) < 0);
    CHECK(mmap(NULL, 1, PROT_WRITE, MAP_SHARED, program, 0) == MAP_FAILED);
    if (again >= 0)
        close(again);
    int seals = fcntl(program, F_GET_SEALS);
    CHECK((seals & (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) ==
          (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
}

static void test_runs(int program)
{
    char word[] = "x";
    char *const arguments[] = {word, NULL};
    char *const environment[] = {NULL};
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        fexecve(program, arguments, environment);
        _exit(99);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    struct error err = {0};
    test_names();
    test_missing();
    CHECK(driver_bridge_load("/bin/true", &err)); /* any program */
    int program = driver_bridge_program(&err);
    CHECK(program >= 0);
    test_sealed(program);
    test_runs(program);
    return check_done();
}
