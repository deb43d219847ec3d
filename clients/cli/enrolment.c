#include "clients/cli/enrolment.h"

#include "clients/c/call.h"
#include "clients/c/place.h"
#include "clients/cli/cli.h"

#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

static const char NODE[] = "n1";
static const unsigned READY_WITHIN_MS = 30000;

/* --- a node that has its key --- */

/* The file without its newline; NULL when it cannot be read. The caller frees. */
static char *read_line(const char *state, const char *name)
{
    AUTO_FREE char *path = memory_printf("%s/%s", state, name);
    char *text = fd_read_file(path, 256, NULL, NULL);
    if (text)
        text[strcspn(text, "\n")] = '\0';
    return text;
}

static bool write_node(const char *path, const json_t *node, struct error *err)
{
    char *text = json_dumps(node, JSON_INDENT(1));
    bool written = fd_write_file(path, 0600, text, strlen(text), err);
    sodium_memzero(text, strlen(text));
    free(text);
    return written;
}

/* The negotiator's port may be another than last time. */
static bool point_node(const char *path, json_t *node, const char *url, struct error *err)
{
    if (text_equal(json_string_value(json_object_get(node, "negotiator_url")), url))
        return true;
    json_object_set_new(node, "negotiator_url", json_string(url));
    return write_node(path, node, err);
}

/* False with no error: it has to enrol. */
static bool keep_node(const struct supervisor *supervisor, const char *url, struct error *err)
{
    AUTO_FREE char *path = memory_printf("%s/sandboxd/node.json", supervisor->state);
    AUTO_FREE char *deployment = read_line(supervisor->state, "negotiator/deployment");
    size_t size = 0;
    char *text = deployment ? fd_read_file(path, 65536, &size, NULL) : NULL;
    if (text == NULL)
        return false;
    json_t *node = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    sodium_memzero(text, size);
    free(text);
    bool ours = text_equal(json_string_value(json_object_get(node, "deployment")), deployment) &&
                json_is_string(json_object_get(node, "node_key"));
    bool kept = ours && point_node(path, node, url, err);
    json_decref(node);
    return kept;
}

/* --- one that has none --- */

static bool wait_negotiator(const char *url, struct error *err)
{
    AUTO_FREE char *health = memory_printf("%s/healthz", url);
    struct call call = {.method = "GET", .url = health, .timeout_ms = 2000};
    uint64_t until = clock_boot_ns() + READY_WITHIN_MS * 1000000ULL;
    for (;;) {
        *err = (struct error){0};
        if (call_json(&call, NULL, NULL, err))
            return true;
        if (clock_boot_ns() > until)
            return error_prefix(err, "the negotiator is not there");
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

/* The caller wipes and frees. */
static char *make_join_token(const struct supervisor *supervisor, const char *url, struct error *err)
{
    AUTO_PLACE place = {.url = memory_string(url), .api_key = read_line(supervisor->state, "admin.key")};
    if (place.api_key == NULL) {
        error_set(err, ERROR_NOT_FOUND,
                  "%s/admin.key is not there: enrol this machine by hand (parley-sandboxd enrol --help)",
                  supervisor->state);
        return NULL;
    }
    json_t *body = json_pack("{s:s}", "name", NODE), *reply = NULL;
    bool made = negotiator_call(&place, "POST", "/nodes", body, &reply, err);
    char *token = made ? memory_string(json_string_value(json_object_get(reply, "join_token"))) : NULL;
    json_decref(body);
    json_decref(reply);
    if (made && token == NULL)
        error_set(err, ERROR_INTERNAL, "the negotiator made no join token");
    if (!made)
        error_prefix(err, "a join token for this machine");
    return token;
}

/* The token goes by the environment: words are in every process list. */
static bool run_enrol(const struct supervisor *supervisor, const char *url, const char *token, struct error *err)
{
    pid_t pid = fork();
    if (pid < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fork");
    if (pid == 0) {
        if (setenv("PARLEY_JOIN_TOKEN", token, 1) == 0)
            execl(supervisor->sandboxd, supervisor->sandboxd, "enrol", "--node", NODE, "--negotiator-url", url,
                  "--state", supervisor->state, (char *)NULL);
        _exit(127);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error_set(err, ERROR_INTERNAL, "parley-sandboxd enrol failed, see above");
    return true;
}

bool enrolment_ensure(const struct supervisor *supervisor, struct error *err)
{
    AUTO_FREE char *url = supervisor_url(supervisor, 0);
    struct error why = {0};
    if (!supervisor_trust(supervisor, err))
        return false;
    if (keep_node(supervisor, url, &why))
        return true;
    if (why.kind != ERROR_NONE) {
        *err = why;
        return false;
    }
    if (!wait_negotiator(url, err))
        return false;
    if (keep_node(supervisor, url, &why)) /* the deployment's id may have been written just now */
        return true;
    char *token = make_join_token(supervisor, url, err);
    bool enrolled = token && run_enrol(supervisor, url, token, err);
    if (token)
        sodium_memzero(token, strlen(token));
    free(token);
    return enrolled;
}
