/** output_reply.h - a request that is answered with a command's output: as a stream of events, as one JSON, or with the
 *  start alone. It pulls from a follower as fast as its client takes, and no faster. Belongs to the request's loop. */
#pragma once

#include "sandboxd/sandbox/follower.h"
#include "shared/http/server.h"

#include <stdint.h>

enum output_reply_kind {
    OUTPUT_REPLY_STREAM,   /* events until the command's end */
    OUTPUT_REPLY_SNAPSHOT, /* events of what is there now */
    OUTPUT_REPLY_ONE_JSON, /* {id, stdout, stderr, exit_code, ...} at the end */
    OUTPUT_REPLY_STARTED   /* 201 and the command, once it runs */
};

struct output_reply_plan {
    enum output_reply_kind kind;
    enum http_framing framing;
    enum follower_mode mode;
    uint64_t offsets[OUTPUT_STREAMS];
    int64_t expires_s; /* UTC seconds: a stream is ended then, with an error event */
};

struct output_reply;

/** Takes charge of the request's answer. The follower in it is to be handed to a verb at once. */
struct output_reply *output_reply_new(struct http_request *request, const struct output_reply_plan *plan) MUST_USE;
struct follower *output_reply_follower(struct output_reply *reply) MUST_USE;
