/* parley-egress: reads what sandboxes say on their way out. Started by the launcher alone, with PARLEY_EGRESS_FD. */
#include "sandboxd/egress/egress.h"
#include "sandboxd/egress/proxy.h"
#include "sandboxd/egress/rights.h"
#include "shared/base/log.h"
#include "shared/base/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(void)
{
    puts("parley-egress   names (DNS), TLS and HTTP of sandboxes with network egress\n"
         "\n"
         "Started by parley-sandboxd, which hands it its socket in PARLEY_EGRESS_FD. It gives up every right,\n"
         "answers the DNS queries of sandboxes, and lets connections through whose host their rules allow.\n"
         "\n"
         "  --version, --help");
}

int main(int argc, char *argv[])
{
    struct error err = {0};
    uint64_t fd = 0;
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("parley-egress " PARLEY_VERSION);
        return 0;
    }
    const char *number = getenv(LAUNCHER_EGRESS_ENVIRONMENT);
    if (argc > 1 || number == NULL || !text_parse_u64(number, strlen(number), INT32_MAX, &fd)) {
        print_help();
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    unsetenv(LAUNCHER_EGRESS_ENVIRONMENT);
    (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    const struct egress_options options = {
        .launcher = (int)fd, .face = {.destination = proxy_destination, .dial = proxy_dial}, .confine = rights_give_up};
    if (egress_run(&options, &err))
        return 0;
    log_error("egress", "%s", err.message);
    return 1;
}
