/* drivers_test.c - names of languages, and what is started for them. */
#include "tests/unit/sandboxd/helpers/drivers/driver_rig.h"

#include <sys/mman.h>

static void test_names(void)
{
    static const struct {
        const char *given, *is;
    } names[] = {{"python", "python"},   {"py", "python"},     {"python3", "python"}, {"sh", "bash"},
                 {"node", "javascript"}, {"js", "javascript"}, {"ts", "typescript"},  {"jupyter:ir", "jupyter:ir"}};
    char to[DRIVER_NAME_BYTES];
    struct error err = {0};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CHECK(driver_language(names[i].given, to, &err));
        CHECK_TEXT(to, names[i].is);
    }
    static const char *const wrong[] = {"", "ruby", "Python", "python ", "jupyter:", "jupyter:../x", "jupyter:-c"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(!driver_language(wrong[i], to, &err));
        CHECK(err.kind == ERROR_INVALID && strstr(err.message, "typescript") != NULL);
    }
}

static void test_starts(void)
{
    struct error err = {0};
    for (const char *const *language = driver_languages(); *language; language++) {
        struct driver_start context, script;
        CHECK(driver_context(*language, &context, &err) && driver_script(*language, &script, &err));
        CHECK(context.arguments[0] != NULL && script.arguments[0] != NULL);
        bool is_python = strcmp(*language, "python") == 0;
        CHECK((context.zygote == DRIVER_ZYGOTE_CONTEXTS) == is_python &&
              (script.zygote == DRIVER_ZYGOTE_SCRIPTS) == is_python);
        CHECK((context.zygote_arguments[0] != NULL) == is_python);
        size_t bytes = 0;
        for (size_t i = 0; context.arguments[i]; i++)
            bytes += strlen(context.arguments[i]) + 1;
        CHECK(bytes < 180); /* they stand in a title of 255 bytes, with the language's name */
    }
    struct driver_start start;
    CHECK(!driver_script("jupyter:ir", &start, &err) && err.kind == ERROR_INVALID);
    CHECK(!driver_context("ruby", &start, &err) && err.kind == ERROR_INVALID);
}

static void test_program(void)
{
    struct error err = {0};
    int fd = driver_program("python", &err);
    CHECK(fd >= 0 && fd == driver_program("bash", &err));
    int seals = fcntl(fd, F_GET_SEALS);
    CHECK((seals & (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)) == (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW));
    CHECK(write(fd, "x", 1) < 0 && ftruncate(fd, 0) < 0);
    CHECK(driver_program("ruby", &err) < 0 && err.kind == ERROR_INVALID);
}

/* What the template lacks is said. */
static void test_missing(void)
{
    char *nothing[] = {(char[]){"PATH=/nonexistent"}, NULL};
    if (access("/usr/bin/node", X_OK) == 0 || access("/usr/local/bin/node", X_OK) == 0 ||
        access("/usr/bin/nodejs", X_OK) == 0)
        return; /* it is found all the same */
    struct rig rig;
    rig_start(&rig, "javascript", nothing);
    json_t *frame = rig_frame(&rig);
    CHECK_TEXT(json_string_value(json_object_get(json_object_get(frame, "failed"), "message")),
               "no node in this template");
    json_decref(frame);
    CHECK(rig_end(&rig) == 1);
}

int main(void)
{
    test_names();
    test_starts();
    test_program();
    test_missing();
    return check_done();
}
