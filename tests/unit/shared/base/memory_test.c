/* memory_test.c - memory is zeroed, copies end in NUL, and running out or overflowing ends the program. */
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile size_t too_many = SIZE_MAX / 4; /* volatile: the compiler need not see how large it is */

static void overflowing_array(void)
{
    free(memory_array(too_many, 16));
}

static void endless_resize(void)
{
    free(memory_resize(NULL, too_many * 2));
}

static bool ends_by_abort(void (*act)(void))
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit no_core = {0};
        setrlimit(RLIMIT_CORE, &no_core);
        close(STDERR_FILENO);
        act();
        _exit(0);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    AUTO_FREE char *zeroed = memory_new(100);
    AUTO_FREE int *numbers = memory_array(10, sizeof *numbers);
    for (int i = 0; i < 100; i++)
        CHECK(zeroed[i] == 0);
    for (int i = 0; i < 10; i++)
        CHECK(numbers[i] == 0);
    AUTO_FREE void *nothing = memory_new(0);
    AUTO_FREE void *none = memory_array(0, 8);
    AUTO_FREE void *empty = memory_resize(NULL, 0);
    CHECK(nothing != NULL && none != NULL && empty != NULL);

    AUTO_FREE char *copy = memory_copy("abc\0def", 7);
    CHECK(memcmp(copy, "abc\0def", 8) == 0);
    AUTO_FREE char *no_bytes = memory_copy(NULL, 0);
    CHECK_TEXT(no_bytes, "");
    AUTO_FREE char *text = memory_string("hello");
    CHECK_TEXT(text, "hello");
    CHECK(memory_string(NULL) == NULL);
    AUTO_FREE char *formatted = memory_printf("%s-%d", "a", 5);
    CHECK_TEXT(formatted, "a-5");
    text = memory_resize(text, 1000);
    CHECK_TEXT(text, "hello");

    CHECK(ends_by_abort(overflowing_array));
    CHECK(ends_by_abort(endless_resize));
    return check_done();
}
