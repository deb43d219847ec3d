/* event_test.c - which records are events and of which type; lists of types; readings page by page, and what is
 * missing. */
#include "negotiator/leasing/events/event.h"
#include "negotiator/ledger/audit_internal.h"
#include "tests/unit/check.h"

#include <string.h>

static struct key key;

static void append(struct kv *kv, const char *action, const char *outcome, int status)
{
    struct error err = {0};
    AUTO(kv_change) *change = kv_change_new();
    struct audit_record record = {.time_ms = 1000,
                                  .plane = "negotiator",
                                  .action = action,
                                  .outcome = outcome,
                                  .status = status,
                                  .principal = "ada"};
    CHECK(kv_batch_begin(kv, &err));
    CHECK(audit_append(kv, change, &key, &record, &err) && kv_apply(kv, change, &err) == KV_APPLIED);
    CHECK(kv_batch_end(kv, &err));
}

static void forget(struct kv *kv, uint64_t seq)
{
    struct error err = {0};
    char name[AUDIT_KEY_SIZE];
    AUTO(kv_change) *change = kv_change_new();
    audit_format_key(name, AUDIT_RECORDS, seq);
    kv_change_delete(change, name);
    CHECK(kv_batch_begin(kv, &err) && kv_apply(kv, change, &err) == KV_APPLIED && kv_batch_end(kv, &err));
}

static const char *type_of(const char *action, const char *outcome, int status)
{
    static char type[EVENT_TYPE_BYTES];
    json_t *record = json_pack("{s:s, s:s, s:i}", "action", action, "outcome", outcome, "status", status);
    bool is_event = event_type(record, type);
    json_decref(record);
    return is_event ? type : "";
}

static void test_types(void)
{
    CHECK_TEXT(type_of("negotiate", "ok", 201), "sandbox.created");
    CHECK_TEXT(type_of("negotiate", "ok", 200), "token.issued");
    CHECK_TEXT(type_of("negotiate", "refused", 409), "request.refused");
    CHECK_TEXT(type_of("refresh", "refused", 409), "token.reused");
    CHECK_TEXT(type_of("authenticate", "refused", 401), "authentication.refused");
    CHECK_TEXT(type_of("exec.end", "ok", 0), "exec.ended");
    CHECK_TEXT(type_of("share", "ok", 201), "share.created");
    CHECK_TEXT(type_of("share.end", "ok", 200), "share.ended");
    CHECK_TEXT(type_of("node.lost", "ok", 200), "node.lost");
    CHECK_TEXT(type_of("read", "ok", 200), "");
    /* A node's word gets into no line of a stream. */
    CHECK_TEXT(type_of("node.x\ndata: {}\n\n", "ok", 0), "");
    CHECK_TEXT(type_of("sandbox.<b>", "ok", 0), "");
    CHECK_TEXT(type_of("sandbox.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ok", 0), "");
}

static void test_lists(void)
{
    CHECK(event_check_types("exec.*", NULL) && event_check_types("exec.ended,sandbox.created", NULL));
    CHECK(!event_check_types("", NULL) && !event_check_types(",", NULL) && !event_check_types("a,", NULL));
    CHECK(!event_check_types("*", NULL) && !event_check_types("a*b", NULL) && !event_check_types("A", NULL));
    CHECK(event_has_type("", "exec.ended") && event_has_type("a,exec.*", "exec.ended"));
    CHECK(event_has_type("exec.ended", "exec.ended") && !event_has_type("exec.end", "exec.ended"));
    CHECK(!event_has_type("exec.ended", "exec.end") && !event_has_type("sandbox.*", "exec.ended"));
}

static void read_all(struct kv *kv, struct event_reading *reading)
{
    struct error err = {0};
    while (!reading->done)
        CHECK(event_read_step(kv, reading, &err));
}

static json_int_t id_of(const struct event_reading *reading, size_t at)
{
    return json_integer_value(json_object_get(json_array_get(reading->events, at), "id"));
}

static const char *text_of(const struct event_reading *reading, size_t at, const char *name)
{
    return json_string_value(json_object_get(json_array_get(reading->events, at), name));
}

static void test_pages(struct kv *kv)
{
    for (int i = 0; i < 250; i++)
        append(kv, i % 2 ? "read" : "exec", "ok", 200);
    struct event_reading reading = {.filter = {.principal = "ada"}};
    size_t seen = 0;
    json_int_t last = 0;
    for (bool at_head = false; !at_head; event_reading_again(&reading)) {
        read_all(kv, &reading);
        for (size_t i = 0; i < json_array_size(reading.events); i++, seen++) {
            CHECK(id_of(&reading, i) > last);
            last = id_of(&reading, i);
        }
        at_head = reading.at_head;
    }
    CHECK(seen == 125 && last == 249 && reading.after == 250);
    reading = (struct event_reading){.from_now = true};
    read_all(kv, &reading);
    CHECK(reading.after == 250 && json_array_size(reading.events) == 0 && reading.at_head);
    event_reading_done(&reading);
    reading = (struct event_reading){.filter = {.principal = "eve"}};
    read_all(kv, &reading);
    CHECK(json_array_size(reading.events) == 0);
    event_reading_done(&reading);
}

/* Retention removes the oldest ones; a ledger that was put back lacks the newest. */
static void test_gaps(struct kv *kv)
{
    for (uint64_t seq = 1; seq <= 10; seq++)
        forget(kv, seq);
    struct event_reading reading = {.after = 3};
    read_all(kv, &reading);
    CHECK_TEXT(text_of(&reading, 0, "type"), EVENT_GAP);
    CHECK_TEXT(text_of(&reading, 0, "reason"), EVENT_GAP_REMOVED);
    CHECK(id_of(&reading, 0) == 10 && id_of(&reading, 1) == 11);
    event_reading_done(&reading);
    reading = (struct event_reading){.after = 10};
    read_all(kv, &reading);
    CHECK(id_of(&reading, 0) == 11);
    event_reading_done(&reading);
    reading = (struct event_reading){.after = 1000};
    read_all(kv, &reading);
    CHECK_TEXT(text_of(&reading, 0, "reason"), EVENT_GAP_RESTORED);
    CHECK(reading.after == 250 && reading.at_head);
    event_reading_done(&reading);
}

int main(void)
{
    keys_start();
    AUTO(kv) *kv = kv_memory_new(0, 1);
    test_types();
    test_lists();
    test_pages(kv);
    test_gaps(kv);
    return 0;
}
