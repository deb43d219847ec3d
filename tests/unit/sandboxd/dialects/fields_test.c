/* The fields of a JSON body: none that nobody asked for, and of the right kind. */
#include "sandboxd/dialects/fields.h"

#include "tests/unit/check.h"

#include <string.h>

static const char *const NAMES[] = {"one", "two", NULL};

static void test_only(const char *json, bool is_good)
{
    struct error err = {0};
    json_t *object = json_loads(json, 0, NULL);
    CHECK(object);
    CHECK(fields_only(object, NAMES, &err) == is_good);
    CHECK(is_good || (err.kind == ERROR_INVALID && strstr(err.message, "\"three\"")));
    json_decref(object);
}

static void test_flag(const char *json, bool before, bool is_good, bool after)
{
    struct error err = {0};
    json_t *object = json_loads(json, 0, NULL);
    bool value = before;
    CHECK(fields_flag(object, "one", &value, &err) == is_good);
    CHECK(value == after && (is_good || err.kind == ERROR_INVALID));
    json_decref(object);
}

int main(void)
{
    test_only("{}", true);
    test_only("{\"two\":1}", true);
    test_only("{\"two\":1,\"one\":null}", true);
    test_only("{\"two\":1,\"three\":null}", false);
    test_flag("{}", true, true, true);
    test_flag("{\"one\":false}", true, true, false);
    test_flag("{\"one\":true}", false, true, true);
    test_flag("{\"one\":1}", true, false, true);
    test_flag("{\"one\":null}", false, false, false);
    return check_done();
}
