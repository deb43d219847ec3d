/* Goal: what a create's body says is what the rules are asked for, no more and no less; what cannot be had is refused
 * with the protocol's own code, and a registry's password goes nowhere. */
#include "negotiator/dialects/opensandbox/osb_wish.h"

#include "negotiator/dialects/opensandbox/opensandbox.h"
#include "negotiator/dialects/opensandbox/osb_quantity.h"
#include "negotiator/dialects/opensandbox/osb_time.h"
#include "tests/unit/check.h"

#include <string.h>

static const char PYTHON[] = "\"image\":{\"uri\":\"python:3.11\"},\"entrypoint\":[\"tail\"],\"resourceLimits\":{}";

struct asked {
    struct wanted wanted;
    struct osb_refusal refusal;
    bool is_read;
};

static void asked_done(struct asked *asked)
{
    wanted_done(&asked->wanted);
}
#define AUTO_ASKED __attribute__((cleanup(asked_done))) struct asked

/* `more` stands behind what every body has, and before it counts; unless it begins with '{'. */
static struct asked ask_with(const char *map, const char *more)
{
    char text[4096];
    struct asked asked = {.is_read = false};
    (void)snprintf(text, sizeof text, more[0] == '{' ? "%.0s%s" : "{%s%s}", PYTHON, more);
    json_t *body = json_loads(text, 0, NULL);
    json_t *templates = json_pack("[{s:s}, {s:s}]", "name", "base", "name", "python:3.12");
    CHECK(body != NULL);
    const struct osb_defaults defaults = {map, templates, "none"};
    asked.is_read = osb_wish_read(&asked.wanted, body, &defaults, &asked.refusal);
    json_decref(templates);
    json_decref(body);
    return asked;
}

static struct asked ask(const char *more)
{
    return ask_with("*=base", more);
}

static void check_refused(const char *more, const char *code, const char *word)
{
    AUTO_ASKED asked = ask(more);
    CHECK(!asked.is_read && asked.refusal.err.kind != ERROR_NONE);
    CHECK_TEXT(asked.refusal.code, code);
    CHECK(strstr(asked.refusal.err.message, word) != NULL);
}

static void test_least(void)
{
    AUTO_ASKED asked = ask("");
    const struct wanted *wanted = &asked.wanted;
    CHECK(asked.is_read && wanted->mode == WANTED_CREATE_ONLY);
    CHECK_TEXT(wanted->template_name, "base");
    CHECK_TEXT(json_string_value(json_object_get(wanted->origin, "image")), "python:3.11");
    CHECK(json_object_size(wanted->origin) == 1);
    CHECK(wanted->max_lifetime_s == LIFE_ENDLESS_S && wanted->idle_timeout_s == LIFE_ENDLESS_S);
    CHECK_TEXT(json_string_value(json_object_get(wanted->network, "egress")), "none");
    CHECK(json_array_size(wanted->entrypoint) == 1 && !wanted->env && !wanted->metadata && !wanted->volumes);
    CHECK(wanted->resources.cpu_milli == 0 && wanted->resources.memory_mb == 0);
}

static void test_all(void)
{
    AUTO_ASKED asked =
        ask(",\"timeout\":600,\"resourceLimits\":{\"cpu\":\"500m\",\"memory\":\"2Gi\",\"disk\":\"1G\",\"pids\":\"64\"},"
            "\"env\":{\"A\":\"b\"},\"metadata\":{\"name\":\"x y\"},\"secureAccess\":true,\"platform\":null,"
            "\"extensions\":{\"opensandbox.extensions.a\":\"b\"},\"credentialProxy\":{\"enabled\":false},"
            "\"resourceRequests\":{\"cpu\":\"1\"},\"surprise\":{\"of\":\"tomorrow\"}");
    CHECK(!asked.is_read); /* "x y" is no label's value */
    CHECK_TEXT(asked.refusal.code, "SANDBOX::INVALID_METADATA_LABEL");
    AUTO_ASKED good =
        ask(",\"timeout\":600,\"resourceLimits\":{\"cpu\":\"500m\",\"memory\":\"2Gi\",\"disk\":\"1G\",\"pids\":\"64\"},"
            "\"env\":{\"A\":\"b\"},\"metadata\":{\"example.com/name\":\"x_y\"},\"secureAccess\":true,"
            "\"extensions\":{\"opensandbox.extensions.a\":\"b\"},\"surprise\":{\"of\":\"tomorrow\"}");
    CHECK(good.is_read && good.wanted.max_lifetime_s == 600);
    CHECK(good.wanted.resources.cpu_milli == 500 && good.wanted.resources.memory_mb == 2048);
    CHECK(good.wanted.resources.disk_mb == 954 && good.wanted.resources.pids == 64);
    CHECK_TEXT(json_string_value(json_object_get(good.wanted.env, "A")), "b");
}

static void test_images(void)
{
    AUTO_ASKED exact = ask("{\"image\":{\"uri\":\"python:3.12\"},\"entrypoint\":[\"a\"],\"resourceLimits\":{}}");
    CHECK_TEXT(exact.wanted.template_name, "python:3.12");
    AUTO_ASKED mapped = ask_with(" alpine*=small , */python:*=python:3.12,*=base", "");
    CHECK_TEXT(mapped.wanted.template_name, "base");
    AUTO_ASKED first = ask_with("*:3.11=first,*=base", "");
    CHECK_TEXT(first.wanted.template_name, "first");
    AUTO_ASKED none = ask_with("alpine*=small", "");
    CHECK(!none.is_read && strstr(none.refusal.err.message, "base, python:3.12"));
    AUTO_ASKED with_auth = ask("{\"image\":{\"uri\":\"x/y\",\"auth\":{\"username\":\"u\",\"password\":\"pw-secret\"}},"
                               "\"entrypoint\":[\"a\"],\"resourceLimits\":{}}");
    char *kept = json_dumps(with_auth.wanted.origin, 0);
    CHECK(with_auth.is_read && !strstr(kept, "pw-secret"));
    free(kept);
}

static void test_map(void)
{
    struct error err = {0};
    CHECK(opensandbox_check_images("*=base", &err) && opensandbox_check_images("", &err));
    CHECK(opensandbox_check_images(" a*=b , c:1=d:2,", &err));
    CHECK(!opensandbox_check_images("a*", &err) && !opensandbox_check_images("=b", &err));
    CHECK(!opensandbox_check_images("a=", &err) && !opensandbox_check_images("a=b/c", &err));
}

static void test_start(void)
{
    AUTO_ASKED snapshot = ask("{\"snapshotId\":\"snp_aaaaaaaaaaaaaaaaaaaa\",\"resourceLimits\":{}}");
    CHECK(snapshot.is_read && !snapshot.wanted.entrypoint && json_object_get(snapshot.wanted.origin, "entrypoint"));
    CHECK_TEXT(snapshot.wanted.snapshot, "snp_aaaaaaaaaaaaaaaaaaaa");
    check_refused("{\"snapshotId\":\"other\",\"resourceLimits\":{}}", "SNAPSHOT::NOT_FOUND", "snapshot");
    check_refused("{\"resourceLimits\":{}}", "SANDBOX::INVALID_PARAMETER", "image and snapshotId");
    check_refused(",\"snapshotId\":\"snp_aaaaaaaaaaaaaaaaaaaa\"", "SANDBOX::INVALID_PARAMETER", "exactly one");
    check_refused("{\"image\":\"python\",\"entrypoint\":[\"a\"],\"resourceLimits\":{}}", "SANDBOX::INVALID_PARAMETER",
                  "uri");
    check_refused("{\"image\":{\"uri\":\"a\"},\"resourceLimits\":{}}", "DOCKER::INVALID_ENTRYPOINT", "entrypoint");
    check_refused("{\"image\":{\"uri\":\"a\"},\"entrypoint\":[1],\"resourceLimits\":{}}", "DOCKER::INVALID_ENTRYPOINT",
                  "entrypoint");
    check_refused("{\"image\":{\"uri\":\"a\"},\"entrypoint\":[\"a\"]}", "SANDBOX::INVALID_PARAMETER", "resourceLimits");
}

/* What keeps a container alive is shown, and not run. */
static void test_keep_alive(void)
{
    AUTO_ASKED asked = ask(",\"entrypoint\":[\"tail\",\"-f\",\"/dev/null\"]");
    CHECK(asked.is_read && asked.wanted.entrypoint == NULL);
    AUTO_ASKED other = ask(",\"entrypoint\":[\"tail\",\"-f\",\"/dev/null\",\"/log\"]");
    CHECK(other.is_read && json_array_size(other.wanted.entrypoint) == 4);
    CHECK(json_object_get(other.wanted.origin, "entrypoint") == NULL);
}

static void test_refused(void)
{
    check_refused(",\"timeout\":59", "SANDBOX::INVALID_PARAMETER", "60");
    check_refused(",\"timeout\":\"600\"", "SANDBOX::INVALID_PARAMETER", "timeout");
    check_refused(",\"timeout\":600.5", "SANDBOX::INVALID_PARAMETER", "timeout");
    check_refused(",\"env\":{\"A\":1}", "SANDBOX::INVALID_PARAMETER", "env");
    check_refused(",\"platform\":{\"os\":\"windows\",\"arch\":\"amd64\"}", "SANDBOX::INVALID_PARAMETER", "platform");
    check_refused(",\"platform\":{}", "SANDBOX::INVALID_PARAMETER", "platform");
    check_refused(",\"credentialProxy\":{\"enabled\":true}", "SANDBOX::API_NOT_SUPPORTED", "vault");
    check_refused(",\"secureAccess\":\"yes\"", "SANDBOX::INVALID_PARAMETER", "secureAccess");
    check_refused(",\"extensions\":{\"access.renew.extend.seconds\":\"300\"}", "SANDBOX::API_NOT_SUPPORTED", "renewed");
    check_refused(",\"extensions\":{\"poolRef\":\"p\"}", "KUBERNETES::POOL_NOT_SUPPORTED", "pools");
    check_refused(",\"networkPolicy\":{\"defaultAction\":\"maybe\"}", "SANDBOX::INVALID_PARAMETER", "defaultAction");
    check_refused("{\"image\":{\"uri\":\"a\"},\"entrypoint\":[\"a\"],\"resourceLimits\":{\"gpu\":\"1\"}}",
                  "SANDBOX::INVALID_PARAMETER", "gpu");
    check_refused("{\"image\":{\"uri\":\"a\"},\"entrypoint\":[\"a\"],\"resourceLimits\":{\"cpu\":1}}",
                  "SANDBOX::INVALID_PARAMETER", "cpu");
}

static void test_network(void)
{
    AUTO_ASKED open = ask(",\"networkPolicy\":{}");
    CHECK_TEXT(json_string_value(json_object_get(open.wanted.network, "egress")), "none"); /* as the setting says */
    AUTO_ASKED some = ask(",\"networkPolicy\":{\"defaultAction\":\"deny\",\"egress\":[{\"action\":\"allow\",\"target\":"
                          "\"pypi.org\"}]}");
    CHECK_TEXT(json_string_value(json_object_get(some.wanted.network, "egress")), "allow");
}

static void test_volumes(void)
{
    AUTO_ASKED good =
        ask(",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/a\",\"pvc\":{\"claimName\":\"data\",\"storage\":\"1Gi\","
            "\"createIfNotExists\":false},\"subPath\":\"x/y\",\"readOnly\":true},"
            "{\"name\":\"b\",\"mountPath\":\"/b\",\"host\":{\"path\":\"/srv\"}}]");
    CHECK(good.is_read && json_array_size(good.wanted.volumes) == 2);
    char *text = json_dumps(good.wanted.volumes, JSON_SORT_KEYS | JSON_COMPACT);
    CHECK_TEXT(text, "[{\"kind\":\"named\",\"must_exist\":true,\"path\":\"/a\",\"read_only\":true,\"size_mb\":1024,"
                     "\"source\":\"data\",\"sub_path\":\"x/y\"},"
                     "{\"kind\":\"host\",\"path\":\"/b\",\"read_only\":false,\"size_mb\":0,\"source\":\"/srv\","
                     "\"sub_path\":\"\"}]");
    free(text);
    struct error err = {0};
    CHECK(wanted_check_volumes(good.wanted.volumes, &err));
    check_refused(",\"volumes\":{}", "SANDBOX::INVALID_PARAMETER", "volumes");
    check_refused(",\"volumes\":[{\"mountPath\":\"/a\",\"host\":{\"path\":\"/a\"}}]", "VOLUME::INVALID_NAME", "name");
    check_refused(",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/a\"}]", "VOLUME::INVALID_BACKEND", "exactly one");
    check_refused(",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"a\",\"host\":{\"path\":\"/a\"}}]",
                  "VOLUME::INVALID_MOUNT_PATH", "mountPath");
    check_refused(",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/a\",\"host\":{\"path\":\"a\"}}]",
                  "VOLUME::INVALID_HOST_PATH", "host.path");
    check_refused(",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/a\",\"pvc\":{\"claimName\":\"A_\"}}]",
                  "VOLUME::INVALID_PVC_NAME", "claimName");
    check_refused(
        ",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/a\",\"subPath\":\"/x\",\"pvc\":{\"claimName\":\"a\"}}]",
        "VOLUME::INVALID_SUB_PATH", "subPath");
    check_refused(",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/a\",\"ossfs\":{}}]", "VOLUME::UNSUPPORTED_BACKEND",
                  "ossfs");
    check_refused(",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/a\",\"pvc\":{\"claimName\":\"a\","
                  "\"deleteOnSandboxTermination\":true}}]",
                  "SANDBOX::API_NOT_SUPPORTED", "outlives");
    check_refused(",\"volumes\":[{\"name\":\"a\",\"mountPath\":\"/a\",\"pvc\":{\"claimName\":\"a\"}},"
                  "{\"name\":\"a\",\"mountPath\":\"/b\",\"pvc\":{\"claimName\":\"b\"}}]",
                  "VOLUME::DUPLICATE_NAME", "two");
}

static bool is_label(const char *key, const char *value)
{
    struct osb_refusal refusal = {.code = NULL};
    json_t *metadata = json_pack("{s:s?}", key, value);
    bool is = osb_metadata_check(metadata, true, &refusal);
    json_decref(metadata);
    return is;
}

static void test_labels(void)
{
    char long_name[65] = {0};
    memset(long_name, 'a', 64);
    CHECK(is_label("a", "") && is_label("A-b_c.d", "x") && is_label("example.com/a", "1.0") && is_label("a", NULL));
    CHECK(!is_label(long_name, "x") && is_label(long_name + 1, "x") && !is_label("a", long_name));
    CHECK(!is_label("", "x") && !is_label("-a", "x") && !is_label("a-", "x") && !is_label("a b", "x"));
    CHECK(!is_label("/a", "x") && !is_label("a/", "x") && !is_label("a/b/c", "x") && !is_label("Ex.com/a", "x"));
    CHECK(!is_label("a..b/c", "x") && !is_label("-a/c", "x") && !is_label("a-/c", "x") && !is_label("a./c", "x"));
    CHECK(!is_label("a", "-x") && !is_label("a", "x\xc3\xa9") && !is_label("opensandbox.io/a", "x"));
}

static void check_quantity(const char *text, int64_t expected)
{
    int64_t value = -1;
    CHECK(osb_quantity_parse(text, &value) == (expected >= 0));
    CHECK(expected < 0 || value == expected);
}

static void test_quantities(void)
{
    check_quantity("1", 1000);
    check_quantity("500m", 500);
    check_quantity("0.5", 500);
    check_quantity(".5", 500);
    check_quantity("1.", 1000);
    check_quantity("1.0001", 1001); /* rounded up */
    check_quantity("1k", 1000000);
    check_quantity("1Ki", 1024000);
    check_quantity("0", 0);
    check_quantity("8Pi", INT64_C(9007199254740992000));
    check_quantity("9Pi", -1); /* too much */
    check_quantity("999999999999999999E", -1);
    check_quantity("1234567890123456789", -1);
    check_quantity("", -1);
    check_quantity(".", -1);
    check_quantity("-1", -1);
    check_quantity("1 Gi", -1);
    check_quantity("1gi", -1);
    check_quantity("1e3", -1);
    check_quantity("0x10", -1);
    int64_t mib;
    CHECK(osb_quantity_mib("512Mi", &mib) && mib == 512);
    CHECK(osb_quantity_mib("1", &mib) && mib == 1);
    CHECK(osb_quantity_mib("1M", &mib) && mib == 1);
    CHECK(!osb_quantity_mib("0", &mib));
}

static void check_time(const char *text, int64_t expected)
{
    int64_t at = -1;
    CHECK(osb_time_parse(text, &at) == (expected >= 0));
    CHECK(expected < 0 || at == expected);
}

static void test_times(void)
{
    check_time("2026-01-01T00:00:00Z", INT64_C(1767225600000));
    check_time("2026-01-01T00:00:00.123456+00:00", INT64_C(1767225600123));
    check_time("2026-01-01T02:30:00.1+02:30", INT64_C(1767225600100));
    check_time("2025-12-31T19:00:00-05:00", INT64_C(1767225600000));
    check_time("2026-01-01t00:00:00z", INT64_C(1767225600000));
    check_time("2026-01-01 00:00:00Z", INT64_C(1767225600000));
    check_time("2026-01-01T00:00:00", -1);
    check_time("2026-13-01T00:00:00Z", -1);
    check_time("2026-01-01T00:00:00+24:00", -1);
    check_time("2026-01-01T00:00:00+0000", -1);
    check_time("2026-01-01T00:00:00.Z", -1);
    check_time("1970-01-01T00:00:00+01:00", -1);
    check_time("tomorrow", -1);
    check_time("", -1);
}

int main(void)
{
    test_least();
    test_all();
    test_images();
    test_map();
    test_start();
    test_keep_alive();
    test_refused();
    test_network();
    test_volumes();
    test_labels();
    test_quantities();
    test_times();
    return check_done();
}
