/* osb_network_test.c - OpenSandbox's egress policies as the core's `network` and back. */
#include "negotiator/dialects/opensandbox/osb_network.h"
#include "tests/unit/check.h"

#include <stdio.h>

static struct error why;

/* Single quotes for double ones. */
static json_t *parsed(const char *text)
{
    char quoted[4096];
    size_t i = 0;
    for (; text[i]; i++)
        quoted[i] = text[i] == '\'' ? '"' : text[i];
    quoted[i] = '\0';
    json_t *json = json_loads(quoted, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    CHECK(json != NULL);
    return json;
}

static const char *dumped(json_t *json)
{
    static char text[65536];
    if (!json)
        return "refused";
    char *dump = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    (void)snprintf(text, sizeof text, "%s", dump);
    free(dump);
    json_decref(json);
    for (char *at = text; *at; at++)
        *at = *at == '"' ? '\'' : *at;
    return text;
}

static const char *read_as(const char *policy)
{
    json_t *json = parsed(policy);
    json_t *network = osb_network_read(json, &why);
    json_decref(json);
    return dumped(network);
}

static const char *shown_as(const char *network)
{
    json_t *json = parsed(network);
    json_t *shown = osb_network_shown(json);
    json_decref(json);
    return dumped(shown);
}

static const char *changed(json_t *(*change)(const json_t *, const json_t *, struct error *), const char *network,
                           const char *list)
{
    json_t *was = parsed(network), *by = parsed(list);
    json_t *is = change(json_is_null(was) ? NULL : was, by, &why);
    json_decref(was);
    json_decref(by);
    return dumped(is);
}

static const char *merged(const char *network, const char *rules)
{
    return changed(osb_network_merge, network, rules);
}

static const char *removed(const char *network, const char *targets)
{
    return changed(osb_network_remove, network, targets);
}

static const char *mode_of(const char *network)
{
    json_t *json = parsed(network);
    const char *mode = osb_network_mode(json);
    json_decref(json);
    return mode;
}

static void reading(void)
{
    CHECK_TEXT(read_as("null"), "{'egress':'none'}");
    CHECK_TEXT(read_as("{}"), "{'egress':'none'}");
    CHECK_TEXT(read_as("{'defaultAction':'deny','egress':[]}"), "{'egress':'none'}");
    CHECK_TEXT(read_as("{'defaultAction':'allow'}"), "{'egress':'public'}");
    CHECK_TEXT(read_as("{'defaultAction':null,'egress':[{'action':'allow','target':'PyPI.org.'}]}"),
               "{'allow':['pypi.org'],'egress':'allow'}");
    CHECK_TEXT(read_as("{'defaultAction':'allow','egress':[{'action':'deny','target':'*.Evil.com'}]}"),
               "{'deny':['*.evil.com'],'egress':'public'}");
    CHECK_TEXT(read_as("{'defaultAction':'deny','egress':[{'action':'deny','target':'evil.com'}]}"),
               "{'allow':[],'deny':['evil.com'],'egress':'allow'}");
    CHECK_TEXT(read_as("{'defaultAction':'allow','egress':[{'action':'allow','target':'a.com'}]}"),
               "{'egress':'public'}");
    CHECK_TEXT(
        read_as("{'egress':[{'action':'allow','target':'203.0.113.7'},{'action':'deny','target':'10.0.0.0/8'}]}"),
        "{'allow':['203.0.113.7'],'deny':['10.0.0.0/8'],'egress':'allow'}");
}

/* The first rule that has a name decides. */
static void order(void)
{
    CHECK_TEXT(read_as("{'egress':[{'action':'allow','target':'*.a.com'},{'action':'deny','target':'x.a.com'}]}"),
               "{'allow':['*.a.com'],'egress':'allow'}");
    CHECK_TEXT(read_as("{'egress':[{'action':'deny','target':'x.a.com'},{'action':'allow','target':'*.a.com'}]}"),
               "{'allow':['*.a.com'],'deny':['x.a.com'],'egress':'allow'}");
    CHECK_TEXT(read_as("{'egress':[{'action':'deny','target':'*.a.com'},{'action':'allow','target':'x.a.com'}]}"),
               "{'allow':[],'deny':['*.a.com'],'egress':'allow'}");
    CHECK_TEXT(read_as("{'defaultAction':'allow','egress':[{'action':'allow','target':'x.a.com'},"
                       "{'action':'deny','target':'*.a.com'}]}"),
               "{'allow':['x.a.com'],'deny':['*.a.com'],'egress':'public'}");
    CHECK_TEXT(read_as("{'egress':[{'action':'allow','target':'a.com'},{'action':'deny','target':'A.com.'}]}"),
               "{'allow':['a.com'],'egress':'allow'}");
}

static void refusals(void)
{
    static const char *const BAD[] = {"[]",
                                      "1",
                                      "{'defaultAction':'maybe'}",
                                      "{'default_action':'allow'}",
                                      "{'egress':{}}",
                                      "{'egress':['a.com']}",
                                      "{'egress':[{'action':'allow'}]}",
                                      "{'egress':[{'action':'drop','target':'a.com'}]}",
                                      "{'egress':[{'action':'allow','target':'a.com','port':1}]}",
                                      "{'egress':[{'action':'allow','target':7}]}",
                                      "{'egress':[{'action':'allow','target':''}]}",
                                      "{'egress':[{'action':'allow','target':'*'}]}",
                                      "{'egress':[{'action':'allow','target':'http://a.com'}]}",
                                      "{'egress':[{'action':'allow','target':'169.254.169.254'}]}",
                                      "{'egress':[{'action':'allow','target':'a.com\\u0000.b.com'}]}"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        why = (struct error){0};
        CHECK_TEXT(read_as(BAD[i]), "refused");
        CHECK(why.kind == ERROR_INVALID && why.message[0]);
    }
}

static void too_many(void)
{
    json_t *rules = json_array(), *policy = json_pack("{s:o}", "egress", rules);
    char name[32];
    for (int i = 0; i < 64; i++) {
        (void)snprintf(name, sizeof name, "n%d.com", i);
        json_array_append_new(rules, json_pack("{s:s, s:s}", "action", "allow", "target", name));
    }
    json_t *network = osb_network_read(policy, &why);
    CHECK(network && json_array_size(json_object_get(network, "allow")) == 64);
    json_decref(network);
    for (int i = 64; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "n%d.com", i);
        json_array_append_new(rules, json_pack("{s:s, s:s}", "action", "allow", "target", name));
        if (i == 64 || i == 999)
            CHECK(osb_network_read(policy, &why) == NULL && why.kind == ERROR_INVALID);
    }
    json_decref(policy);
}

static void showing(void)
{
    CHECK_TEXT(shown_as("{'egress':'none'}"), "{'defaultAction':'deny','egress':[]}");
    CHECK_TEXT(dumped(osb_network_shown(NULL)), "{'defaultAction':'deny','egress':[]}");
    CHECK_TEXT(shown_as("{'egress':'public'}"), "{'defaultAction':'allow','egress':[]}");
    CHECK_TEXT(shown_as("{'egress':'allow','allow':['b.com','a.com','*.c.com','203.0.113.0/24'],"
                        "'deny':['x.c.com','203.0.113.7']}"),
               "{'defaultAction':'deny','egress':[{'action':'deny','target':'x.c.com'},"
               "{'action':'allow','target':'b.com'},{'action':'allow','target':'a.com'},"
               "{'action':'allow','target':'*.c.com'},{'action':'deny','target':'203.0.113.7'},"
               "{'action':'allow','target':'203.0.113.0/24'}]}");
    CHECK_TEXT(mode_of("{'egress':'none'}"), "deny_all");
    CHECK_TEXT(mode_of("{'egress':'public'}"), "allow_all");
    CHECK_TEXT(mode_of("{'egress':'public','deny':['a.com']}"), "enforcing");
    CHECK_TEXT(osb_network_mode(NULL), "deny_all");
}

static void merging(void)
{
    CHECK_TEXT(merged("{'egress':'allow','allow':['pypi.org']}",
                      "[{'action':'allow','target':'www.github.com'},{'action':'deny','target':'pypi.org'}]"),
               "{'allow':['www.github.com'],'deny':['pypi.org'],'egress':'allow'}");
    CHECK_TEXT(merged("null", "[{'action':'allow','target':'a.com'},{'action':'deny','target':'a.com'}]"),
               "{'allow':['a.com'],'egress':'allow'}");
    CHECK_TEXT(merged("{'egress':'public','deny':['*.a.com']}", "[{'action':'allow','target':'x.a.com'}]"),
               "{'allow':['x.a.com'],'deny':['*.a.com'],'egress':'public'}");
    CHECK_TEXT(
        merged("{'egress':'public','allow':['x.a.com'],'deny':['*.a.com']}", "[{'action':'deny','target':'x.a.com'}]"),
        "{'deny':['x.a.com','*.a.com'],'egress':'public'}");
    CHECK_TEXT(merged("{'egress':'allow','allow':['x.a.com','b.com']}", "[{'action':'deny','target':'*.a.com'}]"),
               "{'allow':['b.com'],'deny':['*.a.com'],'egress':'allow'}");
    CHECK_TEXT(merged("{'egress':'allow','allow':['a.com:22']}", "[{'action':'allow','target':'b.com'}]"),
               "{'allow':['b.com','a.com:22'],'egress':'allow'}");
    CHECK_TEXT(merged("{'egress':'public'}", "[]"), "refused");
    CHECK_TEXT(merged("{'egress':'public'}", "{}"), "refused");
    CHECK_TEXT(merged("{'egress':'public'}", "[{'action':'allow'}]"), "refused");
}

static void removing(void)
{
    CHECK_TEXT(removed("{'egress':'allow','allow':['a.com','b.com']}", "['A.com.','nowhere.org','b.com:22']"),
               "{'allow':['b.com'],'egress':'allow'}");
    CHECK_TEXT(removed("{'egress':'allow','allow':['a.com']}", "['a.com']"), "{'egress':'none'}");
    CHECK_TEXT(removed("{'egress':'public','allow':['x.a.com'],'deny':['*.a.com']}", "['*.a.com']"),
               "{'egress':'public'}");
    CHECK_TEXT(removed("{'egress':'allow','allow':['a.com'],'deny':['10.0.0.0/8']}", "['10.0.0.0/8']"),
               "{'allow':['a.com'],'egress':'allow'}");
    CHECK_TEXT(removed("null", "['a.com']"), "{'egress':'none'}");
    CHECK_TEXT(removed("null", "[]"), "refused");
    CHECK_TEXT(removed("null", "[1]"), "refused");
    CHECK_TEXT(removed("null", "'a.com'"), "refused");
}

/* What is shown is read as what it was. */
static void there_and_back(void)
{
    static const char *const NETWORKS[] = {
        "{'egress':'none'}", "{'egress':'public'}",
        "{'allow':['x.a.com'],'deny':['*.a.com','203.0.113.0/24'],'egress':'public'}",
        "{'allow':['a.com:22','a.com','*.b.com','203.0.113.7:53/udp'],'deny':['x.b.com'],'egress':'allow'}"};
    for (size_t i = 0; i < sizeof NETWORKS / sizeof NETWORKS[0]; i++) {
        char shown[4096];
        (void)snprintf(shown, sizeof shown, "%s", shown_as(NETWORKS[i]));
        CHECK_TEXT(read_as(shown), NETWORKS[i]);
    }
}

int main(void)
{
    reading();
    order();
    refusals();
    too_many();
    showing();
    merging();
    removing();
    there_and_back();
    return check_done();
}
