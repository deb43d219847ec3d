/** kernel_specs.h - which languages contexts may be of: ours, and the kernelspecs that a sandbox has, as it says. */
#pragma once

#include "shared/http/server.h"

/** Answers the request with {"kernelspecs": [{language, display_name, kind}, ...]}. */
void kernel_specs_reply(struct http_request *request);
