/* command_test.c - what a command finds: variables in the order in which they win, where it starts, who it runs as. */
#include "sandboxd/sandbox/command.h"
#include "shared/base/fd.h"
#include "tests/unit/check.h"

#include <string.h>
#include <unistd.h>

static const struct command_ground GROUND = {
    .template_env = "PATH=/opt/bin\0HOME=/home/app\0T=template\0",
    .sandbox_env = "S=sandbox\0T=sandbox\0",
    .workdir = "/app",
    .uid = 1000,
};

/* The variable's value, "" when it is not there; checks that it is there once. */
static const char *value_of(const struct front_init_command *read, const char *name)
{
    const char *found = "";
    size_t length = strlen(name), times = 0;
    for (size_t i = 0; read->variables[i]; i++)
        if (strncmp(read->variables[i], name, length) == 0 && read->variables[i][length] == '=') {
            found = read->variables[i] + length + 1;
            times++;
        }
    CHECK(times <= 1);
    return found;
}

static void *seal(const struct command *command, const struct command_ground *ground, struct front_init_command *read)
{
    struct error err = {0};
    void *memory = NULL;
    int fd = command_seal(command, ground, &err);
    CHECK(fd >= 0 && front_init_command_read(fd, read, &memory, &err));
    close(fd);
    return memory;
}

static void test_order(void)
{
    struct error err = {0};
    struct front_init_command read = {0};
    AUTO(command) *command = command_new();
    CHECK(command_add_argument(command, "/bin/true", &err));
    AUTO_FREE void *first = seal(command, &GROUND, &read);
    CHECK_TEXT(read.cwd, "/app");
    CHECK_TEXT(value_of(&read, "PATH"), "/opt/bin");
    CHECK_TEXT(value_of(&read, "HOME"), "/home/app");
    CHECK_TEXT(value_of(&read, "T"), "sandbox");
    CHECK_TEXT(value_of(&read, "S"), "sandbox");
    CHECK_TEXT(value_of(&read, "USER"), "user");
    CHECK_TEXT(value_of(&read, "TERM"), "");
    CHECK(command_add_variable(command, "T", "own", &err) && command_add_variable(command, "HOME", "/tmp", &err));
    command->cwd = strdup("/var");
    command->terminal = true;
    AUTO_FREE void *second = seal(command, &GROUND, &read);
    CHECK_TEXT(read.cwd, "/var");
    CHECK_TEXT(value_of(&read, "T"), "own");
    CHECK_TEXT(value_of(&read, "HOME"), "/tmp");
    CHECK_TEXT(value_of(&read, "TERM"), "xterm-256color");
}

static void test_users(void)
{
    struct error err = {0};
    struct front_init_command read = {0};
    struct command_ground other = GROUND, bare = {.template_env = "", .sandbox_env = "", .workdir = "/", .uid = 1000};
    AUTO(command) *command = command_new();
    CHECK(command_add_argument(command, "/bin/true", &err));
    AUTO_FREE void *plain = seal(command, &bare, &read);
    CHECK_TEXT(value_of(&read, "HOME"), "/workspace");
    CHECK_TEXT(value_of(&read, "LOGNAME"), "user");
    other.uid = 33; /* what the template does not say nobody knows */
    AUTO_FREE void *foreign = seal(command, &other, &read);
    CHECK_TEXT(value_of(&read, "USER"), "");
    uint8_t as_user[COMMAND_HASH_BYTES], as_root[COMMAND_HASH_BYTES];
    command_hash(command, as_user);
    command->as_root = true;
    command_hash(command, as_root);
    CHECK(memcmp(as_user, as_root, sizeof as_user) != 0);
    AUTO_FREE void *root = seal(command, &other, &read);
    CHECK_TEXT(value_of(&read, "HOME"), "/root");
    CHECK_TEXT(value_of(&read, "USER"), "root");
    CHECK_TEXT(value_of(&read, "LOGNAME"), "root");
    other.sandbox_env = "HOME=/data\0";
    AUTO_FREE void *asked = seal(command, &other, &read);
    CHECK_TEXT(value_of(&read, "HOME"), "/data");
}

static void test_login_shell(void)
{
    struct error err = {0};
    AUTO(command) *command = command_new();
    CHECK(command_set_login_shell(command, &err) && command->argument_count == 3);
    CHECK_TEXT(command->arguments[0], "/bin/sh");
    CHECK(strstr(command->arguments[2], "$SHELL") || strstr(command->arguments[2], "${SHELL"));
}

static struct command *true_command(void)
{
    struct error err = {0};
    struct command *command = command_new();
    CHECK(command_add_argument(command, "/bin/true", &err));
    return command;
}

static bool differs(const struct command *command, uint8_t hash[static COMMAND_HASH_BYTES])
{
    uint8_t now[COMMAND_HASH_BYTES];
    command_hash(command, now);
    bool is_other = memcmp(now, hash, sizeof now) != 0;
    memcpy(hash, now, sizeof now);
    return is_other;
}

/* A program is sealed memory; it and the zygote tell one command from another, how a zygote is started does not. */
static void test_programs(void)
{
    struct error err = {0};
    uint8_t hash[COMMAND_HASH_BYTES];
    AUTO_FD int one = fd_sealed_memfd("one", "x", 1, &err);
    AUTO_FD int two = fd_sealed_memfd("two", "x", 1, &err);
    AUTO(command) *command = true_command();
    command_hash(command, hash);
    CHECK(!command_set_program(command, 0, &err) && err.kind == ERROR_INVALID && command->program == -1);
    CHECK(!command_set_zygote(command, 1, true_command(), &err) && err.kind == ERROR_INVALID); /* without a program */
    CHECK(!differs(command, hash));
    CHECK(command_set_program(command, one, &err) && command->program != one && differs(command, hash));
    CHECK(command_set_program(command, one, &err) && !differs(command, hash));
    CHECK(command_set_program(command, two, &err) && differs(command, hash));
    CHECK(!command_set_zygote(command, 0, true_command(), &err));
    CHECK(!command_set_zygote(command, FRONT_INIT_ZYGOTES + 1, true_command(), &err));
    CHECK(!command_set_zygote(command, 1, NULL, &err));
    CHECK(!command_set_zygote(command, 1, command_new(), &err)); /* which has no arguments */
    command->as_root = true;
    CHECK(!command_set_zygote(command, 1, true_command(), &err));
    command->as_root = false;
    command->terminal = true;
    CHECK(!command_set_zygote(command, 1, true_command(), &err));
    command->terminal = false;
    CHECK(!differs(command, hash));
    CHECK(command_set_zygote(command, 1, true_command(), &err) && differs(command, hash));
    struct command *other = true_command();
    CHECK(command_add_argument(other, "more", &err));
    CHECK(command_set_zygote(command, 1, other, &err) && !differs(command, hash));
    CHECK(command_set_zygote(command, 2, true_command(), &err) && differs(command, hash));
}

static void test_reserved_ids(void)
{
    struct error err = {0};
    CHECK(!command_check_client_id("kernel.a.1", &err) && err.kind == ERROR_INVALID);
    CHECK(!command_check_client_id("execution.x", &err));
    CHECK(!command_check_client_id("kernel.", &err));
    CHECK(command_check_client_id("kernel", &err) && command_check_client_id("my.kernel.a", &err));
    CHECK(command_check_client_id("executions.x", &err) && command_check_client_id("Kernel.a", &err));
}

int main(void)
{
    test_order();
    test_users();
    test_login_shell();
    test_programs();
    test_reserved_ids();
    return check_done();
}
