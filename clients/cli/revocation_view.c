#include "clients/cli/revocation_view.h"

#include "clients/cli/cli.h"

#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

static bool is_in_force(const json_t *revocation)
{
    return text_equal(json_string_value(json_object_get(revocation, "state")), "in_force");
}

/* {"sandbox": "sbx_..."} as "sandbox sbx_...". The caller frees. */
static char *selector_text(const json_t *revocation)
{
    AUTO_TEXT text = {0};
    const char *name;
    json_t *value;
    json_object_foreach (json_object_get(revocation, "selector"), name, value) {
        const char *word = json_string_value(value);
        text_append_format(&text, "%s%s%s%s", text.length ? ", " : "", name, word ? " " : "", word ? word : "");
    }
    return cli_safe(text.data ? text.data : "?");
}

static char *missing_text(const json_t *revocation)
{
    AUTO_TEXT text = {0};
    size_t index;
    json_t *node;
    const json_t *named = json_object_get(revocation, "missing");
    json_array_foreach (named, index, node) {
        const char *name = json_string_value(node);
        text_append_format(&text, "%s%s", index ? " " : "", name ? name : "?");
    }
    json_int_t count = json_integer_value(json_object_get(revocation, "missing_count"));
    if (count > (json_int_t)json_array_size(named))
        text_append_format(&text, " and %lld more", (long long)(count - (json_int_t)json_array_size(named)));
    return cli_safe(text.length ? text.data : "-");
}

static void print(const json_t *revocation)
{
    AUTO_FREE char *id = cli_member(revocation, "id");
    AUTO_FREE char *selector = selector_text(revocation);
    AUTO_FREE char *reason = cli_member(revocation, "reason");
    AUTO_FREE char *by = cli_member(revocation, "by");
    AUTO_FREE char *before = cli_member(revocation, "before");
    AUTO_FREE char *principal = cli_member(revocation, "principal");
    bool in_force = is_in_force(revocation);
    printf("%s  %s  %s\n", id, selector, in_force ? "in force" : "pending");
    printf("  issued until   %s\n", strcmp(before, "-") == 0 ? "any time" : before);
    printf("  reason         %s\n", reason);
    printf("  by             %s\n", strcmp(by, "-") == 0 ? "a holder of the token" : by);
    if (strcmp(principal, "-") != 0)
        printf("  of principal   %s\n", principal);
    if (in_force)
        return;
    AUTO_FREE char *missing = missing_text(revocation);
    AUTO_FREE char *usable = cli_member(revocation, "usable_until");
    printf("  not yet on     %s\n", missing);
    printf("  usable until   %s\n", strcmp(usable, "-") == 0 ? "no such token is known to live" : usable);
}

int revocation_show(json_t *reply, bool json)
{
    const json_t *revocation = json_object_get(reply, "revocation");
    int status = is_in_force(revocation) ? CLI_OK : CLI_PENDING;
    if (!json_is_string(json_object_get(revocation, "state"))) {
        struct error err = {0};
        error_set(&err, ERROR_INTERNAL, "the negotiator's answer is no revocation");
        status = cli_fail(&err, NULL, CLI_FAILED);
    } else if (json) {
        cli_print_json(json_incref(reply));
    } else {
        print(revocation);
    }
    json_decref(reply);
    return status;
}

void revocation_print_head(void)
{
    printf("%-25s %-10s %-8s %-40s %-16s %s\n", "ID", "STATE", "AGE", "SELECTOR", "BY", "REASON");
}

void revocation_print_row(const json_t *revocation)
{
    char age[16];
    AUTO_FREE char *id = cli_member(revocation, "id");
    AUTO_FREE char *selector = selector_text(revocation);
    AUTO_FREE char *reason = cli_member(revocation, "reason");
    AUTO_FREE char *by = cli_member(revocation, "by");
    cli_print_age(age, json_string_value(json_object_get(revocation, "created_at")));
    printf("%-25s %-10s %-8s %-40s %-16s %s\n", id, is_in_force(revocation) ? "in force" : "pending", age, selector, by,
           reason);
}
