/* egress_rule_test.c - what an entry of network.allow and network.deny may be, and what no spelling of one gets at. */
#include "shared/node_protocol/egress_rule.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>

static const char *spelled(const char *text)
{
    static char printed[EGRESS_RULE_BYTES];
    struct egress_rule rule;
    struct error err;
    if (!egress_rule_parse(text, &rule, &err))
        return "refused";
    egress_rule_print(&rule, printed);
    return printed;
}

static void spellings(void)
{
    static const char *const PAIRS[][2] = {{"PyPI.org.", "pypi.org"},
                                           {"*.PythonHosted.org", "*.pythonhosted.org"},
                                           {"github.com:22", "github.com:22"},
                                           {"github.com:22/tcp", "github.com:22"},
                                           {"203.0.113.9/24", "203.0.113.0/24"},
                                           {"203.0.113.7", "203.0.113.7"},
                                           {"203.0.113.7/32:5432", "203.0.113.7:5432"},
                                           {"198.51.100.0/24:53/udp", "198.51.100.0/24:53/udp"},
                                           {"198.51.100.0/24:53/tcp", "198.51.100.0/24:53/tcp"},
                                           {"_dmarc.example.com", "_dmarc.example.com"},
                                           {"xn--bcher-kva.example", "xn--bcher-kva.example"}};
    for (size_t i = 0; i < sizeof PAIRS / sizeof PAIRS[0]; i++) {
        CHECK_TEXT(spelled(PAIRS[i][0]), PAIRS[i][1]);
        CHECK_TEXT(spelled(PAIRS[i][1]), PAIRS[i][1]); /* its one spelling is read as itself */
    }
}

static void refusals(void)
{
    static const char *const BAD[] = {"",
                                      " ",
                                      ".",
                                      "*",
                                      "*.",
                                      "a..b",
                                      "-a.com",
                                      "a-.com",
                                      "exa mple.com",
                                      "a.com:0",
                                      "a.com:65536",
                                      "a.com:022",
                                      "a.com:80:80",
                                      "a.com:53/udp",
                                      "a.com/24",
                                      "a.com:80/sctp",
                                      "*.*.com",
                                      "a.*.com",
                                      "b\xc3\xbc"
                                      "cher.example",
                                      "203.0.113.7/33",
                                      "203.0.113.7/-1",
                                      "203.0.113",
                                      "203.0.113.256",
                                      "203.0.113.07",
                                      "0xCB.0.113.7",
                                      "3405803783",
                                      "203.0.113.7/24/24",
                                      "::1",
                                      "[::1]:80",
                                      "2001:db8::/32",
                                      "::ffff:10.0.0.1",
                                      "10.0.0.1",
                                      "10.0.0.0/8",
                                      "0.0.0.0/0",
                                      "8.0.0.0/5",
                                      "127.0.0.1",
                                      "169.254.169.254:80",
                                      "172.31.255.255",
                                      "192.168.0.0/16",
                                      "100.127.0.1",
                                      "224.0.0.1",
                                      "255.255.255.255",
                                      "0.0.0.0",
                                      "2852039166",
                                      "example.1",
                                      "203.0.113.7:53/",
                                      "203.0.113.0/24/udp"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK_TEXT(spelled(BAD[i]), "refused");
    char label[80], name[400] = "";
    memset(label, 'a', sizeof label);
    label[64] = '\0';
    CHECK_TEXT(spelled(label), "refused");
    label[50] = '\0';
    for (int i = 0; i < 5; i++) {
        strcat(name, label);
        strcat(name, ".");
    }
    CHECK_TEXT(spelled(name), "refused");
}

static void reasons(void)
{
    struct egress_rule rule;
    struct error err;
    CHECK(!egress_rule_parse("http://x.org/y", &rule, &err) && strstr(err.message, "without a scheme"));
    CHECK(!egress_rule_parse("2001:db8::/32", &rule, &err) && strstr(err.message, "only IPv4"));
    CHECK(!egress_rule_parse("::1", &rule, &err) && strstr(err.message, "only IPv4"));
    CHECK(!egress_rule_parse("x.org:80:80", &rule, &err) && strstr(err.message, "a port is"));
    CHECK(!egress_rule_parse("10.0.0.1", &rule, &err) && strstr(err.message, "never reached"));
}

static void names(void)
{
    struct egress_rule exact, below;
    struct error err;
    CHECK(egress_rule_parse("example.com", &exact, &err) && egress_rule_parse("*.example.com", &below, &err));
    CHECK(egress_rule_has_name(&exact, "example.com") && egress_rule_has_name(&exact, "EXAMPLE.com."));
    CHECK(!egress_rule_has_name(&exact, "www.example.com") && !egress_rule_has_name(&exact, "notexample.com"));
    CHECK(!egress_rule_has_name(&exact, "example.com.evil.org") && !egress_rule_has_name(&exact, ""));
    CHECK(egress_rule_has_name(&below, "www.example.com") && egress_rule_has_name(&below, "a.b.Example.com."));
    CHECK(!egress_rule_has_name(&below, "example.com") && !egress_rule_has_name(&below, ".example.com"));
    CHECK(!egress_rule_has_name(&below, "notexample.com") && !egress_rule_has_name(&below, "xexample.com"));
}

/* The text for the firewall and the check are one list: each of its networks is blocked at both ends, and not beyond.
 */
static void blocked(void)
{
    char text[512];
    strcpy(text, egress_blocked_elements());
    size_t count = 0;
    for (char *each = strtok(text, ", "); each; each = strtok(NULL, ", "), count++) {
        unsigned prefix = (unsigned)atoi(strchr(each, '/') + 1);
        *strchr(each, '/') = '\0';
        uint32_t first = ntohl(inet_addr(each)), last = first | (UINT32_MAX >> prefix);
        CHECK(egress_is_blocked(first) && egress_is_blocked(last) && egress_meets_blocked(first, 0));
        if (first > 0)
            CHECK(egress_is_blocked(first - 1) == (first == 0xF0000000));
        if (last < UINT32_MAX)
            CHECK(egress_is_blocked(last + 1) == (last + 1 == 0xF0000000));
    }
    CHECK(count == 9);
    CHECK(!egress_is_blocked(0xCB007107) && !egress_is_blocked(0x08080808));
}

static char *wished(const char *json)
{
    struct error err;
    json_error_t why;
    static char shown[EGRESS_RULES_BYTES + 100];
    struct egress_wish wish;
    json_t *read = json_loads(json, 0, &why);
    if (!egress_wish_read(read, &wish, &err)) {
        json_decref(read);
        return strcpy(shown, "refused");
    }
    json_decref(read);
    json_t *back = egress_wish_json(&wish);
    char *text = json_dumps(back, JSON_COMPACT);
    strcpy(shown, text);
    free(text);
    json_decref(back);
    return shown;
}

static void wishes(void)
{
    CHECK_TEXT(wished("{\"egress\":\"none\"}"), "{\"egress\":\"none\"}");
    CHECK_TEXT(wished("{\"egress\":\"public\",\"allow\":null}"), "{\"egress\":\"public\"}");
    CHECK_TEXT(wished("{\"egress\":\"allow\",\"allow\":[\"A.com\",\"a.com.\",\"xa.com\",\"203.0.113.1/24\"]}"),
               "{\"egress\":\"allow\",\"allow\":[\"a.com\",\"xa.com\",\"203.0.113.0/24\"]}");
    static const char *const BAD[] = {"[]",
                                      "{}",
                                      "{\"egress\":\"all\"}",
                                      "{\"egress\":\"allow\"}",
                                      "{\"egress\":\"allow\",\"allow\":[]}",
                                      "{\"egress\":\"allow\",\"allow\":\"a.com\"}",
                                      "{\"egress\":\"allow\",\"allow\":[1]}",
                                      "{\"egress\":\"public\",\"allow\":[\"a.com\"]}",
                                      "{\"egress\":\"none\",\"deny\":[\"a.com\"]}",
                                      "{\"egress\":\"none\",\"refuse\":[]}",
                                      "{\"egress\":\"public\",\"deny\":[1]}",
                                      "{\"egress\":\"public\",\"deny\":[\"*\"]}",
                                      "{\"egress\":\"public\",\"allow\":[\"a.com\"],\"deny\":[]}",
                                      "{\"egress\":\"public\",\"allow\":[\"a.com:22\"],\"deny\":[\"*.com\"]}",
                                      "{\"egress\":\"public\",\"allow\":[\"10.0.0.1\"],\"deny\":[\"*.com\"]}",
                                      "{\"egress\":\"allow\",\"allow\":[\"10.0.0.1\"]}",
                                      "{\"egress\":\"allow\",\"allow\":[\"a.com\\u0000b\"]}"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        CHECK_TEXT(wished(BAD[i]), "refused");
}

static void denials(void)
{
    CHECK_TEXT(wished("{\"egress\":\"none\",\"deny\":null}"), "{\"egress\":\"none\"}");
    CHECK_TEXT(wished("{\"egress\":\"none\",\"deny\":[]}"), "refused");
    CHECK_TEXT(wished("{\"egress\":\"public\",\"deny\":[\"Bad.com.\",\"bad.com\",\"10.1.2.3/8\"]}"),
               "{\"egress\":\"public\",\"deny\":[\"bad.com\",\"10.0.0.0/8\"]}");
    CHECK_TEXT(wished("{\"egress\":\"public\",\"allow\":[\"good.bad.com\"],\"deny\":[\"*.bad.com\"]}"),
               "{\"egress\":\"public\",\"allow\":[\"good.bad.com\"],\"deny\":[\"*.bad.com\"]}");
    CHECK_TEXT(wished("{\"egress\":\"allow\",\"deny\":[\"bad.com:22\"]}"),
               "{\"egress\":\"allow\",\"allow\":[],\"deny\":[\"bad.com:22\"]}");
}

static struct egress_rule rule_of(const char *text)
{
    struct egress_rule rule;
    struct error err;
    CHECK(egress_rule_parse_denied(text, &rule, &err));
    return rule;
}

static int compared(const char *a, const char *b)
{
    struct egress_rule first = rule_of(a), second = rule_of(b);
    int there = egress_rule_compare(&first, &second);
    CHECK(there == -egress_rule_compare(&second, &first));
    return there;
}

static bool held(const char *outer, const char *inner)
{
    struct egress_rule first = rule_of(outer), second = rule_of(inner);
    return egress_rule_holds(&first, &second);
}

static void specific(void)
{
    CHECK(compared("a.com", "*.com") < 0 && compared("a.com", "*.very.long.example.com") < 0);
    CHECK(compared("*.b.com", "*.com") < 0 && compared("a.com", "b.com") == 0);
    CHECK(compared("a.com:22", "a.com") < 0 && compared("203.0.113.0/24", "203.0.0.0/16") < 0);
    CHECK(compared("203.0.113.0/24:53", "203.0.113.0/24") < 0);
    CHECK(compared("203.0.113.0/24:53/udp", "203.0.113.0/24:53") < 0);
    CHECK(held("*.com", "a.com:22") && held("*.com", "*.b.com") && !held("*.b.com", "*.com") && !held("*.com", "com"));
    CHECK(held("203.0.0.0/16:53", "203.0.113.7") && !held("203.0.113.7", "203.0.0.0/16") && !held("a.com", "1.2.3.4"));
}

static void walking(void)
{
    struct egress_wish wish = {.mode = EGRESS_ALLOW, .allow = "a.com *.b.com 203.0.113.0/24:53/udp"};
    struct egress_rule rule;
    const char *at = NULL;
    CHECK(egress_wish_next(&wish, &at, &rule) && rule.is_name && strcmp(rule.name, "a.com") == 0);
    CHECK(egress_wish_next(&wish, &at, &rule) && rule.is_wildcard && strcmp(rule.name, "b.com") == 0);
    CHECK(egress_wish_next(&wish, &at, &rule) && rule.address == 0xCB007100 && rule.protocol == 17 && rule.port == 53);
    CHECK(!egress_wish_next(&wish, &at, &rule));
    CHECK(!egress_wish_next(&wish, &at, &rule)); /* stays at its end */
}

int main(void)
{
    spellings();
    refusals();
    reasons();
    names();
    blocked();
    wishes();
    denials();
    specific();
    walking();
    return check_done();
}
