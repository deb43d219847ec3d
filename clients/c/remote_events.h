/** remote_events.h - reads the event stream of an exec: NDJSON lines into output and an end. Inside libparley. */
#pragma once

#include "clients/c/remote.h"

#include "shared/base/text.h"

#include <jansson.h>
#include <stdint.h>

#define REMOTE_LINE_MAX_BYTES (4 * 1024 * 1024)

/** What has been read so far; survives reconnects. Embedded. */
struct remote_events {
    const struct remote_command *command;
    struct remote_end *end;
    uint64_t offsets[2]; /* next byte expected: stdout, stderr */
    struct text line;    /* of this connection */
    bool ended;          /* the exit event came */
    struct error error;  /* a line was wrong, or an error event came */
};

void remote_events_done(struct remote_events *events);

/** A new connection begins: half a line of the old one is dropped. */
void remote_events_restart(struct remote_events *events);

/** Takes bytes as they come; false when events->error is set. */
bool remote_events_feed(struct remote_events *events, const char *data, size_t size) MUST_USE;

/** What an exit event says, into the fields it is about; false (nothing written) when it says nothing of exit_code. */
bool remote_end_read(struct remote_end *end, const json_t *event) MUST_USE;
