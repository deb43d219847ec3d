#include "sandboxd/egress/house.h"

#include "shared/base/clock.h"
#include "shared/base/log.h"

#include <stdarg.h>
#include <stdio.h>

static const uint64_t SECOND = 1000000000;

void sandbox_refused(struct sandbox *sandbox, const char *format, ...)
{
    uint64_t now_ns = clock_boot_ns();
    if (now_ns - sandbox->refusals_since_ns > REFUSALS_S * SECOND) {
        if (sandbox->refusals_untold > 0)
            log_info("egress", "refused %u more times sandbox=%s", sandbox->refusals_untold, sandbox->id);
        sandbox->refusals_since_ns = now_ns;
        sandbox->refusals = sandbox->refusals_untold = 0;
    }
    if (sandbox->refusals == REFUSALS_TOLD) {
        sandbox->refusals_untold++;
        return;
    }
    sandbox->refusals++;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log_info("egress", "refused: %s sandbox=%s", line, sandbox->id);
}
