/* metrics.c - `GET /metrics`: what Prometheus asks for. The ledger thread is asked what it alone knows. */
#include "shared/base/metrics.h"
#include "negotiator/dialects/plane.h"
#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <stdlib.h>

#define PREFIX "parley_negotiator"

/* A scrape: what the ledger thread answers. */
struct scrape {
    struct loop *loop;
    uint64_t request; /* its number */
    unsigned percent; /* of the ledger's size that is taken */
    uint64_t records; /* of the audit chain */
    bool is_known;
};

/* ---- parts ---- */

static void write_ledger(struct http_request *request, const struct scrape *scrape, struct text *to)
{
    struct ledger_figures figures;
    ledger_figures(plane_of(request)->ledger, &figures);
    metrics_single(to, PREFIX "_ledger_rules_total", METRICS_COUNTER, "Rules that the ledger has answered.",
                   (double)figures.rules);
    metrics_single(to, PREFIX "_ledger_failures_total", METRICS_COUNTER, "Rules answered with an error.",
                   (double)figures.failures);
    metrics_single(to, PREFIX "_ledger_conflicts_total", METRICS_COUNTER, "Runs of rules that had to begin anew.",
                   (double)figures.conflicts);
    metrics_single(to, PREFIX "_ledger_batches_total", METRICS_COUNTER, "Batches of rules, each with one sync.",
                   (double)figures.batches);
    metrics_family(to, PREFIX "_ledger_sync_duration_seconds", METRICS_HISTOGRAM,
                   "Until a batch's changes were durable.");
    metrics_sample_histogram(to, PREFIX "_ledger_sync_duration_seconds", ledger_syncs(plane_of(request)->ledger), NULL);
    metrics_single(to, PREFIX "_ledger_up", METRICS_GAUGE, "Whether the ledger answers.", scrape->is_known);
    if (!scrape->is_known)
        return;
    metrics_single(to, PREFIX "_ledger_used_ratio", METRICS_GAUGE, "Of the size it may grow to (map_mb).",
                   (double)scrape->percent / 100);
    metrics_single(to, PREFIX "_audit_records_total", METRICS_COUNTER, "Records of the audit chain since it began.",
                   (double)scrape->records);
}

/* A node's name is the admin's word, and nodes are few: they may be a label. */
static void write_nodes(struct http_request *request, struct text *to)
{
    static const char *const LIVES[] = {
        [FLEET_UNKNOWN] = "unknown", [FLEET_ALIVE] = "alive", [FLEET_SUSPECT] = "suspect", [FLEET_LOST] = "lost"};
    size_t count = 0, by_life[sizeof LIVES / sizeof *LIVES] = {0};
    AUTO_FREE struct fleet_view *nodes = fleet_list(plane_of(request)->fleet, &count);
    for (size_t i = 0; i < count; i++)
        by_life[nodes[i].life]++;
    metrics_family(to, PREFIX "_nodes", METRICS_GAUGE, "Nodes by state.");
    for (size_t i = 0; i < sizeof LIVES / sizeof *LIVES; i++)
        metrics_sample(to, PREFIX "_nodes", (double)by_life[i], "state", LIVES[i], NULL);
    metrics_family(to, PREFIX "_node_slots", METRICS_GAUGE, "Sandboxes that a node may have.");
    for (size_t i = 0; i < count; i++)
        metrics_sample(to, PREFIX "_node_slots", (double)nodes[i].slots, "node", nodes[i].name, NULL);
    metrics_family(to, PREFIX "_node_sandboxes", METRICS_GAUGE, "Sandboxes that a node has, as it told last.");
    for (size_t i = 0; i < count; i++)
        metrics_sample(to, PREFIX "_node_sandboxes", (double)nodes[i].used, "node", nodes[i].name, NULL);
    metrics_family(to, PREFIX "_node_heartbeat_age_seconds", METRICS_GAUGE,
                   "Since a node's last heartbeat; none was heard of one that is missing.");
    for (size_t i = 0; i < count; i++)
        if (nodes[i].seen_ms > 0)
            metrics_sample(to, PREFIX "_node_heartbeat_age_seconds",
                           (double)(clock_wall_ms() - nodes[i].seen_ms) / 1000, "node", nodes[i].name, NULL);
}

static void write_outcomes(struct text *to, const char *name, const char *help, const struct plane_outcomes *outcomes)
{
    metrics_family(to, name, METRICS_COUNTER, help);
    if (metrics_count(&outcomes->created) > 0)
        metrics_sample(to, name, (double)metrics_count(&outcomes->created), "outcome", "created", NULL);
    metrics_sample(to, name, (double)metrics_count(&outcomes->granted), "outcome", "granted", NULL);
    for (size_t i = 0; i < ERROR_KINDS; i++)
        if (metrics_count(&outcomes->refused[i]) > 0)
            metrics_sample(to, name, (double)metrics_count(&outcomes->refused[i]), "outcome",
                           error_code((enum error_kind)i), NULL);
}

static void write_counts(struct http_request *request, struct text *to)
{
    const struct plane_counts *counts = &plane_of(request)->counts;
    write_outcomes(to, PREFIX "_negotiations_total",
                   "Answered negotiations: created with a new sandbox, granted one that was there, or an error's code.",
                   &counts->negotiations);
    write_outcomes(to, PREFIX "_refreshes_total", "Answered refreshes: granted, or an error's code.",
                   &counts->refreshes);
    write_outcomes(to, PREFIX "_shares_total", "Answered shares: granted, or an error's code.", &counts->shares);
    metrics_single(to, PREFIX "_unauthenticated_total", METRICS_COUNTER, "Requests without a valid credential.",
                   (double)metrics_count(&counts->strangers));
    metrics_single(to, PREFIX "_forbidden_total", METRICS_COUNTER, "Requests whose role did not allow them.",
                   (double)metrics_count(&counts->forbidden));
}

/* ---- the answer ---- */

static void deliver(void *cookie)
{
    AUTO_FREE struct scrape *scrape = cookie;
    struct http_request *request = http_request_find(scrape->loop, scrape->request);
    if (request == NULL)
        return;
    AUTO_TEXT text = {0};
    metrics_family(&text, PREFIX "_build_info", METRICS_GAUGE, "1, by version.");
    metrics_sample(&text, PREFIX "_build_info", 1, "version", PARLEY_VERSION, NULL);
    write_counts(request, &text);
    write_ledger(request, scrape, &text);
    write_nodes(request, &text);
    http_server_measure(request, PREFIX, &text);
    metrics_process(&text);
    http_reply_bytes(request, 200, METRICS_TYPE, text.data, text.length);
}

static enum kv_outcome scrape_rule(struct kv *kv, void *argument, struct error *err)
{
    struct scrape *scrape = argument;
    uint8_t hash[AUDIT_HASH_BYTES];
    return kv_usage(kv, &scrape->percent, err) && audit_head(kv, &scrape->records, hash, err) ? KV_APPLIED : KV_FAILED;
}

static void scrape_done(void *argument, const struct error *err)
{
    struct scrape *scrape = argument;
    scrape->is_known = err->kind == ERROR_NONE;
    loop_post(scrape->loop, deliver, scrape);
}

/* Nothing secret stands there, but what a business does: for this machine, for who has a key whatever its role, or as
 * the setting says. */
static bool may_look(struct http_request *request, struct error *err)
{
    struct plane *plane = plane_of(request);
    struct principal principal;
    const char *credential = http_request_credential(request);
    if (plane->metrics_open || http_request_is_local(request))
        return true;
    if (credential && !http_authentication_allowed(request, err))
        return false;
    if (principal_table_find(plane->principals, credential ? credential : "", &principal, err))
        return true;
    leasing_stranger(plane->leasing, http_request_remote(request));
    metrics_add(&plane->counts.strangers, 1);
    return false;
}

static void metrics(struct http_request *request)
{
    struct error err = {0};
    if (!may_look(request, &err)) {
        http_reply_error(request, &err);
        return;
    }
    struct scrape *scrape = memory_new(sizeof *scrape);
    scrape->loop = http_request_loop(request);
    scrape->request = http_request_number(request);
    ledger_submit(plane_of(request)->ledger, scrape_rule, scrape_done, scrape);
}

struct plane_rows metrics_rows(void)
{
    static const struct http_route ROWS[] = {
        {"GET", "/metrics", HTTP_BEARER | HTTP_API_KEY, NULL, 0, metrics},
    };
    return (struct plane_rows){ROWS, sizeof ROWS / sizeof *ROWS};
}
