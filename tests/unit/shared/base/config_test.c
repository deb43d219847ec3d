/* config_test.c - default < file < environment < flag, and what each refusal says. */
#include "shared/base/config.h"
#include "tests/unit/check.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <sys/wait.h>
#include <unistd.h>

struct settings {
    char *state, *listen_address, *tls_cert;
    int64_t port, offset;
    bool insecure_http, audit_argv;
};

#define FIELD(name) offsetof(struct settings, name)
static const struct config_row ROWS[] = {
    {"state", CONFIG_TEXT, FIELD(state), NULL, 0, 0, "where state is"},
    {"listen_address", CONFIG_TEXT, FIELD(listen_address), "127.0.0.1", 0, 0, "address to listen on"},
    {"tls_cert", CONFIG_TEXT, FIELD(tls_cert), NULL, 0, 0, "certificate, PEM"},
    {"port", CONFIG_NUMBER, FIELD(port), "8700", 1, 65535, "port, 1..65535"},
    {"offset", CONFIG_NUMBER, FIELD(offset), NULL, -5, 5, "seconds, -5..5"},
    {"insecure_http", CONFIG_SWITCH, FIELD(insecure_http), NULL, 0, 0, "plain HTTP beyond loopback"},
    {"audit_argv", CONFIG_SWITCH, FIELD(audit_argv), "true", 0, 0, "command lines in the audit"},
};
enum { ROW_COUNT = sizeof ROWS / sizeof ROWS[0], WORDS_MAX = 16 };

static const char *const FOREIGN[] = {"idle_timeout", "workers", NULL};
static char file[64];

static void write_config(const char *json)
{
    CHECK(fd_write_file(file, 0600, json, strlen(json), NULL));
}

/* The words of a command line, split at blanks. */
static bool load(struct settings *settings, const char *line, struct error *err)
{
    AUTO_FREE char *copy = memory_string(line);
    char *words[WORDS_MAX] = {0};
    int count = 0;
    for (char *word = strtok(copy, " "); word && count < WORDS_MAX; word = strtok(NULL, " "))
        words[count++] = word;
    return config_load(settings, ROWS, ROW_COUNT, file, FOREIGN, count, words, err);
}

static void check_refused(const char *json, const char *line, const char *says)
{
    struct settings settings = {.port = 4711};
    struct error err = {0};
    write_config(json);
    CHECK(!load(&settings, line, &err));
    CHECK(err.kind == ERROR_INVALID);
    CHECK(settings.port == 4711 && settings.listen_address == NULL); /* untouched */
    if (strstr(err.message, says) == NULL) {
        fprintf(stderr, "%s | %s: said \"%s\", not \"%s\"\n", json, line, err.message, says);
        CHECK(!"the message");
    }
}

static void test_sources(void)
{
    struct settings settings = {0};
    struct error err = {0};
    unlink(file);
    CHECK(load(&settings, "", &err));
    CHECK(settings.state == NULL && settings.port == 8700 && settings.offset == 0);
    CHECK(!settings.insecure_http && settings.audit_argv);
    CHECK_TEXT(settings.listen_address, "127.0.0.1");
    config_done(&settings, ROWS, ROW_COUNT);
    CHECK(settings.listen_address == NULL);

    write_config("{\"port\": 1, \"offset\": -5, \"tls_cert\": \"/file\", \"audit_argv\": false, \"workers\": [1]}");
    CHECK(load(&settings, "", &err));
    CHECK(settings.port == 1 && settings.offset == -5 && !settings.audit_argv);
    CHECK_TEXT(settings.tls_cert, "/file");
    config_done(&settings, ROWS, ROW_COUNT);

    setenv("PARLEY_PORT", "2", 1);
    setenv("PARLEY_TLS_CERT", "/env", 1);
    setenv("PARLEY_AUDIT_ARGV", "1", 1);
    setenv("PARLEY_OFFSET", "", 1); /* empty is as none */
    CHECK(load(&settings, "", &err));
    CHECK(settings.port == 2 && settings.audit_argv && settings.offset == -5);
    CHECK_TEXT(settings.tls_cert, "/env");
    config_done(&settings, ROWS, ROW_COUNT);

    CHECK(
        load(&settings, "--port 3 --tls-cert=/flag=x --insecure_http --audit-argv=false --offset -4 --state S", &err));
    CHECK(settings.port == 3 && settings.insecure_http && !settings.audit_argv && settings.offset == -4);
    CHECK_TEXT(settings.tls_cert, "/flag=x");
    CHECK_TEXT(settings.state, "S");
    config_done(&settings, ROWS, ROW_COUNT);
    CHECK(load(&settings, "--port 3 --port=65535 --tls-cert=", &err) && settings.port == 65535); /* the last counts */
    CHECK_TEXT(settings.tls_cert, "");
    config_done(&settings, ROWS, ROW_COUNT);
    unsetenv("PARLEY_PORT");
    unsetenv("PARLEY_TLS_CERT");
    unsetenv("PARLEY_AUDIT_ARGV");
    unsetenv("PARLEY_OFFSET");
    CHECK(config_load(&settings, ROWS, ROW_COUNT, NULL, NULL, 0, NULL, &err) && settings.port == 8700);
    config_done(&settings, ROWS, ROW_COUNT);
}

static void test_refused_files(void)
{
    check_refused("{\"prot\": 1}", "", "prot is not a setting; the nearest are: port");
    check_refused("{\"prot\": 1}", "", file);
    check_refused("{\"tls-cert\": \"x\"}", "", "tls-cert is not a setting; the nearest are: tls_cert");
    check_refused("{\"port\": 0}", "", ": port must be a whole number from 1 to 65535");
    check_refused("{\"port\": 65536}", "", "from 1 to 65535");
    check_refused("{\"port\": \"1\"}", "", "from 1 to 65535");
    check_refused("{\"port\": 1.0}", "", "from 1 to 65535");
    check_refused("{\"port\": null}", "", "from 1 to 65535");
    check_refused("{\"port\": 99999999999999999999}", "", "line 1, column");
    check_refused("{\"insecure_http\": 1}", "", "insecure_http must be true or false");
    check_refused("{\"tls_cert\": 5}", "", "tls_cert must be text");
    check_refused("{\"tls_cert\": {\"a\": 1}}", "", "tls_cert must be text");
    check_refused("{\"tls_cert\": \"a\\u0000b\"}", "", "line 1");
    check_refused("{\"port\": 1, \"port\": 2}", "", "line 1");
    check_refused("[1]", "", "one JSON object");
    check_refused("", "", "line 1");
    check_refused("{\"port\": 1} x", "", "line 1");

    struct error err = {0};
    struct settings settings = {0};
    write_config("{\"tls_cert\": \"x\" \"verysecret\"}");
    CHECK(!load(&settings, "", &err) && strstr(err.message, "verysecret") == NULL);
    AUTO_FREE char *deep = memory_new(100001);
    memset(deep, '[', 100000);
    write_config(deep);
    CHECK(!load(&settings, "", &err) && err.kind == ERROR_INVALID);
    AUTO_FREE char *large = memory_new(1024 * 1024 + 2);
    memset(large, ' ', 1024 * 1024 + 1);
    write_config(large);
    CHECK(!load(&settings, "", &err) && err.kind == ERROR_TOO_LARGE);
    write_config("{\"workers\": 1}");
    CHECK(!config_load(&settings, ROWS, ROW_COUNT, file, NULL, 0, NULL, &err) && err.kind == ERROR_INVALID);
    CHECK(!config_load(&settings, ROWS, ROW_COUNT, "/", NULL, 0, NULL, &err) && err.kind == ERROR_INVALID);
    CHECK(!config_load(&settings, ROWS, ROW_COUNT, "/", NULL, 0, NULL, NULL));
}

static void test_refused_flags(void)
{
    check_refused("{}", "--prot 1", "--prot is not a setting; the nearest are: --port");
    check_refused("{}", "--port", "--port needs a value");
    check_refused("{}", "--port --insecure-http", "--port needs a value");
    check_refused("{}", "--port=", "--port must be a whole number from 1 to 65535");
    check_refused("{}", "--port 99999999999999999999", "--port must be a whole number from 1 to 65535");
    check_refused("{}", "--port 1x", "from 1 to 65535");
    check_refused("{}", "--port 08700", "from 1 to 65535");
    check_refused("{}", "--offset -6", "from -5 to 5");
    check_refused("{}", "--offset --5", "needs a value");
    check_refused("{}", "--insecure-http=maybe", "--insecure-http must be true or false");
    check_refused("{}", "--insecure-http false", "\"false\" is not a flag");
    check_refused("{}", "port", "\"port\" is not a flag");
    check_refused("{}", "-p 1", "\"-p\" is not a flag");
    check_refused("{}", "--", "is not a flag");
    check_refused("{}", "--=1", "is not a flag");
    check_refused("{}", "--por=1", "the nearest are: --port");
    setenv("PARLEY_PORT", "pk_straysecret", 1);
    check_refused("{}", "", "PARLEY_PORT must be a whole number from 1 to 65535");
    struct error err = {0};
    struct settings settings = {0};
    CHECK(!load(&settings, "", &err) && strstr(err.message, "stray") == NULL);
    unsetenv("PARLEY_PORT");
}

static void check_state(char *got, const char *want)
{
    CHECK_TEXT(got, want);
    free(got);
}

static void test_state(void)
{
    char port[] = "--port";
    char number[] = "1";
    char state[] = "--state";
    char one[] = "/one";
    char two[] = "--state=/two";
    char *const spaced[] = {port, number, state, one, NULL};
    char *const joined[] = {state, one, two, NULL};
    unsetenv("PARLEY_STATE");
    check_state(config_state_folder(4, spaced), "/one");
    check_state(config_state_folder(3, joined), "/two");
    setenv("PARLEY_STATE", "/env", 1);
    check_state(config_state_folder(4, spaced), "/one");
    check_state(config_state_folder(2, spaced), "/env");
    check_state(config_state_folder(3, spaced), "/env"); /* --state without a folder: config_load refuses it */
    unsetenv("PARLEY_STATE");
    if (geteuid() == 0)
        check_state(config_state_folder(0, NULL), "/var/lib/parley");
}

/* In a child, for root gives up being root. */
static void test_state_of_user(void)
{
    pid_t child = fork();
    if (child > 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return;
    }
    if (geteuid() == 0 && seteuid(65534) < 0)
        _exit(1);
    setenv("HOME", "/home/someone", 1);
    setenv("XDG_STATE_HOME", "/xdg", 1);
    check_state(config_state_folder(0, NULL), "/xdg/parley");
    setenv("XDG_STATE_HOME", "relative", 1);
    check_state(config_state_folder(0, NULL), "/home/someone/.local/state/parley");
    unsetenv("XDG_STATE_HOME");
    check_state(config_state_folder(0, NULL), "/home/someone/.local/state/parley");
    unsetenv("HOME");
    char *home = config_state_folder(0, NULL);
    CHECK(home && home[0] == '/');
    free(home);
    _exit(check_done());
}

static void test_help(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    config_print_help(to, ROWS, ROW_COUNT);
    fclose(to);
    CHECK(strstr(text, "  --listen-address TEXT        address to listen on (default 127.0.0.1)\n") != NULL);
    CHECK(strstr(text, "  --insecure-http              plain HTTP beyond loopback\n") != NULL);
    CHECK(strstr(text, "  --port N ") != NULL);
    free(text);
}

static void test_listeners(void)
{
    static const char *const LOOPBACK[] = {"127.0.0.1", "127.9.9.9", "::1", "localhost"};
    static const char *const BEYOND[] = {"0.0.0.0",           "::", "127.evil.example", "127.1", "10.0.0.1",
                                         "localhost.example", ""};
    struct error err = {0};
    for (size_t i = 0; i < sizeof LOOPBACK / sizeof *LOOPBACK; i++)
        CHECK(config_check_listener(&(struct config_listener){.host = LOOPBACK[i]}, &err));
    for (size_t i = 0; i < sizeof BEYOND / sizeof *BEYOND; i++) {
        CHECK(!config_check_listener(&(struct config_listener){.host = BEYOND[i]}, &err) && err.kind == ERROR_INVALID);
        CHECK(config_check_listener(&(struct config_listener){.host = BEYOND[i], .insecure_http = true}, &err));
        CHECK(config_check_listener(&(struct config_listener){BEYOND[i], "c", "k", false}, &err));
        CHECK(!config_check_listener(&(struct config_listener){BEYOND[i], "c", NULL, true}, &err) &&
              strstr(err.message, "tls_key is missing") != NULL);
    }
    CHECK(config_set_log_level("warn", &err) && !config_set_log_level("loud", &err));
}

static void test_state_folder(void)
{
    struct with_state {
        char *state;
    } settings = {0};
    static const struct config_row STATE_ROW[] = {
        {"state", CONFIG_TEXT, offsetof(struct with_state, state), NULL, 0, 0, "folder"}};
    char flag[] = "--state", folder[] = "/nowhere/parley", relative[] = "nowhere";
    char *const good[] = {flag, folder}, *const bad[] = {flag, relative};
    struct error err = {0};
    CHECK(config_load_state(&settings, STATE_ROW, 1, NULL, 2, good, &err));
    CHECK_TEXT(settings.state, folder);
    config_done(&settings, STATE_ROW, 1);
    CHECK(!config_load_state(&settings, STATE_ROW, 1, NULL, 2, bad, &err) && err.kind == ERROR_INVALID);
    CHECK(strstr(err.message, "absolute") != NULL);
}

int main(void)
{
    test_state_folder();
    test_listeners();
    snprintf(file, sizeof file, "/tmp/parley-config-test-%d.json", (int)getpid());
    test_sources();
    test_refused_files();
    test_refused_flags();
    unlink(file);
    test_help();
    test_state();
    test_state_of_user();
    return check_done();
}
