/* kernel_specs.c - the bridge lists, inside; what it says is a sandbox's word. */
#include "sandboxd/dialects/native/kernels/kernel_specs.h"

#include "sandboxd/dialects/plane.h"
#include "sandboxd/helpers/drivers/bridge.h"
#include "sandboxd/helpers/drivers/drivers.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <string.h>

enum { LIST_MAX_BYTES = 256 * 1024, SPECS_MAX = 100, TIMEOUT_MS = 10000, SHOWN_BYTES = 128 };

/* A request that waits for the list. */
struct listing {
    struct http_request *request;
    struct follower *follower;
    struct text text;
    bool is_over_full;
};

static void listing_free(struct listing *listing)
{
    follower_close(listing->follower);
    text_done(&listing->text);
    free(listing);
}

static void on_gone(void *cookie)
{
    listing_free(cookie);
}

static json_t *own_languages(void)
{
    json_t *list = json_array();
    for (const char *const *language = driver_languages(); *language; language++)
        json_array_append_new(
            list, json_pack("{s:s,s:s,s:s}", "language", *language, "display_name", *language, "kind", "driver"));
    return list;
}

/* One of the bridge's list; what is no name that could be asked for is left out. */
static void add_spec(json_t *list, const json_t *spec)
{
    const json_t *shown = json_object_get(spec, "display_name");
    const char *name = json_string_value(json_object_get(spec, "name"));
    AUTO_FREE char *language = name ? memory_printf(BRIDGE_PREFIX "%.*s", DRIVER_NAME_BYTES, name) : NULL;
    if (!language || !driver_bridge_spec(language))
        return;
    size_t length = json_is_string(shown) ? json_string_length(shown) : 0;
    length = text_utf8_prefix(json_string_value(shown), length < SHOWN_BYTES ? length : SHOWN_BYTES);
    json_array_append_new(list, json_pack("{s:s,s:o,s:s}", "language", language, "display_name",
                                          length ? json_stringn(json_string_value(shown), length) : json_string(name),
                                          "kind", "jupyter"));
}

/* A list, or an object with it in "kernelspecs". */
static void add_specs(json_t *list, const struct text *text)
{
    json_t *told = text->length ? json_loadb(text->data, text->length, 0, NULL) : NULL;
    const json_t *specs = json_is_object(told) ? json_object_get(told, "kernelspecs") : told;
    size_t index;
    const json_t *spec;
    json_array_foreach (specs, index, spec)
        if (index < SPECS_MAX)
            add_spec(list, spec);
    json_decref(told);
}

static void answer(struct listing *listing)
{
    struct http_request *request = listing->request;
    json_t *list = own_languages();
    if (!listing->is_over_full)
        add_specs(list, &listing->text);
    listing_free(listing);
    http_reply_json(request, 200, json_pack("{s:o}", "kernelspecs", list));
}

static void refuse(struct listing *listing, const struct error *err)
{
    struct http_request *request = listing->request;
    struct error told = *err;
    listing_free(listing);
    http_reply_error(request, &told);
}

static void take_data(struct listing *listing, const struct follower_item *item, const char *data)
{
    if (item->stream == OUTPUT_STDOUT && listing->text.length + item->size <= LIST_MAX_BYTES)
        text_append(&listing->text, data, item->size);
    else if (item->stream == OUTPUT_STDOUT)
        listing->is_over_full = true;
    follower_consumed(listing->follower, item->stream, item->size);
    follower_delivered(listing->follower);
}

static void pull(void *cookie)
{
    struct listing *listing = cookie;
    char buffer[16 * 1024];
    struct follower_item item;
    for (;;) {
        switch (follower_next(listing->follower, &item, buffer, sizeof buffer)) {
        case FOLLOWER_DATA:
            take_data(listing, &item, buffer);
            break;
        case FOLLOWER_STARTED:
        case FOLLOWER_GAP:
            break;
        case FOLLOWER_ENDED:
            answer(listing);
            return;
        case FOLLOWER_FAILED:
            refuse(listing, item.error);
            return;
        case FOLLOWER_NOTHING:
            return;
        }
    }
}

static struct command *make_command(const struct http_request *request, struct error *err)
{
    struct driver_start start = {0};
    AUTO(command) *command = command_new();
    int program = driver_bridge_program(err);
    driver_bridge_list(&start);
    if (program < 0 || !command_set_program(command, program, err))
        return NULL;
    for (size_t i = 0; start.arguments[i]; i++)
        if (!command_add_argument(command, start.arguments[i], err))
            return NULL;
    command->timeout_ms = TIMEOUT_MS;
    command->origin = plane_origin(request);
    return TAKE(command);
}

void kernel_specs_reply(struct http_request *request)
{
    struct error ignored = {0};
    struct command *command = make_command(request, &ignored);
    if (!command) { /* a node without the bridge has no kernelspecs */
        http_reply_json(request, 200, json_pack("{s:o}", "kernelspecs", own_languages()));
        return;
    }
    struct listing *listing = memory_new(sizeof *listing);
    const uint64_t offsets[OUTPUT_STREAMS] = {0};
    listing->request = request;
    listing->follower = follower_new(FOLLOWER_AT_END, offsets, pull, listing);
    http_request_when_gone(request, on_gone, listing);
    process_exec(plane_of(request)->sandboxes, caller_of(request)->claims.sandbox_id, command, listing->follower);
}
