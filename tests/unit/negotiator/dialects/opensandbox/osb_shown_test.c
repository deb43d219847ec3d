/* Goal: sandboxes are shown as the protocol has them: states by its names, no null, no end where there is none; codes
 * and pages are its own. */
#include "negotiator/dialects/opensandbox/osb_shown.h"

#include "negotiator/dialects/opensandbox/osb_codes.h"
#include "negotiator/dialects/opensandbox/osb_errors.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

static void check_json(json_t *taken, const char *expected)
{
    char *text = json_dumps(taken, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(taken);
    CHECK_TEXT(text, expected);
    free(text);
}

static void test_sandbox(void)
{
    struct sandbox sandbox = {.id = "sbx_a",
                              .template_name = "base",
                              .state = SANDBOX_ACTIVE,
                              .created_at = 1000,
                              .state_since = 2000,
                              .deadline = LIFE_ENDLESS_MS};
    check_json(
        osb_shown_sandbox(&sandbox),
        "{\"createdAt\":\"1970-01-01T00:00:01.000Z\",\"entrypoint\":[],\"id\":\"sbx_a\",\"image\":{\"uri\":\"base\"},"
        "\"metadata\":{},\"status\":{\"lastTransitionAt\":\"1970-01-01T00:00:02.000Z\",\"state\":\"Running\"}}");
    sandbox.deadline = 61000;
    sandbox.origin = json_pack("{s:s, s:s, s:s}", "image", "python:3.11", "os", "linux", "arch", "amd64");
    sandbox.metadata = json_pack("{s:s}", "a", "b");
    sandbox.entrypoint = json_pack("[s]", "tail");
    sandbox.state = SANDBOX_PAUSED;
    check_json(osb_shown_created(&sandbox),
               "{\"createdAt\":\"1970-01-01T00:00:01.000Z\",\"entrypoint\":[\"tail\"],\"expiresAt\":\"1970-01-01T00:01:"
               "01.000Z\","
               "\"id\":\"sbx_a\",\"metadata\":{\"a\":\"b\"},\"platform\":{\"arch\":\"amd64\",\"os\":\"linux\"},"
               "\"status\":{\"lastTransitionAt\":\"1970-01-01T00:00:02.000Z\",\"state\":\"Paused\"}}");
    json_t *json = osb_shown_sandbox(&sandbox);
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(json, "image"), "uri")), "python:3.11");
    json_decref(json);
    json_decref(sandbox.entrypoint);
    sandbox.entrypoint = NULL;
    json_object_set_new(sandbox.origin, "entrypoint", json_string("tail -f /dev/null"));
    json = osb_shown_created(&sandbox);
    CHECK(osb_is_keep_alive(json_object_get(json, "entrypoint")));
    json_decref(json);
    strcpy(sandbox.snapshot, "snp_b");
    json = osb_shown_sandbox(&sandbox);
    CHECK(json_object_get(json, "image") == NULL);
    CHECK_TEXT(json_string_value(json_object_get(json, "snapshotId")), "snp_b");
    json_decref(json);
    sandbox_done(&sandbox);
}

static void test_states(void)
{
    CHECK(osb_state_bits("running") == (1U << SANDBOX_ACTIVE | 1U << SANDBOX_IDLE));
    CHECK(osb_state_bits("PAUSED") == 1U << SANDBOX_PAUSED && osb_state_bits("Pending") == 1U << SANDBOX_PROVISIONING);
    CHECK(osb_state_bits("Terminated") == 0 && osb_state_bits("") == 0 && osb_state_bits("active") == 0);
    struct sandbox ending = {.state = SANDBOX_TERMINATING};
    CHECK(!osb_is_shown(&ending) && (osb_states_shown() & 1U << SANDBOX_TERMINATING) == 0);
    ending.state = SANDBOX_IDLE;
    CHECK(osb_is_shown(&ending));
}

static void test_pages(void)
{
    check_json(osb_shown_pages(1, 20, 0),
               "{\"hasNextPage\":false,\"page\":1,\"pageSize\":20,\"totalItems\":0,\"totalPages\":0}");
    check_json(osb_shown_pages(2, 2, 5),
               "{\"hasNextPage\":true,\"page\":2,\"pageSize\":2,\"totalItems\":5,\"totalPages\":3}");
    check_json(osb_shown_pages(3, 2, 5),
               "{\"hasNextPage\":false,\"page\":3,\"pageSize\":2,\"totalItems\":5,\"totalPages\":3}");
}

static void test_codes(void)
{
    for (enum error_kind kind = 0; kind <= ERROR_KINDS; kind++)
        CHECK(strstr(osb_code(kind, false), "::") && strstr(osb_code(kind, true), "::"));
    CHECK_TEXT(osb_code(ERROR_GONE, false), "DOCKER::SANDBOX_NOT_FOUND");
    CHECK_TEXT(osb_code(ERROR_NOT_FOUND, true), OSB_NO_SNAPSHOT);
    CHECK_TEXT(osb_code(ERROR_INTERNAL, false), "GENERAL::UNKNOWN_ERROR");
    struct osb_refusal refusal = {.code = NULL};
    CHECK(!osb_refusal_set(&refusal, OSB_INVALID, ERROR_INVALID, "%s", "wrong %d"));
    CHECK_TEXT(refusal.err.message, "wrong %d");
}

int main(void)
{
    test_sandbox();
    test_states();
    test_pages();
    test_codes();
    return check_done();
}
