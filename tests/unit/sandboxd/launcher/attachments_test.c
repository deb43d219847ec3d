/* Volumes as attacks: places that are the sandbox's own, folders that are not of the list, links that lead out of it
 * (and are changed after the look), Parley's state, root's folders; and what may be had. */
#include "tests/unit/sandboxd/launcher/stage.h"

static char *allowed, *hosts;

static struct fl_prepare of_host(const char *source, const char *sub_path, const char *path, bool read_only)
{
    struct fl_prepare prepare_one = {.volume_count = 1};
    struct fl_volume *volume = &prepare_one.volumes[0];
    volume->kind = FL_VOLUME_HOST;
    volume->read_only = read_only;
    CHECK(text_copy(volume->source, sizeof volume->source, source));
    CHECK(text_copy(volume->sub_path, sizeof volume->sub_path, sub_path));
    CHECK(text_copy(volume->path, sizeof volume->path, path));
    return prepare_one;
}

static bool opened(const struct fl_prepare *asked, struct attachments *attachments, struct error *err)
{
    struct attachments_rules rules = {
        .hosts = hosts, .state = state, .storage = &disk.storage, .default_bytes = 1 << 20};
    return attachments_open(&rules, asked, attachments, err);
}

static bool refused(struct fl_prepare asked, enum error_kind kind, const char *word)
{
    struct attachments attachments;
    struct error err = {0};
    bool is_refused = !opened(&asked, &attachments, &err) && err.kind == kind && strstr(err.message, word);
    if (!is_refused)
        fprintf(stderr, "%s at %s: %s\n", asked.volumes[0].source, asked.volumes[0].path, err.message);
    CHECK(attachments.count == 0 || !is_refused);
    return is_refused;
}

static char *below(const char *name)
{
    return memory_printf("%s/%s", allowed, name);
}

static void test_places(void)
{
    static const char *const OWN[] = {"/",    "/proc", "/proc/x", "/dev", "/dev/shm", "/sys",   "/etc",
                                      "/usr", "/bin",  "/sbin",   "/lib", "/lib64",   "/lib/x", "/usr/local/x"};
    for (size_t i = 0; i < sizeof OWN / sizeof OWN[0]; i++)
        CHECK(refused(of_host(allowed, "", OWN[i], true), ERROR_INVALID, "the sandbox's own"));
    struct fl_prepare two = of_host(allowed, "", "/data", true);
    two.volumes[1] = of_host(allowed, "", "/data/deep", true).volumes[0];
    two.volume_count = 2;
    CHECK(refused(two, ERROR_INVALID, "contain each other"));
    memcpy(two.volumes[1].path, "/data\0\0\0\0", 10);
    CHECK(refused(two, ERROR_INVALID, "contain each other"));
}

static void test_links(void)
{
    AUTO_FREE char *inside = below("inside");
    AUTO_FREE char *out = below("out");
    AUTO_FREE char *up = below("inside/up");
    AUTO_FREE char *through = below("out/etc");
    CHECK(mkdir(inside, 0755) == 0 && symlink("/", out) == 0 && symlink("..", up) == 0);
    CHECK(access(through, F_OK) == 0); /* the attack works where nobody looks */
    CHECK(refused(of_host(out, "", "/data", true), ERROR_INVALID, "without links"));
    CHECK(refused(of_host(through, "", "/data", true), ERROR_INVALID, "without links"));
    CHECK(refused(of_host(allowed, "out", "/data", true), ERROR_INVALID, "without links"));
    CHECK(refused(of_host(allowed, "out/etc", "/data", true), ERROR_INVALID, "without links"));
    CHECK(refused(of_host(inside, "up/inside", "/data", true), ERROR_INVALID, "without links")); /* even to itself */
    CHECK(refused(of_host(allowed, "missing", "/data", true), ERROR_INVALID, "No such file"));
    AUTO_FREE char *file = below("file");
    CHECK(fd_write_file(file, 0644, "x", 1, NULL));
    CHECK(refused(of_host(file, "", "/data", true), ERROR_INVALID, "Not a directory"));
}

/* What is mounted is what was looked at, whatever its path leads to by then. */
static void test_descriptor(void)
{
    struct attachments attachments;
    struct error err = {0};
    AUTO_FREE char *inside = below("inside");
    AUTO_FREE char *aside = below("aside");
    struct stat looked_at;
    struct stat mounted;
    struct fl_prepare asked = of_host(allowed, "inside", "/data", true);
    CHECK(stat(inside, &looked_at) == 0 && opened(&asked, &attachments, &err));
    CHECK(rename(inside, aside) == 0 && symlink("/etc", inside) == 0);
    struct isolation_life life = {.volume_count = 0};
    attachments_tell(&attachments, &life);
    CHECK(life.volume_count == 1 && life.volumes[0].read_only && life.volumes[0].is_squashed);
    CHECK_TEXT(life.volumes[0].path, "/data");
    CHECK(stat(life.volumes[0].source, &mounted) == 0 && mounted.st_ino == looked_at.st_ino);
    attachments_close(&attachments);
    CHECK(unlink(inside) == 0 && rename(aside, inside) == 0);
}

static void test_who_may(void)
{
    struct attachments attachments;
    struct error err = {0};
    AUTO_FREE char *read_only = memory_printf("%s/read", top);
    AUTO_FREE char *beside = memory_printf("%s-beside", allowed);
    AUTO_FREE char *users = below("users");
    CHECK(mkdir(read_only, 0755) == 0 && mkdir(beside, 0755) == 0 && mkdir(users, 0755) == 0);
    CHECK(chown(users, 4711, 4711) == 0 && chown(read_only, 4711, 4711) == 0);
    CHECK(refused(of_host("/etc", "", "/data", true), ERROR_FORBIDDEN, "volume_hosts allows"));
    CHECK(refused(of_host(beside, "", "/data", true), ERROR_FORBIDDEN, "volume_hosts allows"));
    CHECK(refused(of_host(read_only, "", "/data", false), ERROR_FORBIDDEN, "read-only (volume_hosts)"));
    CHECK(refused(of_host(allowed, "inside", "/data", false), ERROR_FORBIDDEN, "belongs to root"));
    struct fl_prepare asked = of_host(users, "", "/data", false);
    CHECK(opened(&asked, &attachments, &err) && attachments.list[0].owner == 4711 && !attachments.list[0].read_only);
    attachments_close(&attachments);
    asked = of_host(allowed, "inside", "/data", true); /* root's, to read: nobody's inside */
    CHECK(opened(&asked, &attachments, &err) && attachments.list[0].owner == 65534);
    attachments_close(&attachments);
    hosts[0] = '\0';
    CHECK(refused(asked, ERROR_FORBIDDEN, "volume_hosts allows"));
}

static void test_state_and_kernel(void)
{
    AUTO_FREE char *former = hosts;
    AUTO_FREE char *deep = memory_printf("%s/deep", state);
    CHECK(mkdir(deep, 0755) == 0);
    char all[] = "/tmp,/proc:ro,/sys:ro";
    hosts = all;
    CHECK(refused(of_host("/tmp", top + 5, "/data", true), ERROR_FORBIDDEN, "state of Parley's"));
    CHECK(refused(of_host(state, "", "/data", true), ERROR_FORBIDDEN, "state of Parley's"));
    CHECK(refused(of_host(deep, "", "/data", true), ERROR_FORBIDDEN, "state of Parley's"));
    CHECK(refused(of_host("/proc/self", "", "/data", true), ERROR_INVALID, "without links"));
    CHECK(refused(of_host("/proc/1", "", "/data", true), ERROR_FORBIDDEN, "the kernel's"));
    CHECK(refused(of_host("/sys/kernel", "", "/data", true), ERROR_FORBIDDEN, "the kernel's"));
    hosts = NULL;
}

static void test_named(void)
{
    struct attachments attachments;
    struct error err = {0};
    struct fl_prepare asked = {.volume_count = 1};
    struct fl_volume *volume = &asked.volumes[0];
    AUTO_FREE char *made = memory_printf("%s/a/b", top);
    char a[STORAGE_NAME_BYTES], b[STORAGE_NAME_BYTES];
    attachments_disk_name(a, "o1", "name");
    attachments_disk_name(b, "o1n", "ame");
    CHECK(strcmp(a, b) != 0 && strlen(a) == 34);
    volume->kind = FL_VOLUME_NAMED;
    memcpy(volume->owner, "o1", 3);
    memcpy(volume->source, "name", 5);
    memcpy(volume->path, "/data", 6);
    CHECK(text_format(volume->sub_path, sizeof volume->sub_path, "%s/a/b", top + 5)); /* the stage's volume is /tmp */
    CHECK(opened(&asked, &attachments, &err));
    struct stat status;
    CHECK(stat(made, &status) == 0 && status.st_uid == 1000);
    CHECK(fstat(attachments.list[0].fd, &status) == 0 && !attachments.list[0].is_squashed);
    CHECK_TEXT(attachments.list[0].disk_name, a);
    attachments_close(&attachments);
    AUTO_FREE char *planted = memory_printf("%s/a/etc", top);
    CHECK(symlink("/etc", planted) == 0); /* by one who has the volume */
    CHECK(text_format(volume->sub_path, sizeof volume->sub_path, "%s/a/etc", top + 5));
    CHECK(refused(asked, ERROR_INVALID, "no folder"));
    CHECK(text_format(volume->sub_path, sizeof volume->sub_path, "%s/a/etc/parley-planted", top + 5));
    CHECK(refused(asked, ERROR_INVALID, "no folder") && access("/etc/parley-planted", F_OK) < 0);
}

static void test_setting(void)
{
    struct error err = {0};
    CHECK(attachments_check_hosts(NULL, &err) && attachments_check_hosts("/srv,/data/:ro", &err));
    CHECK(!attachments_check_hosts("srv", &err) && strstr(err.message, "\"srv\"") != NULL);
    CHECK(!attachments_check_hosts("/srv,/", &err) && !attachments_check_hosts("/:ro", &err));
}

int main(void)
{
    make_stage();
    allowed = memory_printf("%s/allowed", top);
    hosts = memory_printf("%s/read:ro,%s/,/no/such", top, allowed);
    CHECK(mkdir(allowed, 0755) == 0);
    test_setting();
    test_places();
    test_links();
    test_descriptor();
    test_who_may();
    test_state_and_kernel();
    test_named();
    free(allowed);
    strike_stage();
    return check_done();
}
