/** kernel_reply.h - a request that is answered with what comes of a run: as a stream of events, or as one JSON. It
 * pulls as fast as its client takes, and no faster. Belongs to the request's loop. */
#pragma once

#include "sandboxd/dialects/native/kernels/kernel_request.h"
#include "shared/http/server.h"

/** Takes charge of the request's answer. The run is to be handed to kernels_run at once. */
struct kernel_run *kernel_reply_new(struct http_request *request, enum kernel_framing framing) MUST_USE;
