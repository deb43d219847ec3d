/* kernelspec_test.c - kernel.json files are found in Jupyter's order and mean what Jupyter says. */
#include "sandboxd/helpers/jupyter/kernelspec.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

static char folder[] = "/tmp/parley-kernelspec-test-XXXXXX";

static void write_spec(const char *where, const char *name, const char *text)
{
    AUTO_FREE char *path = memory_printf("%s/%s/kernels/%s", folder, where, name);
    AUTO_FREE char *file = memory_printf("%s/kernel.json", path);
    CHECK(fd_make_folders(path, 0700, NULL));
    CHECK(fd_write_file(file, 0600, text, strlen(text), NULL));
}

static void test_order(void)
{
    struct error err = {0};
    write_spec("one", "same", "{\"argv\":[\"first\"],\"display_name\":\"First\"}");
    write_spec("two", "same", "{\"argv\":[\"second\"]}");
    write_spec("two", "other",
               "{\"argv\":[\"x\"],\"interrupt_mode\":\"message\",\"metadata\":{\"parley\":{\"transport\":\"tcp\"}}}");
    AUTO(kernelspec) *same = kernelspec_find("same", &err);
    CHECK(same != NULL);
    CHECK_TEXT(same ? kernelspec_title(same) : NULL, "First");
    CHECK(same && !kernelspec_interrupts_by_message(same) && !kernelspec_wants_tcp(same));
    AUTO(kernelspec) *other = kernelspec_find("other", &err);
    CHECK_TEXT(other ? kernelspec_title(other) : NULL, "other");
    CHECK(other && kernelspec_interrupts_by_message(other) && kernelspec_wants_tcp(other));
}

static void test_refused(void)
{
    static const char *const BAD[] = {"[]", "{}", "{\"argv\":[]}", "{\"argv\":[1]}", "{\"argv\":\"x\"}", "{"};
    struct error err = {0};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        write_spec("one", "bad", BAD[i]);
        CHECK(kernelspec_find("bad", &err) == NULL);
        CHECK(err.kind == ERROR_INVALID);
    }
    static const char *const NAMES[] = {"", "..", "../one/kernels/same", "a b", "-x", "nothing"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        CHECK(kernelspec_find(NAMES[i], &err) == NULL);
        CHECK(err.kind == ERROR_NOT_FOUND);
        CHECK(strstr(err.message, "other") != NULL); /* those that there are */
    }
}

/* Where no folder is named so, its language will do. */
static void test_languages(void)
{
    struct error err = {0};
    write_spec("two", "zz-go", "{\"argv\":[\"g\"],\"language\":\"Go\"}");
    write_spec("two", "named", "{\"argv\":[\"n\"],\"language\":\"same\"}");
    AUTO(kernelspec) *go = kernelspec_find("go", &err);
    CHECK_TEXT(go ? go->name : NULL, "zz-go");
    CHECK(go && strstr(go->folder, "/two/kernels/zz-go") != NULL);
    AUTO(kernelspec) *same = kernelspec_find("same", &err); /* the name comes first */
    CHECK_TEXT(same ? kernelspec_title(same) : NULL, "First");
}

static void test_list(void)
{
    json_t *list = kernelspec_list();
    AUTO_FREE char *text = json_dumps(json_object_get(list, "kernelspecs"), JSON_COMPACT);
    AUTO_FREE char *same =
        memory_printf("{\"name\":\"same\",\"display_name\":\"First\",\"language\":\"\",\"resource_dir\":"
                      "\"%s/one/kernels/same\"}",
                      folder);
    CHECK(text && strstr(text, same) != NULL);
    CHECK(text && strstr(text, "\"other\"") != NULL);
    CHECK(text && strstr(text, "\"bad\"") == NULL && strstr(text, "/two/kernels/same") == NULL);
    json_decref(list);
}

static void test_arguments(void)
{
    struct error err = {0};
    write_spec("opt/share/jupyter", "words",
               "{\"argv\":[\"{prefix}/bin/k\",\"-f={connection_file}\",\"{resource_dir}/x\",\"{other}\",\"{\"],"
               "\"env\":{\"KS_TEST_A\":\"${KS_TEST_B}:$KS_TEST_B:${KS_TEST_NONE}:$$:${\",\"KS_TEST_NUMBER\":1}}");
    AUTO_FREE char *path = memory_printf("%s/opt/share/jupyter", folder);
    CHECK(setenv("JUPYTER_PATH", path, 1) == 0 && setenv("KS_TEST_B", "b", 1) == 0);
    AUTO(kernelspec) *spec = kernelspec_find("words", &err);
    CHECK(spec != NULL);
    if (spec == NULL)
        return;
    char **arguments = kernelspec_arguments(spec, "/c.json");
    AUTO_FREE char *program = memory_printf("%s/opt/bin/k", folder);
    AUTO_FREE char *resource = memory_printf("%s/opt/share/jupyter/kernels/words/x", folder);
    CHECK_TEXT(arguments[0], program);
    CHECK_TEXT(arguments[1], "-f=/c.json");
    CHECK_TEXT(arguments[2], resource);
    CHECK_TEXT(arguments[3], "{other}");
    CHECK_TEXT(arguments[4], "{");
    CHECK(arguments[5] == NULL);
    kernelspec_arguments_free(arguments);
    kernelspec_set_environment(spec);
    CHECK_TEXT(getenv("KS_TEST_A"), "b:b:${KS_TEST_NONE}:$$:${");
    CHECK(getenv("KS_TEST_NUMBER") == NULL);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    AUTO_FREE char *paths = memory_printf("relative:%s/one:%s/two", folder, folder);
    CHECK(setenv("JUPYTER_PATH", paths, 1) == 0);
    test_order();
    test_refused();
    test_languages();
    test_list();
    test_arguments();
    CHECK(fd_remove_tree(folder, NULL));
    return check_done();
}
