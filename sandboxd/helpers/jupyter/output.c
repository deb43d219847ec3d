#include "sandboxd/helpers/jupyter/output.h"

#include "sandboxd/helpers/jupyter/plain.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char *const STREAMS[] = {"stdout", "stderr"};
enum { READS_MAX = 16 }; /* in a row: a child that never stops must not keep the rest waiting */

static void keep_early(struct output *output, const char *bytes, size_t size)
{
    struct text *early = &output->early;
    text_append(early, bytes, size);
    if (early->length <= OUTPUT_EARLY_MAX)
        return;
    size_t over = early->length - OUTPUT_EARLY_MAX;
    memmove(early->data, early->data + over, OUTPUT_EARLY_MAX + 1);
    early->length = OUTPUT_EARLY_MAX;
}

static void show(struct output *output, int stream, const char *run, struct frames *frames)
{
    struct text *rest = &output->rest[stream];
    AUTO_TEXT text = {0};
    size_t taken = plain_append_stream(&text, rest->data, rest->length);
    frames_stream(frames, STREAMS[stream], run, text.data, text.length);
    memmove(rest->data, rest->data + taken, rest->length - taken + 1);
    rest->length -= taken;
}

static void drain_one(struct output *output, int stream, int *pipe, const char *run, struct frames *frames)
{
    char some[65536];
    for (int i = 0; i < READS_MAX && *pipe >= 0; i++) {
        ssize_t got = read(*pipe, some, sizeof some);
        if (got < 0 && errno != EINTR)
            return;
        if (got == 0)
            close(TAKE_FD(*pipe));
        if (got <= 0)
            continue;
        if (!output->is_shown) {
            keep_early(output, some, (size_t)got);
            continue;
        }
        text_append(&output->rest[stream], some, (size_t)got);
        show(output, stream, run, frames);
    }
}

void output_drain(struct output *output, struct kernel *kernel, const char *run, struct frames *frames)
{
    for (int stream = 0; stream < 2; stream++)
        drain_one(output, stream, &kernel->outputs[stream], run, frames);
}

void output_done(struct output *output)
{
    text_done(&output->rest[0]);
    text_done(&output->rest[1]);
    text_done(&output->early);
}
