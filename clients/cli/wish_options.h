/** wish_options.h - the options of `run`, `shell`, `restore`, `fork` and `limits` that say what a sandbox shall be
 * like: template, limits, volumes, what happens when it is idle. They become members of the negotiation. */
#pragma once

#include "clients/cli/cli.h"

/** What was asked for; zero is nothing. */
struct wish_options {
    json_t *members; /* {"template": ..., "resources": {...}, "volumes": [...]}; NULL: nothing */
};

void wish_done(struct wish_options *wish);
#define AUTO_WISH __attribute__((cleanup(wish_done))) struct wish_options

enum {
    WISH_TEMPLATE = 3000,
    WISH_VOLUME,
    WISH_ON_IDLE,
    WISH_IDLE_TIMEOUT,
    WISH_LIFETIME,
    WISH_ENTRYPOINT,
    WISH_CPU,
    WISH_MEMORY,
    WISH_DISK,
    WISH_PIDS,
    WISH_OPEN_FILES,
    WISH_PROCESSES,
    WISH_OUTPUT,
    WISH_EGRESS,
    WISH_ALLOW,
    WISH_ISOLATION
};

#define WISH_LIMIT_OPTIONS                                                                                             \
    {"cpu", required_argument, NULL, WISH_CPU}, {"memory", required_argument, NULL, WISH_MEMORY},                      \
        {"disk", required_argument, NULL, WISH_DISK}, {"pids", required_argument, NULL, WISH_PIDS},                    \
        {"open-files", required_argument, NULL, WISH_OPEN_FILES},                                                      \
        {"processes", required_argument, NULL, WISH_PROCESSES},                                                        \
    {                                                                                                                  \
        "output", required_argument, NULL, WISH_OUTPUT                                                                 \
    }
#define WISH_LIMIT_HELP                                                                                                \
    "  --cpu N            cores, such as 2 or 0.5\n"                                                                   \
    "  --memory SIZE      such as 512m or 2g; there is no swap\n"                                                      \
    "  --disk SIZE        of its own files, such as 1g\n"                                                              \
    "  --pids N           processes and threads at once\n"                                                             \
    "  --open-files N     of each process\n"                                                                           \
    "  --processes N      commands and terminals at once\n"                                                            \
    "  --output SIZE      of output kept for replay, such as 16m\n"

/* What a sandbox can begin with besides its template. */
#define WISH_BEGIN_OPTIONS                                                                                             \
    WISH_LIMIT_OPTIONS, {"volume", required_argument, NULL, WISH_VOLUME},                                              \
        {"on-idle", required_argument, NULL, WISH_ON_IDLE},                                                            \
        {"idle-timeout", required_argument, NULL, WISH_IDLE_TIMEOUT},                                                  \
        {"lifetime", required_argument, NULL, WISH_LIFETIME}, {"isolation", required_argument, NULL, WISH_ISOLATION},  \
        {"egress", required_argument, NULL, WISH_EGRESS}, {"allow", required_argument, NULL, WISH_ALLOW},              \
    {                                                                                                                  \
        "entrypoint", required_argument, NULL, WISH_ENTRYPOINT                                                         \
    }
#define WISH_BEGIN_HELP                                                                                                \
    WISH_LIMIT_HELP                                                                                                    \
    "  --volume V         SOURCE:/INSIDE[:ro][:sub=PATH][:size=SIZE]; SOURCE is a volume's name (it is made when\n"    \
    "                     there is none) or a folder of the node that its settings allow; repeatable;\n"               \
    "                     SIZE is of a new volume, one that is there keeps its own\n"                                  \
    "  --egress WHAT      none (default) or public: what it reaches on the network\n"                                  \
    "  --allow WHERE      only this: a name (pypi.org, *.pythonhosted.org, github.com:22) or IPv4 addresses\n"         \
    "                     (203.0.113.0/24, 203.0.113.7:5432); repeatable\n"                                            \
    "  --isolation LEVEL  namespaces, gvisor, microvm: what stands around it, of those that the node offers\n"         \
    "  --on-idle WHAT     pause or stop (default) it when nobody uses it\n"                                            \
    "  --idle-timeout S   S: 90, 30m, 2h, never\n"                                                                     \
    "  --lifetime S       at most so long\n"                                                                           \
    "  --entrypoint CMD   a shell command that starts with it, in the background\n"

#define WISH_OPTIONS {"template", required_argument, NULL, WISH_TEMPLATE}, WISH_BEGIN_OPTIONS
#define WISH_HELP                                                                                                      \
    "\nHow a new sandbox shall be; one that is there must not differ in what is given:\n\n"                            \
    "  --template NAME    what is installed in it (`parley templates`), or snapshot:NAME\n" WISH_BEGIN_HELP "\n"

/** Takes one of these options: true, and *wrong is 0 or, after the wrong use was told, CLI_USAGE. */
bool wish_option(struct wish_options *wish, const char *command, int option, int *wrong) MUST_USE;

/** A member of its own; takes the reference. */
void wish_put(struct wish_options *wish, const char *name, json_t *value);

/** "none" or "public", or with `allow` (borrowed; NULL: none) "allow": a request's `network`, which the caller owns.
 *  NULL and the wrong use was told. */
json_t *wish_network(const char *command, const char *egress, json_t *allow) MUST_USE;

/** A negotiation with these wishes failed: cli_fail with the hint that fits. */
int wish_fail(const struct wish_options *wish, const struct error *err, int status);
