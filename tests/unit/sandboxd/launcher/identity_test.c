/* node.json, a re-keying and the incarnation: what is not exactly right is refused, with a sentence that helps and
 * shows no key; and nothing has changed then. */
#include "sandboxd/launcher/identity.h"

#include "shared/base/fd.h"
#include "shared/base/text.h"
#include "tests/unit/check.h"

#include <sys/stat.h>

static char path[] = "/tmp/parley-identity-XXXXXX";
static const char KEY[] = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

static enum error_kind read_of(const char *text, const char *word)
{
    struct error err = {0};
    struct identity identity = {.node = "untouched"};
    CHECK(fd_write_file(path, 0600, text, strlen(text), NULL));
    if (identity_read(&identity, path, &err)) {
        CHECK(identity.node_key.bytes[1] == 1 && identity.node_key.bytes[31] == 31);
        return ERROR_NONE;
    }
    CHECK_TEXT(identity.node, "untouched");
    CHECK(strstr(err.message, word) != NULL);
    CHECK(strstr(err.message, "AAEC") == NULL);
    return err.kind;
}

static void test_node_file(void)
{
    char text[512];
    static const char FORMAT[] = "{\"deployment\":\"%s\",\"node\":\"n1\",\"epoch\":1,\"node_key\":\"%s\","
                                 "\"negotiator_url\":\"http://127.0.0.1:8700\"}";
    snprintf(text, sizeof text, FORMAT, "dep", KEY);
    CHECK(read_of(text, "") == ERROR_NONE);
    struct error err = {0};
    struct identity identity = {0};
    CHECK(chmod(path, 0640) == 0);
    CHECK(!identity_read(&identity, path, &err) && err.kind == ERROR_FORBIDDEN);
    CHECK(unlink(path) == 0);
    CHECK(!identity_read(&identity, path, &err) && err.kind == ERROR_NOT_FOUND && strstr(err.message, "enrol"));
    snprintf(text, sizeof text, FORMAT, "", KEY);
    CHECK(read_of(text, "deployment") == ERROR_INVALID);
    snprintf(text, sizeof text, FORMAT, "../dep", KEY);
    CHECK(read_of(text, "deployment") == ERROR_INVALID);
    snprintf(text, sizeof text, FORMAT, "dep", "AAECAwQ");
    CHECK(read_of(text, "node_key") == ERROR_INVALID);
    snprintf(text, sizeof text, FORMAT, "dep", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9");
    CHECK(read_of(text, "node_key") == ERROR_INVALID); /* stray bits */
    CHECK(read_of("{\"deployment\":\"d\",\"node\":\"n\",\"negotiator_url\":\"\",\"epoch\":0}", "epoch") ==
          ERROR_INVALID);
    CHECK(read_of("{\"deployment\":\"d\",\"node\":\"n\",\"negotiator_url\":\"\"}", "epoch") == ERROR_INVALID);
    CHECK(read_of("{\"node_key\":\"AAEC", "not JSON") == ERROR_INVALID);
    CHECK(read_of("[]", "object") == ERROR_INVALID);
}

static struct enrol_pair negotiator;

/* As enrolment leaves it. */
static struct identity enrolled(void)
{
    struct identity identity = {.node = "n1", .deployment = "dep_1", .negotiator_url = "http://h:1", .epoch = 4};
    struct key master;
    key_random(&master);
    key_random(&identity.node_key);
    enrol_negotiator_pair(&negotiator, &master);
    enrol_node_pair(&identity.pair);
    enrol_negotiator_hash(&negotiator, identity.negotiator_hash);
    identity.has_pair = true;
    return identity;
}

static void test_write(void)
{
    struct error err = {0};
    struct identity identity = enrolled(), read = {.epoch = 0};
    struct stat status;
    CHECK(identity_write(&identity, path, &err) && identity_read(&read, path, &err));
    CHECK(memcmp(&identity, &read, sizeof read) == 0);
    CHECK(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600);
    identity.has_pair = false;
    CHECK(identity_write(&identity, path, &err) && identity_read(&read, path, &err) && !read.has_pair);
    identity_done(&read);
}

/* What the negotiator would send to a node that is `as`. */
static struct fl_rekey rekey_of(const struct identity *as, const char *node, uint32_t from, uint32_t to,
                                const struct enrol_pair *sender)
{
    struct error err = {0};
    struct fl_rekey rekey = {.epoch = to};
    struct enrol_grant grant = {.epoch = to};
    uint8_t bound[ENROL_HASH_BYTES];
    memset(grant.node_key.bytes, 0x77, KEY_BYTES);
    CHECK(text_copy(grant.node, sizeof grant.node, node) &&
          text_copy(grant.deployment, sizeof grant.deployment, as->deployment));
    enrol_rekey_bound(bound, as->node, from, to);
    json_t *json = enrol_seal(sender, as->pair.public_key, bound, &grant, &err);
    CHECK(json != NULL && enrol_box_read(&rekey.box, json, &err));
    json_decref(json);
    return rekey;
}

static void test_rekey(void)
{
    struct error err = {0};
    struct identity identity = enrolled(), before = identity, read = {.epoch = 0};
    struct enrol_pair other;
    enrol_node_pair(&other);
    CHECK(identity_write(&identity, path, &err));
    struct fl_rekey wrong[] = {
        rekey_of(&identity, "n1", 3, 5, &negotiator), /* from another epoch than ours: one that was sent before */
        rekey_of(&identity, "n2", 4, 5, &negotiator),
        rekey_of(&identity, "n1", 4, 5, &other), /* not the negotiator we enrolled with */
        rekey_of(&identity, "n1", 4, 6, &negotiator),
        rekey_of(&identity, "n1", 4, 5, &negotiator),
    };
    wrong[3].epoch = 5;        /* told another epoch than it is boxed for */
    wrong[4].box.box[9] ^= 64; /* changed on the way */
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!identity_rekey(&identity, &wrong[i], path, &err) && err.kind == ERROR_UNAUTHENTICATED);
        CHECK(memcmp(&identity, &before, sizeof identity) == 0);
    }
    struct fl_rekey same = rekey_of(&identity, "n1", 4, 4, &negotiator);
    CHECK(!identity_rekey(&identity, &same, path, &err) && err.kind == ERROR_CONFLICT);
    struct fl_rekey good = rekey_of(&identity, "n1", 4, 5, &negotiator);
    CHECK(!identity_rekey(&identity, &good, "/nonexistent/node.json", &err)); /* not durable: not taken */
    CHECK(memcmp(&identity, &before, sizeof identity) == 0);
    CHECK(identity_read(&read, path, &err) && read.epoch == 4);
    CHECK(identity_rekey(&identity, &good, path, &err));
    CHECK(identity.epoch == 5 && identity.node_key.bytes[3] == 0x77 && identity.has_pair);
    CHECK(identity_read(&read, path, &err) && memcmp(&identity, &read, sizeof read) == 0);
    CHECK(!identity_rekey(&identity, &good, path, &err) && err.kind == ERROR_CONFLICT); /* once more: no */
    identity.has_pair = false;
    CHECK(!identity_rekey(&identity, &good, path, &err) && strstr(err.message, "enrol"));
}

static void test_incarnation(void)
{
    struct error err = {0};
    uint64_t number = 0;
    unlink(path);
    CHECK(identity_raise_incarnation(path, 9, &number, &err) && number == 9);
    CHECK(identity_raise_incarnation(path, 9, &number, &err) && number == 10);
    CHECK(fd_write_file(path, 0600, "", 0, NULL));
    CHECK(!identity_raise_incarnation(path, 9, &number, &err) && err.kind == ERROR_INVALID && number == 10);
    CHECK(fd_write_file(path, 0600, "12x\n", 4, NULL));
    CHECK(!identity_raise_incarnation(path, 9, &number, &err));
}

int main(void)
{
    keys_start();
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    test_node_file();
    test_write();
    test_rekey();
    test_incarnation();
    unlink(path);
    return check_done();
}
