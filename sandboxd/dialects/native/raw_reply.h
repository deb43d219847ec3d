/** raw_reply.h - a request that is answered with the bytes of one output stream of a command and nothing else. What a
 *  driver reads goes from the stream's memory to the socket by sendfile(2). Belongs to the request's loop. */
#pragma once

#include "sandboxd/sandbox/follower.h"
#include "shared/http/server.h"

#include <stdint.h>

struct raw_reply_plan {
    enum output_stream stream;
    uint64_t offset;
    bool follows;      /* until the command's end; else what is there now */
    bool drives;       /* the command waits for this reader */
    int64_t expires_s; /* UTC seconds: a reply that follows is broken off then */
};

struct raw_reply;

/** Takes charge of the request's answer: 200 and the bytes, broken off when some of them are gone before they were
 * sent; RANGE when the first one wanted is not kept any more. The follower in it is to be handed to process_follow at
 * once. */
struct raw_reply *raw_reply_new(struct http_request *request, const struct raw_reply_plan *plan) MUST_USE;
struct follower *raw_reply_follower(struct raw_reply *reply) MUST_USE;
