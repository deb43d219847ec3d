/* node.json and the incarnation: what is not exactly right is refused, with a sentence that helps and shows no key. */
#include "sandboxd/launcher/identity.h"

#include "shared/base/fd.h"
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
    CHECK(read_of("{\"node_key\":\"AAEC", "not JSON") == ERROR_INVALID);
    CHECK(read_of("[]", "object") == ERROR_INVALID);
}

static void test_incarnation(void)
{
    struct error err = {0};
    uint64_t number = 0;
    unlink(path);
    CHECK(identity_raise_incarnation(path, &number, &err) && number == 1);
    CHECK(identity_raise_incarnation(path, &number, &err) && number == 2);
    CHECK(fd_write_file(path, 0600, "", 0, NULL));
    CHECK(!identity_raise_incarnation(path, &number, &err) && err.kind == ERROR_INVALID && number == 2);
    CHECK(fd_write_file(path, 0600, "12x\n", 4, NULL));
    CHECK(!identity_raise_incarnation(path, &number, &err));
}

int main(void)
{
    keys_start();
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    test_node_file();
    test_incarnation();
    unlink(path);
    return check_done();
}
