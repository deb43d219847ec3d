#include "clients/cli/top_live.h"

#include "clients/cli/cli.h"
#include "clients/cli/local_tty.h"
#include "clients/cli/usage_view.h"

#include "shared/base/clock.h"
#include "shared/base/memory.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 10000, CTRL_C = 3, NODES_MOST = 1000 };

static const char *const ORDERS[TOP_ORDERS] = {
    [TOP_ROWS] = "none", [TOP_NAME] = "name", [TOP_CPU] = "cpu",  [TOP_MEMORY] = "memory",
    [TOP_DISK] = "disk", [TOP_PIDS] = "pids", [TOP_LEFT] = "left"};

bool top_order_parse(const char *name, enum top_order *order)
{
    for (int i = 0; i < TOP_ORDERS; i++)
        if (strcmp(name, ORDERS[i]) == 0) {
            *order = (enum top_order)i;
            return true;
        }
    return false;
}

/* ---- sorting ---- */

struct entry {
    json_t *sandbox;
    const char *name;
    double most; /* what is more comes first */
    size_t place;
};

static double figure(const json_t *sandbox, const char *name)
{
    return (double)json_integer_value(json_object_get(json_object_get(sandbox, "usage"), name));
}

static const double NO_END = -1e18; /* behind all that have one */

static double value_of(const json_t *sandbox, const json_t *before, enum top_order order)
{
    int64_t ends = 0;
    const char *until = json_string_value(json_object_get(sandbox, "max_expires_at"));
    switch (order) {
    case TOP_CPU:
        return usage_view_load(sandbox, before);
    case TOP_MEMORY:
        return figure(sandbox, "memory_bytes");
    case TOP_DISK:
        return figure(sandbox, "disk_bytes");
    case TOP_PIDS:
        return figure(sandbox, "pids");
    case TOP_LEFT:
        return until && clock_parse(until, &ends) ? -(double)ends : NO_END;
    case TOP_ROWS:
    case TOP_NAME:
    case TOP_ORDERS:
        break;
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const struct entry *one = a, *other = b;
    if (one->most > other->most || one->most < other->most)
        return one->most > other->most ? -1 : 1;
    int names = strcmp(one->name, other->name);
    return names != 0 ? names : one->place > other->place ? 1 : -1;
}

void top_sort(json_t *sandboxes, const json_t *before, enum top_order order)
{
    size_t count = json_array_size(sandboxes);
    if (order == TOP_ROWS || count == 0)
        return;
    AUTO_FREE struct entry *entries = memory_array(count, sizeof *entries);
    for (size_t i = 0; i < count; i++) {
        json_t *one = json_array_get(sandboxes, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        entries[i] = (struct entry){
            .sandbox = json_incref(one), .name = name ? name : "", .most = value_of(one, before, order), .place = i};
    }
    qsort(entries, count, sizeof *entries, by_value);
    json_array_clear(sandboxes);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(sandboxes, entries[i].sandbox);
}

/* ---- a page ---- */

/* Only admins are told of nodes: others see none. */
static void print_nodes(FILE *to, const struct place *place)
{
    struct error ignored = {0};
    const struct negotiator_list wanted = {
        .path = "/nodes", .member = "nodes", .next = "next_cursor", .most = NODES_MOST};
    json_t *nodes = negotiator_list(place, &wanted, &ignored), *one;
    size_t index;
    json_array_foreach (nodes, index, one) {
        AUTO_FREE char *name = cli_member(one, "name"), *state = cli_member(one, "state");
        AUTO_FREE char *used = cli_member(one, "used"), *slots = cli_member(one, "slots");
        fprintf(to, "%s%s %s %s/%s%s", index ? "   " : "nodes: ", name, state, used, slots,
                json_is_true(json_object_get(one, "draining")) ? " draining" : "");
    }
    if (json_array_size(nodes) > 0)
        fputc('\n', to);
    json_decref(nodes);
}

static void print_summary(FILE *to, const json_t *sandboxes, enum top_order order)
{
    size_t index, paused = 0;
    json_t *one;
    json_array_foreach (sandboxes, index, one) {
        const char *state = json_string_value(json_object_get(one, "state"));
        paused += state && strcmp(state, "paused") == 0;
    }
    fprintf(to, "%zu sandboxes, %zu paused; %s%s   c cpu  m memory  d disk  p pids  l time left  n name  q quit\n",
            json_array_size(sandboxes), paused, order == TOP_ROWS ? "as listed" : "by ",
            order == TOP_ROWS ? "" : ORDERS[order]);
}

/* As many lines as there is room for, each cleared to its end; raw terminals want a return before each line feed. */
static void put_page(const char *page, unsigned rows)
{
    fputs("\033[?7l\033[H", stdout); /* long lines are cut off by the terminal */
    for (unsigned row = 1; *page && row < rows; row++) {
        size_t length = strcspn(page, "\n");
        printf("%.*s\033[K\r\n", (int)length, page);
        page += length + (page[length] == '\n');
    }
    fputs("\033[J\033[?7h", stdout);
}

bool top_page(const struct place *place, enum top_order order, unsigned rows, json_t **before, struct error *err)
{
    const struct negotiator_list wanted = {
        .path = "/sandboxes", .member = "sandboxes", .next = "next_cursor", .most = MOST};
    json_t *sandboxes = negotiator_list(place, &wanted, err);
    if (!sandboxes)
        return false;
    top_sort(sandboxes, *before, order);
    char *page = NULL;
    size_t size = 0;
    FILE *to = rows > 0 ? open_memstream(&page, &size) : stdout;
    if (rows > 0) {
        print_summary(to, sandboxes, order);
        print_nodes(to, place);
    }
    usage_view_all(to, sandboxes, *before);
    json_decref(*before);
    *before = sandboxes;
    if (rows > 0) {
        fclose(to);
        put_page(page, rows);
        free(page);
    }
    return true;
}

/* ---- live ---- */

static void on_resize(int number UNUSED)
{
}

/* Until a key comes, the size changes, or it is time; the key, 0 for none. */
static char wait_key(bool has_keys, uint64_t until_ns, const sigset_t *waiting)
{
    fflush(stdout);
    uint64_t now = clock_boot_ns(), left_ns = now < until_ns ? until_ns - now : 0;
    const struct timespec left = {.tv_sec = (time_t)(left_ns / 1000000000), .tv_nsec = (long)(left_ns % 1000000000)};
    struct pollfd keys = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    char key = 0;
    if (ppoll(&keys, 1, &left, waiting) <= 0 || keys.revents == 0)
        return 0;
    return read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';
}

static enum top_order order_of(char key, enum top_order order)
{
    static const char KEYS[TOP_ORDERS] = {
        [TOP_NAME] = 'n', [TOP_CPU] = 'c', [TOP_MEMORY] = 'm', [TOP_DISK] = 'd', [TOP_PIDS] = 'p', [TOP_LEFT] = 'l'};
    for (int i = TOP_NAME; i < TOP_ORDERS; i++)
        if (KEYS[i] == key)
            return (enum top_order)i;
    return order;
}

int top_live(const struct place *place, enum top_order order, unsigned interval_s)
{
    struct error err = {0}, ignored = {0};
    const struct sigaction resized = {.sa_handler = on_resize};
    sigset_t size, waiting; /* a resize comes only while we wait: never in the middle of a page, and none is lost */
    bool has_keys = isatty(STDIN_FILENO) && local_tty_enter(LOCAL_TTY_RAW, &ignored), is_over = false;
    json_t *before = NULL;
    (void)sigemptyset(&size);
    (void)sigaddset(&size, SIGWINCH);
    (void)sigprocmask(SIG_BLOCK, &size, &waiting);
    (void)sigdelset(&waiting, SIGWINCH);
    (void)sigaction(SIGWINCH, &resized, NULL);
    while (!is_over) {
        unsigned columns = 0, rows = 0;
        if (!local_tty_size(&columns, &rows) || rows < 3)
            rows = 24;
        if (!top_page(place, order, rows, &before, &err))
            break;
        char key = wait_key(has_keys, clock_boot_ns() + interval_s * UINT64_C(1000000000), &waiting);
        is_over = key == 'q' || key == CTRL_C;
        order = order_of(key, order);
    }
    (void)sigprocmask(SIG_UNBLOCK, &size, NULL);
    json_decref(before);
    local_tty_leave();
    return is_over ? CLI_OK : cli_fail_usual(&err, CLI_FAILED);
}
