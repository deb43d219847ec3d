#include "clients/cli/usage_view.h"

#include "clients/cli/amount.h"
#include "clients/cli/cli.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <stdio.h>
#include <string.h>

enum { FIGURE_BYTES = 40 };

/* A number of an object within an object; -1 when it is none. */
static int64_t figure(const json_t *object, const char *group, const char *name)
{
    const json_t *inner = group ? json_object_get(object, group) : object;
    const json_t *value = json_object_get(inner, name);
    if (json_is_integer(value) && json_integer_value(value) >= 0)
        return json_integer_value(value);
    return -1;
}

static void format_bytes(char to[static 16], int64_t bytes)
{
    if (bytes < 0)
        snprintf(to, 16, "-");
    else
        amount_format(to, (uint64_t)bytes);
}

static void format_count(char to[static 24], int64_t count)
{
    if (count < 0)
        snprintf(to, 16, "-");
    else
        snprintf(to, 24, "%lld", (long long)count);
}

/* "12 %" of one core, of `used_ms` in `passed_ms`; "-" when that is not known. */
static void format_load(char to[static 16], int64_t used_ms, int64_t passed_ms)
{
    if (used_ms < 0 || passed_ms <= 0)
        snprintf(to, 16, "-");
    else
        snprintf(to, 16, "%.0f %%", (double)used_ms * 100 / (double)passed_ms);
}

static const json_t *find_id(const json_t *sandboxes, const char *id)
{
    size_t index;
    json_t *one;
    json_array_foreach (sandboxes, index, one) {
        const char *other = json_string_value(json_object_get(one, "id"));
        if (other && id && strcmp(other, id) == 0)
            return one;
    }
    return NULL;
}

/* When its usage was told, wall clock ms; 0 not known. */
static int64_t told_ms(const json_t *sandbox)
{
    const char *at = json_string_value(json_object_get(json_object_get(sandbox, "usage"), "at"));
    int64_t ms;
    return at && clock_parse(at, &ms) ? ms : 0;
}

static void row_load(char to[static 16], const json_t *now, const json_t *before)
{
    int64_t used = figure(now, "usage", "cpu_ms"), used_before = figure(before, "usage", "cpu_ms");
    int64_t at = told_ms(now), at_before = told_ms(before);
    bool known = used_before >= 0 && used >= used_before && at > at_before && at_before > 0;
    format_load(to, known ? used - used_before : -1, at - at_before);
}

/* "1.5 MiB/512.0 MiB" */
static void part_of(char to[static FIGURE_BYTES], int64_t used, int64_t limit_mib)
{
    char part[16], whole[16];
    format_bytes(part, used);
    format_bytes(whole, limit_mib < 0 || limit_mib > INT64_MAX >> 20 ? -1 : limit_mib << 20);
    snprintf(to, FIGURE_BYTES, "%s/%s", part, whole);
}

double usage_view_load(const json_t *sandbox, const json_t *before)
{
    const json_t *old = find_id(before, json_string_value(json_object_get(sandbox, "id")));
    int64_t used = figure(sandbox, "usage", "cpu_ms") - figure(old, "usage", "cpu_ms");
    int64_t passed = told_ms(sandbox) - told_ms(old);
    return old && used >= 0 && passed > 0 && told_ms(old) > 0 ? (double)used / (double)passed : 0;
}

/* How long it may live yet. */
static void format_left(char to[static 16], const char *until)
{
    int64_t ends;
    if (!until || !clock_parse(until, &ends)) {
        snprintf(to, 16, "-");
        return;
    }
    int64_t left_s = (ends - clock_wall_ms()) / 1000;
    left_s = left_s < 0 ? 0 : left_s;
    if (left_s >= 3600)
        snprintf(to, 16, "%uh%02um", (unsigned)(left_s / 3600) % 100000, (unsigned)(left_s / 60) % 60);
    else
        snprintf(to, 16, "%um%02us", (unsigned)(left_s / 60) % 60, (unsigned)left_s % 60);
}

#define ROW "%-20s %-12s %7s %9s %-22s %-22s %6s %-10s %6s %8s %s\n"

static void print_row(FILE *to, const json_t *sandbox, const json_t *before)
{
    char load[16], age[16], left[16], leases[24], time[32] = "-", pids[24], memory[FIGURE_BYTES], disk[FIGURE_BYTES];
    int64_t cpu_ms = figure(sandbox, "usage", "cpu_ms");
    row_load(load, sandbox, before);
    if (cpu_ms >= 0)
        snprintf(time, sizeof time, "%.1fs", (double)cpu_ms / 1000);
    format_count(pids, figure(sandbox, "usage", "pids"));
    format_count(leases, (int64_t)json_array_size(json_object_get(sandbox, "threads")));
    format_left(left, json_string_value(json_object_get(sandbox, "max_expires_at")));
    part_of(memory, figure(sandbox, "usage", "memory_bytes"), figure(sandbox, "resources", "memory_mb"));
    part_of(disk, figure(sandbox, "usage", "disk_bytes"), figure(sandbox, "resources", "disk_mb"));
    cli_print_age(age, json_string_value(json_object_get(sandbox, "created_at")));
    AUTO_FREE char *name = cli_member(sandbox, "name"), *state = cli_member(sandbox, "state");
    AUTO_FREE char *node = cli_member(sandbox, "node");
    fprintf(to, ROW, name, state, load, time, memory, disk, pids, node, leases, left, age);
}

void usage_view_all(FILE *to, const json_t *sandboxes, const json_t *before)
{
    fprintf(to, ROW, "NAME", "STATE", "CPU", "TIME", "MEMORY", "DISK", "PIDS", "NODE", "LEASES", "LEFT", "AGE");
    size_t index;
    json_t *one;
    json_array_foreach (sandboxes, index, one)
        print_row(to, one, find_id(before, json_string_value(json_object_get(one, "id"))));
}

/* ---- one ---- */

static void print_bytes(const json_t *metrics, const char *group, const char *used)
{
    char part[16], whole[16];
    format_bytes(part, figure(metrics, group, used));
    int64_t limit = figure(metrics, group, "limit_bytes");
    format_bytes(whole, limit);
    printf("%-11s %10s of %s", group, part, limit == 0 ? "no limit" : whole);
}

static void print_count(const json_t *metrics, const char *group, const char *used)
{
    char part[24], whole[24];
    format_count(part, figure(metrics, group, used));
    format_count(whole, figure(metrics, group, "limit"));
    printf("%-11s %10s of %s\n", group, part, whole);
}

static void print_cpu(const json_t *metrics, const json_t *before)
{
    char load[16];
    int64_t used = figure(metrics, "cpu", "used_ms"), used_before = figure(before, "cpu", "used_ms");
    int64_t up = figure(metrics, NULL, "uptime_ms"), up_before = figure(before, NULL, "uptime_ms");
    int64_t limit = figure(metrics, "cpu", "limit_milli");
    bool known = used_before >= 0 && used >= used_before;
    format_load(load, known ? used - used_before : -1, up - up_before);
    printf("%-11s %10s of %.4g core%s, %.1f s used\n", "cpu", load, limit < 0 ? 0 : (double)limit / 1000,
           limit == 1000 ? "" : "s", used < 0 ? 0 : (double)used / 1000);
}

void usage_view_one(const char *name, const json_t *metrics, const json_t *before)
{
    char age[16];
    cli_print_age(age, json_string_value(json_object_get(metrics, "started_at")));
    AUTO_FREE char *safe = cli_safe(name), *storage = cli_member(json_object_get(metrics, "disk"), "storage");
    printf("%s, up %s%s\n", safe, age, json_is_true(json_object_get(metrics, "paused")) ? ", paused" : "");
    print_cpu(metrics, before);
    print_bytes(metrics, "memory", "used_bytes");
    int64_t kills = figure(metrics, "memory", "oom_kills");
    if (kills > 0)
        printf(", %lld ended for want of it", (long long)kills);
    putchar('\n');
    print_bytes(metrics, "disk", "used_bytes");
    printf(" on %s\n", storage);
    print_count(metrics, "pids", "used");
    print_count(metrics, "commands", "running");
    print_bytes(metrics, "output", "kept_bytes");
    putchar('\n');
}
