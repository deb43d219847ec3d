/* plane_metrics.c - `GET /metrics` of a node: what Prometheus asks for. */
#include "sandboxd/dialects/plane.h"

#include "shared/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "parley_sandboxd"

static void write_sandboxes(const struct plane *plane, struct text *to)
{
    struct registry_counts counts;
    const struct fl_identity *identity = node_seal_identity(plane->seal);
    registry_counts(sandboxes_registry(plane->sandboxes), &counts);
    metrics_family(to, PREFIX "_sandboxes", METRICS_GAUGE,
                   "Sandboxes by state; those that ended are remembered for a day.");
    metrics_sample(to, PREFIX "_sandboxes", (double)counts.running, "state", "running", NULL);
    metrics_sample(to, PREFIX "_sandboxes", (double)counts.paused, "state", "paused", NULL);
    metrics_sample(to, PREFIX "_sandboxes", (double)counts.ending, "state", "ending", NULL);
    metrics_sample(to, PREFIX "_sandboxes", (double)counts.ended, "state", "ended", NULL);
    metrics_single(to, PREFIX "_sandbox_slots", METRICS_GAUGE, "Sandboxes that this node may have.",
                   (double)identity->slots_max);
}

static void write_births(const struct plane_counts *counts, struct text *to)
{
    metrics_family(to, PREFIX "_births_total", METRICS_COUNTER,
                   "Sandboxes that were made: from nothing, from the pool of warm ones, or not.");
    metrics_sample(to, PREFIX "_births_total", (double)metrics_count(&counts->births_cold), "kind", "cold", NULL);
    metrics_sample(to, PREFIX "_births_total", (double)metrics_count(&counts->births_warm), "kind", "warm", NULL);
    metrics_sample(to, PREFIX "_births_total", (double)metrics_count(&counts->births_failed), "kind", "failed", NULL);
    metrics_family(to, PREFIX "_birth_duration_seconds", METRICS_HISTOGRAM,
                   "From the negotiator's message until commands can be started.");
    metrics_sample_histogram(to, PREFIX "_birth_duration_seconds", &counts->cold, "kind", "cold", NULL);
    metrics_sample_histogram(to, PREFIX "_birth_duration_seconds", &counts->warm, "kind", "warm", NULL);
}

static void write_commands(const struct plane_counts *counts, struct text *to)
{
    metrics_family(to, PREFIX "_commands_started_total", METRICS_COUNTER, "Commands that were to be started.");
    metrics_sample(to, PREFIX "_commands_started_total", (double)metrics_count(&counts->commands), "kind", "exec",
                   NULL);
    metrics_sample(to, PREFIX "_commands_started_total", (double)metrics_count(&counts->terminals), "kind", "terminal",
                   NULL);
    metrics_sample(to, PREFIX "_commands_started_total", (double)metrics_count(&counts->kernels), "kind", "kernel",
                   NULL);
    metrics_family(to, PREFIX "_commands_ended_total", METRICS_COUNTER,
                   "Commands that ended, whatever their exit; or never ran, or went with their sandbox.");
    metrics_sample(to, PREFIX "_commands_ended_total", (double)metrics_count(&counts->ended), "how", "ended", NULL);
    metrics_sample(to, PREFIX "_commands_ended_total", (double)metrics_count(&counts->not_ended_well), "how", "lost",
                   NULL);
}

static void write_reasons(const struct plane_reason *table, const char *name, const char *help, struct text *to)
{
    metrics_family(to, name, METRICS_COUNTER, help);
    for (size_t i = 0; i < PLANE_REASONS; i++) {
        const char *reason = table[i].reason;
        if (reason)
            metrics_sample(to, name, (double)metrics_count(&table[i].count), "reason", reason, NULL);
    }
}

static void write_tokens(const struct plane_counts *counts, struct text *to)
{
    metrics_single(to, PREFIX "_tokens_verified_total", METRICS_COUNTER,
                   "Capabilities that were shown, and held for what was asked.",
                   (double)metrics_count(&counts->verified));
    write_reasons(counts->refused, PREFIX "_tokens_refused_total", "Requests that were refused for their capability.",
                  to);
    write_reasons(counts->cut, PREFIX "_streams_cut_total", "Streams that ended because their capability did.", to);
}

static void write_journal(const struct plane *plane, struct text *to)
{
    struct spool_figures spool = {0};
    spool_figures(plane->spool, &spool);
    metrics_single(to, PREFIX "_marks", METRICS_GAUGE, "Revocation marks in force.", (double)marks_count(plane->marks));
    metrics_single(to, PREFIX "_audit_spool_records", METRICS_GAUGE, "Audit records the negotiator does not have yet.",
                   (double)spool.records);
    metrics_single(to, PREFIX "_audit_spool_bytes", METRICS_GAUGE, "The same in bytes.", (double)spool.bytes);
    metrics_single(to, PREFIX "_audit_refused_total", METRICS_COUNTER, "Deeds refused as the spool was full.",
                   (double)spool.refused_full);
    int64_t contact_ms = node_seal_contact_ms(plane->seal);
    if (contact_ms > 0)
        metrics_single(to, PREFIX "_negotiator_contact_age_seconds", METRICS_GAUGE,
                       "Since the negotiator was last heard of.", (double)(clock_wall_ms() - contact_ms) / 1000);
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345" in microseconds; what cannot be read is left out. */
static void write_pressure(const int pressure[static 3], struct text *to)
{
    static const char *const RESOURCES[] = {"cpu", "memory", "io"};
    static const char NAME[] = PREFIX "_host_pressure_waiting_seconds_total";
    bool has_head = false;
    for (size_t i = 0; i < sizeof RESOURCES / sizeof *RESOURCES; i++) {
        char line[256] = "";
        ssize_t got = pressure[i] > 0 ? pread(pressure[i], line, sizeof line - 1, 0) : -1;
        const char *total = got > 0 ? strstr(line, "total=") : NULL;
        if (!total)
            continue;
        if (!has_head)
            metrics_family(to, NAME, METRICS_COUNTER, "That some task of this host waited for it (PSI).");
        has_head = true;
        metrics_sample(to, NAME, strtod(total + strlen("total="), NULL) / 1e6, "resource", RESOURCES[i], NULL);
    }
}

static void handle_metrics(struct http_request *request)
{
    const struct plane *plane = plane_of(request);
    if (!plane->metrics_open && !http_request_is_local(request)) {
        struct error err = {0};
        error_set(&err, ERROR_FORBIDDEN, "/metrics is for this machine alone, but where metrics_open is true");
        http_reply_error(request, &err);
        return;
    }
    AUTO_TEXT text = {0};
    metrics_family(&text, PREFIX "_build_info", METRICS_GAUGE, "1, by version.");
    metrics_sample(&text, PREFIX "_build_info", 1, "version", PARLEY_VERSION, NULL);
    write_sandboxes(plane, &text);
    write_births(&plane->counts, &text);
    write_commands(&plane->counts, &text);
    write_tokens(&plane->counts, &text);
    write_journal(plane, &text);
    write_pressure(plane->pressure, &text);
    http_server_measure(request, PREFIX, &text);
    metrics_process(&text);
    http_reply_bytes(request, 200, METRICS_TYPE, text.data, text.length);
}

const struct http_route *plane_metrics_routes(size_t *count)
{
    static const struct http_route ROUTES[] = {
        {"GET", "/metrics", 0, NULL, 0, handle_metrics},
    };
    *count = sizeof ROUTES / sizeof *ROUTES;
    return ROUTES;
}
