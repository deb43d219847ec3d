#include "negotiator/dialects/opensandbox/osb_shown.h"

#include "negotiator/dialects/shown.h"

#include <string.h>
#include <strings.h>

static const char *const NAMES[SANDBOX_STATES] = {[SANDBOX_PROVISIONING] = "Pending",
                                                  [SANDBOX_ACTIVE] = "Running",
                                                  [SANDBOX_IDLE] = "Running",
                                                  [SANDBOX_PAUSED] = "Paused"};

bool osb_is_shown(const struct sandbox *sandbox)
{
    return NAMES[sandbox->state] != NULL;
}

const char *osb_state_name(enum sandbox_state state)
{
    return NAMES[state] ? NAMES[state] : "Terminated";
}

unsigned osb_state_bits(const char *name)
{
    unsigned bits = 0;
    for (unsigned state = 0; state < SANDBOX_STATES; state++) {
        if (NAMES[state] && strcasecmp(name, NAMES[state]) == 0)
            bits |= 1U << state;
    }
    return bits;
}

unsigned osb_states_shown(void)
{
    unsigned bits = 0;
    for (unsigned state = 0; state < SANDBOX_STATES; state++)
        bits |= NAMES[state] ? 1U << state : 0;
    return bits;
}

static json_t *shown_status(const struct sandbox *sandbox)
{
    return json_pack("{s:s, s:s*, s:o}", "state", osb_state_name(sandbox->state), "reason",
                     sandbox->reason[0] ? sandbox->reason : NULL, "lastTransitionAt", shown_time(sandbox->state_since));
}

json_t *osb_keep_alive(void)
{
    return json_pack("[s, s, s]", "tail", "-f", "/dev/null");
}

bool osb_is_keep_alive(const json_t *argv)
{
    json_t *keeps = osb_keep_alive();
    bool is = json_equal(argv, keeps);
    json_decref(keeps);
    return is;
}

/* Always there; one that was made by another protocol may have none. */
static json_t *shown_entrypoint(const struct sandbox *sandbox)
{
    if (sandbox->entrypoint)
        return json_incref(sandbox->entrypoint);
    return json_object_get(sandbox->origin, "entrypoint") ? osb_keep_alive() : json_array();
}

json_t *osb_shown_created(const struct sandbox *sandbox)
{
    json_t *os = json_object_get(sandbox->origin, "os"), *arch = json_object_get(sandbox->origin, "arch");
    json_t *json = json_pack("{s:s, s:o, s:o, s:o}", "id", sandbox->id, "status", shown_status(sandbox), "createdAt",
                             shown_time(sandbox->created_at), "entrypoint", shown_entrypoint(sandbox));
    json_object_set_new(json, "metadata", sandbox->metadata ? json_incref(sandbox->metadata) : json_object());
    if (os && arch)
        json_object_set_new(json, "platform", json_pack("{s:O, s:O}", "os", os, "arch", arch));
    if (!life_is_endless(sandbox->deadline))
        json_object_set_new(json, "expiresAt", shown_time(sandbox->deadline));
    return json;
}

json_t *osb_shown_sandbox(const struct sandbox *sandbox)
{
    json_t *json = osb_shown_created(sandbox), *image = json_object_get(sandbox->origin, "image");
    if (sandbox->snapshot[0])
        json_object_set_new(json, "snapshotId", json_string(sandbox->snapshot));
    else if (image)
        json_object_set_new(json, "image", json_pack("{s:O}", "uri", image));
    else
        json_object_set_new(json, "image", json_pack("{s:s}", "uri", sandbox->template_name));
    return json;
}

json_t *osb_shown_pages(size_t page, size_t page_size, size_t total)
{
    size_t pages = total / page_size + (total % page_size != 0);
    return json_pack("{s:I, s:I, s:I, s:I, s:b}", "page", (json_int_t)page, "pageSize", (json_int_t)page_size,
                     "totalItems", (json_int_t)total, "totalPages", (json_int_t)pages, "hasNextPage", page < pages);
}
