/* incident.c - `parley incident`: stop what is suspected at once, see how far that is, gather evidence, let go. */
#include "clients/cli/incident.h"

#include "clients/c/remote_sandbox.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char HELP[] =
    "usage: parley incident open SELECTOR... --reason TEXT [--freeze WHOM] [--no-revoke] [--no-pause]\n"
    "       parley incident status [ID]\n"
    "       parley incident evidence ID [-o FILE]\n"
    "       parley incident close ID [--note TEXT] [--resume]\n\n"
    "For admins. open stops at once what is suspected: nothing is issued any more to whom it is about, their tokens "
    "are\n"
    "refused on every node, their sandboxes stand still (what is in memory stays there). It lasts, also over "
    "restarts,\n"
    "until it is closed; then tokens stay revoked, and sandboxes go on with --resume, or when they are used.\n\n"
    "Selectors, as many as are needed:\n"
    "  --principal P      a principal, with all sandboxes and tokens\n"
    "  --sandbox NAME|ID  a sandbox\n"
    "  --thread T         a thread (--owner P says whose)\n"
    "  --jti ID  --family ID  --lease ID\n"
    "                     a token, a token and its successors, a lease, each with its sandbox\n"
    "  --link ID          a narrowed token: revoked alone, as nobody knows where it leads\n"
    "  --key ID           an API key: it is deleted, with the tokens granted under it (--no-revoke: only frozen, "
    "paused)\n"
    "  --scope ATOM       all tokens that hold it (--owner P: only P's), with their sandboxes\n"
    "  --all              everything\n\n"
    "  --reason TEXT      kept with all of it, 1 to 199 bytes\n"
    "  --freeze WHOM      matching: those whom the selectors are about (default); all: everybody, admins too; none\n"
    "  --no-revoke        leave their tokens as they are; then use wakes what was paused\n"
    "  --no-pause         leave their sandboxes running\n"
    "  -o FILE            where evidence goes (default incident-ID.tar.gz): audit records with the chain's proof, "
    "leases\n"
    "                     and sandboxes as they were, processes, changed files, and a manifest with SHA-256 and what\n"
    "                     could not be had\n"
    "  --note TEXT        kept with the closed incident\n"
    "  --resume           what was paused by it goes on\n" CLI_COMMON_HELP
    "\nExit status: 0 done, 3 done but for what could not be reached (it is named), 1 not done, 2 wrong use.\n";

enum { SELECTORS_MAX = 32, PATIENCE_S = 120 };

struct incident_options {
    struct cli_common common;
    const char *reason, *freeze, *owner, *note, *file;
    bool no_revoke, no_pause, resume;
    const char *kinds[SELECTORS_MAX], *values[SELECTORS_MAX];
    size_t count;
};

static const struct option LONG[] = {
    {"principal", required_argument, NULL, 's'}, {"sandbox", required_argument, NULL, 's'},
    {"thread", required_argument, NULL, 's'},    {"jti", required_argument, NULL, 's'},
    {"family", required_argument, NULL, 's'},    {"lease", required_argument, NULL, 's'},
    {"link", required_argument, NULL, 's'},      {"scope", required_argument, NULL, 's'},
    {"key", required_argument, NULL, 's'},       {"all", no_argument, NULL, 's'},
    {"owner", required_argument, NULL, 'w'},     {"reason", required_argument, NULL, 'r'},
    {"freeze", required_argument, NULL, 'f'},    {"note", required_argument, NULL, 'n'},
    {"no-revoke", no_argument, NULL, 'R'},       {"no-pause", no_argument, NULL, 'P'},
    {"resume", no_argument, NULL, 'u'},          CLI_COMMON_OPTIONS};

static int take_option(struct incident_options *options, int option, int index)
{
    switch (option) {
    case 's':
        if (options->count == SELECTORS_MAX)
            return cli_usage("incident", "at most %d selectors", SELECTORS_MAX);
        options->kinds[options->count] = LONG[index].name;
        options->values[options->count++] = optarg;
        return 0;
    case 'w':
        options->owner = optarg;
        return 0;
    case 'r':
        options->reason = optarg;
        return 0;
    case 'f':
        options->freeze = optarg;
        return 0;
    case 'n':
        options->note = optarg;
        return 0;
    case 'o':
        options->file = optarg;
        return 0;
    default:
        options->no_revoke |= option == 'R';
        options->no_pause |= option == 'P';
        options->resume |= option == 'u';
        return 0;
    }
}

static int read_options(struct incident_options *options, int argc, char *argv[])
{
    int option, index = 0, wrong = 0;
    while (!wrong && (option = getopt_long(argc, argv, "o:", LONG, &index)) != -1) {
        if (!cli_common(&options->common, option, HELP))
            wrong = take_option(options, option, index);
    }
    return wrong;
}

/* --- waiting for its steps --- */

static bool is_at(const json_t *incident, const char *step)
{
    const char *at = json_string_value(json_object_get(incident, "step"));
    return at && strcmp(at, step) == 0;
}

/* CLI_OK when it came to that step, or when we waited long enough: the negotiator goes on without us. */
static int wait_for(const struct place *place, const char *id, const char *step)
{
    struct error err = {0};
    uint64_t until = clock_monotonic_ns() + PATIENCE_S * UINT64_C(1000000000);
    for (;;) {
        json_t *incident = incident_fetch(place, id, &err);
        bool is_there = is_at(incident, step);
        bool failed = incident == NULL;
        json_decref(incident);
        if (failed)
            return cli_fail_usual(&err, CLI_FAILED);
        if (is_there || clock_monotonic_ns() > until)
            return CLI_OK;
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
}

/* --- opening --- */

static json_t *selector_of(const struct incident_options *options, const struct place *place, size_t i,
                           struct error *err)
{
    const char *kind = options->kinds[i], *value = options->values[i];
    if (!value)
        return json_pack("{s:b}", kind, 1);
    AUTO_FREE char *id = strcmp(kind, "sandbox") == 0 ? remote_sandbox_find(place, value, err) : memory_string(value);
    if (!id)
        return NULL;
    json_t *selector = json_pack("{s:s}", kind, id);
    if (options->owner && (strcmp(kind, "thread") == 0 || strcmp(kind, "scope") == 0))
        json_object_set_new(selector, "principal", json_string(options->owner));
    if (selector == NULL)
        error_set(err, ERROR_INVALID, "--%s wants UTF-8", kind);
    return selector;
}

static json_t *body_of(const struct incident_options *options, const struct place *place, struct error *err)
{
    json_t *selectors = json_array();
    for (size_t i = 0; i < options->count; i++) {
        json_t *selector = selector_of(options, place, i, err);
        if (!selector) {
            json_decref(selectors);
            return NULL;
        }
        json_array_append_new(selectors, selector);
    }
    json_t *body = json_pack("{s:s, s:o, s:b, s:b}", "reason", options->reason, "selectors", selectors, "revoke",
                             !options->no_revoke, "pause", !options->no_pause);
    if (body && options->freeze)
        json_object_set_new(body, "freeze", json_string(options->freeze));
    if (!body)
        error_set(err, ERROR_INVALID, "--reason wants UTF-8");
    return body;
}

static int open_incident(const struct incident_options *options, const struct place *place)
{
    struct error err = {0};
    json_t *reply = NULL;
    if (options->count == 0)
        return cli_usage("incident", "about what? Give a selector: --principal, --sandbox, --thread ...");
    if (!options->reason || !options->reason[0])
        return cli_usage("incident", "--reason TEXT is needed");
    json_t *body = body_of(options, place, &err);
    bool opened = body && incident_call(place, "POST", "/incidents", body, &reply, &err);
    json_decref(body);
    if (!opened)
        return cli_fail_usual(&err, CLI_FAILED);
    AUTO_FREE char *id = memory_string(json_string_value(json_object_get(json_object_get(reply, "incident"), "id")));
    json_decref(reply);
    int status = wait_for(place, id ? id : "", "done");
    return status == CLI_OK ? incident_show(place, id, options->common.json) : status;
}

/* --- the others --- */

static int list(const struct incident_options *options, const struct place *place)
{
    struct error err = {0};
    json_t *reply = NULL;
    size_t i;
    const json_t *each;
    if (!incident_call(place, "GET", "/incidents", NULL, &reply, &err))
        return cli_fail_usual(&err, CLI_FAILED);
    if (options->common.json) {
        cli_print_json(json_incref(json_object_get(reply, "incidents")));
    } else {
        printf("%-25s %-7s %-8s %8s  %-12s %s\n", "ID", "STATE", "STEP", "SUSPECTS", "BY", "REASON");
        json_array_foreach (json_object_get(reply, "incidents"), i, each) {
            AUTO_FREE char *id = cli_member(each, "id"), *state = cli_member(each, "state");
            AUTO_FREE char *step = cli_member(each, "step"), *suspects = cli_member(each, "suspects");
            AUTO_FREE char *by = cli_member(each, "opened_by"), *reason = cli_member(each, "reason");
            printf("%-25s %-7s %-8s %8s  %-12s %s\n", id, state, step, suspects, by, reason);
        }
    }
    json_decref(reply);
    return CLI_OK;
}

static int close_incident(const struct incident_options *options, const struct place *place, const char *id)
{
    struct error err = {0};
    AUTO_FREE char *path = negotiator_path("/incidents", id, "close");
    json_t *body = json_pack("{s:b, s:s}", "resume", options->resume, "note", options->note ? options->note : "");
    bool closed = body && incident_call(place, "POST", path, body, NULL, &err);
    if (!body)
        error_set(&err, ERROR_INVALID, "--note wants UTF-8");
    json_decref(body);
    if (!closed)
        return cli_fail_usual(&err, CLI_FAILED);
    int status = wait_for(place, id, "closed");
    if (status == CLI_OK)
        status = incident_show(place, id, options->common.json);
    return status == CLI_PENDING ? CLI_OK : status; /* it is closed */
}

static int run(const struct incident_options *options, const struct place *place, const char *verb, const char *id)
{
    if (strcmp(verb, "open") == 0)
        return open_incident(options, place);
    if (strcmp(verb, "status") == 0)
        return id ? incident_show(place, id, options->common.json) : list(options, place);
    if (strcmp(verb, "evidence") == 0)
        return incident_evidence(place, id, options->file, options->common.json);
    return close_incident(options, place, id);
}

int incident_main(int argc, char *argv[])
{
    static const char *const VERBS[] = {"open", "status", "evidence", "close"};
    struct incident_options options = {0};
    int wrong = read_options(&options, argc, argv);
    if (wrong)
        return wrong;
    const char *verb = optind < argc ? argv[optind] : "status", *id = optind + 1 < argc ? argv[optind + 1] : NULL;
    size_t known = 0;
    while (known < 4 && strcmp(verb, VERBS[known]) != 0)
        known++;
    if (known == 4)
        return cli_usage("incident", "what is \"%s\"? Allowed: open, status, evidence, close", verb);
    if (optind + 2 < argc || (known == 0 && id))
        return cli_usage("incident", "unexpected word \"%s\"", argv[known == 0 ? optind + 1 : optind + 2]);
    if (known >= 2 && !id)
        return cli_usage("incident", "%s which one? Give its ID (`parley incident status` lists them)", verb);
    AUTO_PLACE place = {0};
    if (!cli_place(&place, &options.common))
        return CLI_FAILED;
    return run(&options, &place, verb, id);
}
