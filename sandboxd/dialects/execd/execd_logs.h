/** execd_logs.h - what a command in the background wrote, as text from a place on. */
#pragma once

#include "shared/http/server.h"

#include <stdint.h>

/** Answers with what is there from byte `cursor` of its log on (of which the last MiB is kept), and with the place of
 * the next byte in the header EXECD-COMMANDS-TAIL-CURSOR. NOT_FOUND. */
void execd_logs(struct http_request *request, const char *id, uint64_t cursor);
