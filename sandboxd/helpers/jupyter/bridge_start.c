/* bridge_start.c - from the kernel's program to its first answer and the first thing heard of it. */
#include "sandboxd/helpers/jupyter/bridge_internal.h"

#include "sandboxd/helpers/jupyter/plain.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    START_MAX_MS = 60000,  /* until the kernel has made its sockets, and as long again until it answers */
    SOCKETS_LOOK_MS = 4,   /* between two looks for them */
    SOCKETS_ALL_MS = 5000, /* for those that a kernel can do without */
    GREET_AGAIN_MS = 20,   /* an answer came and its status did not: the subscription was not there yet */
    ASK_AGAIN_MS = 10000   /* no answer came */
};

bool bridge_start(struct bridge *bridge, bool tcp, struct error *err)
{
    if (!connection_make(&bridge->connection, tcp, bridge->spec->name, err) ||
        !kernel_start(&bridge->kernel, bridge->spec, bridge->connection.file, err))
        return false;
    bridge_enter(bridge, STAGE_SOCKETS);
    return true;
}

void bridge_stop(struct bridge *bridge)
{
    kernel_end(&bridge->kernel);
    channels_done(&bridge->channels);
    connection_done(&bridge->connection);
    json_decref(TAKE(bridge->info));
    bridge->heard_iopub = false;
}

static void ask_info(struct bridge *bridge)
{
    bridge->asked_ns = clock_monotonic_ns();
    (void)!bridge_ask(bridge, CONNECTION_SHELL, "kernel_info_request", json_object(), NULL);
}

static bool look_for_sockets(struct bridge *bridge, struct error *err)
{
    char address[CONNECTION_ADDRESS_BYTES];
    bool has[CONNECTION_HEARTBEAT];
    for (int channel = 0; channel < CONNECTION_HEARTBEAT; channel++)
        has[channel] = connection_address(&bridge->connection, (enum connection_channel)channel, address);
    bool has_all = has[CONNECTION_STDIN] && has[CONNECTION_CONTROL];
    if (!has[CONNECTION_SHELL] || !has[CONNECTION_IOPUB] ||
        (!has_all && bridge_ms_since(bridge->since_ns) < SOCKETS_ALL_MS))
        return true;
    if (!channels_open(&bridge->channels, &bridge->connection, err))
        return false;
    bridge_enter(bridge, STAGE_GREETING);
    ask_info(bridge);
    return true;
}

static const char *info_text(const json_t *object, const char *name, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text && strlen(text) <= 128 ? text : otherwise;
}

/* ipykernel, since the versions that come with IPython 8, takes descriptors 1 and 2 for itself, tells what is written
 * there as its own messages, and writes a copy to where they led. */
static bool echoes_output(const json_t *info)
{
    const char *version = info_text(info, "implementation_version", "");
    return text_equal(info_text(info, "implementation", ""), "ipython") && strtol(version, NULL, 10) >= 8;
}

static void tell_ready(struct bridge *bridge)
{
    const json_t *language = json_object_get(bridge->info, "language_info");
    AUTO_FREE char *implementation =
        memory_printf("jupyter:%s %s %s", bridge->spec->name, info_text(bridge->info, "implementation", "kernel"),
                      info_text(bridge->info, "implementation_version", ""));
    const struct frames_ready ready = {.language = info_text(language, "name", bridge->spec->name),
                                       .version = info_text(language, "version", ""),
                                       .implementation = implementation};
    bridge->output.is_shown = !echoes_output(bridge->info);
    bridge->output.early.length = 0;
    frames_ready(&bridge->frames, &ready);
    bridge_enter(bridge, STAGE_READY);
}

static void greet(struct bridge *bridge)
{
    if (bridge->info && bridge->heard_iopub)
        tell_ready(bridge);
    else if (bridge_ms_since(bridge->asked_ns) >= (bridge->info ? GREET_AGAIN_MS : ASK_AGAIN_MS))
        ask_info(bridge);
}

/* Of what it wrote, which mostly says why it ended. */
static void append_last_line(struct text *to, const struct text *early)
{
    AUTO_TEXT plain = {0};
    plain_append_uncoloured(&plain, early->data, early->length);
    size_t end = plain.length;
    while (end > 0 && isspace((unsigned char)plain.data[end - 1]))
        end--;
    size_t start = end;
    while (start > 0 && plain.data[start - 1] != '\n')
        start--;
    text_append(to, start < end ? plain.data + start : "", end - start);
}

/* One that did not come up over sockets in a folder may over TCP; one that did not over TCP does not. */
static bool start_over_tcp(struct bridge *bridge, const char *why, struct error *err)
{
    bool may = !bridge->connection.is_tcp && !bridge->told_to_end;
    bridge_stop(bridge);
    if (may)
        return bridge_start(bridge, true, err);
    AUTO_TEXT last = {0};
    append_last_line(&last, &bridge->output.early);
    return error_set(err, ERROR_INTERNAL, "the kernel %.80s %s%s%.150s", kernelspec_title(bridge->spec), why,
                     last.length ? ": " : "", last.length ? last.data : "");
}

bool bridge_advance_start(struct bridge *bridge, struct error *err)
{
    char how[64];
    if (kernel_has_ended(&bridge->kernel)) {
        output_drain(&bridge->output, &bridge->kernel, "", &bridge->frames);
        kernel_tell_end(&bridge->kernel, how, sizeof how);
        return start_over_tcp(bridge, how, err);
    }
    if (bridge_ms_since(bridge->since_ns) > START_MAX_MS)
        return start_over_tcp(bridge, "does not answer", err);
    if (bridge->stage == STAGE_SOCKETS)
        return look_for_sockets(bridge, err);
    greet(bridge);
    return true;
}

long bridge_start_patience(const struct bridge *bridge)
{
    if (bridge->stage == STAGE_SOCKETS)
        return SOCKETS_LOOK_MS;
    return bridge->info ? GREET_AGAIN_MS : ASK_AGAIN_MS / 10;
}
