/** frames.h - what the bridge tells the front: lines of JSON on a descriptor (helpers/drivers/DESIGN.md has them). Each
 * call writes one frame or more, waiting until the front has taken them; a front that is gone is seen in `broken`. */
#pragma once

#include "shared/base/cleanup.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct frames {
    int fd;      /* not owned */
    bool broken; /* nothing goes out any more */
};

struct frames_ready {
    const char *language, *version, *implementation;
};

void frames_ready(struct frames *frames, const struct frames_ready *ready);
void frames_failed(struct frames *frames, const char *message);
void frames_started(struct frames *frames, const char *run, json_int_t count);

/** `stream` is "stdout" or "stderr"; long texts become several frames. UTF-8. */
void frames_stream(struct frames *frames, const char *stream, const char *run, const char *text, size_t size);

/** `content` as of display_data and update_display_data. */
void frames_display(struct frames *frames, const char *run, const json_t *content, const json_t *transient,
                    bool update);

/** `content` as of execute_result. Counts are 0..2^53. */
void frames_result(struct frames *frames, const char *run, const json_t *content);
void frames_clear(struct frames *frames, const char *run, bool wait);

/** `content` as of error: ename, evalue, traceback; colours are taken out, lines parted. */
void frames_error(struct frames *frames, const char *run, const json_t *content);

/** An error of the bridge's own. */
void frames_own_error(struct frames *frames, const char *run, const char *name, const char *value);
/** An execution count of a stranger, brought to 0..2^53. */
json_int_t frames_count(const json_t *value) MUST_USE;
void frames_done(struct frames *frames, const char *run, const char *status, json_int_t count);
