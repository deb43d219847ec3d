/* Where a sandbox writes: a folder of ext4 or btrfs by path, idmapped, and a tmpfs that is its own; over a template
 * with the host's /usr, and over one that is whole. What is on disk has the ids 0..65535, whatever the slot's are. */
#include "tests/unit/sandboxd/isolation/namespaces/life_rig.h"

static const struct rig_start ROOT = {.as_root = true};

static void run(const char *command)
{
    int status = system(command); /* NOLINT: the test's own words */
    if (status != 0)
        fprintf(stderr, "%s: status %d\n", command, status);
    CHECK(status == 0);
}

/* All that an overlay does: copy up, whiteout, an opaque folder, a rename of a folder, links. */
static void use(struct life *life)
{
    CHECK(life_says(life, NULL, "cd /workspace && echo one > x && mkdir d && mv x d/y && cat d/y && stat -c %u:%g d/y",
                    "one\n1000:1000\n"));
    CHECK(life_says(life, &ROOT,
                    "cd /etc && echo more >> shells && tail -n 1 shells && rm profile && ls profile 2>&1 | tail -c 5",
                    "more\ntory\n"));
    CHECK(life_says(life, &ROOT,
                    "mkdir -p /opt/a/b && mv /opt/a /opt/c && rm -r /var/log && mkdir /var/log && ls /opt/c /var/log",
                    "/opt/c:\nb\n\n/var/log:\n"));
    CHECK(life_says(life, &ROOT,
                    "cd /usr/bin && ln true parley-link && ln -s true parley-other && mv false parley-false && "
                    "ls false 2>/dev/null; ls parley-*; stat -c %u:%h parley-link",
                    "parley-false\nparley-link\nparley-other\n0:2\n"));
    CHECK(life_says(life, &ROOT, "chown 65535:7 /workspace/d/y && stat -c %u:%g:%a /workspace/d/y", "65535:7:644\n"));
    CHECK(life_says(life, NULL, "touch /etc/x /usr/x 2>/dev/null; ls /etc/x /usr/x 2>/dev/null", ""));
    CHECK(life_says(life, NULL, "hostname; cat /etc/hostname; grep -c brisk-otter /etc/hosts",
                    "brisk-otter\nbrisk-otter\n1\n"));
    CHECK(life_says(life, NULL, "grep -E ' (/|/usr) ' /proc/self/mounts | cut -d' ' -f3,4 | grep -v userxattr", ""));
}

static void check_on_disk(const char *area)
{
    AUTO_FREE char *path = memory_printf("%s/root/upper/workspace/d/y", area);
    struct stat status;
    CHECK(stat(path, &status) == 0 && status.st_uid == 65535 && status.st_gid == 7);
    AUTO_FREE char *folder = memory_printf("%s/root/upper/workspace/d", area);
    CHECK(stat(folder, &status) == 0 && status.st_uid == 1000 && status.st_gid == 1000);
    AUTO_FREE char *of_root = memory_printf("%s/root/upper/opt/c", area);
    CHECK(stat(of_root, &status) == 0 && status.st_uid == 0);
}

static void test_area(struct isolation_plan plan, const char *area)
{
    struct error err = {0};
    struct isolation_life what = life_standard();
    struct life life;
    what.root_allowed = true;
    AUTO_FD int own = area ? -1 : life_make_tmpfs("64m");
    if (area)
        life_make_area(area);
    plan.area_path = area;
    plan.area_mount = own;
    bool is_made = life_begin(&life, &plan, &what, &err);
    if (!is_made)
        fprintf(stderr, "area %s: %s\n", area ? area : "tmpfs", err.message);
    CHECK(is_made);
    if (!is_made)
        return;
    use(&life);
    if (area)
        check_on_disk(area);
    life_end(&life);
}

/* What one wrote, the next finds, in whatever slot: there is one slot here, but on disk it has no part. */
static void test_again(const char *area)
{
    struct error err = {0};
    struct isolation_plan plan = life_plan();
    struct isolation_life what = life_standard();
    struct life life;
    plan.area_path = area;
    what.hostname = "calm-heron";
    CHECK(life_begin(&life, &plan, &what, &err));
    CHECK(life_says(
        &life, NULL, "hostname; cat /etc/hostname; stat -c %u /workspace/d/y; tail -n 1 /etc/shells; ls /etc/profile",
        "calm-heron\ncalm-heron\n65535\nmore\nls: cannot access '/etc/profile': No such file or directory\n"));
    life_end(&life);
}

/* A hostile area, as of a snapshot: nothing outside is written, and the sandbox comes up. */
static void test_hostile(const char *area)
{
    struct error err = {0};
    struct isolation_plan plan = life_plan();
    struct isolation_life what = life_standard();
    struct life life;
    char bait[] = "/tmp/parley-bait-XXXXXX";
    life_make_area(area);
    CHECK(mkdtemp(bait) != NULL && chmod(bait, 0777) == 0);
    AUTO_FREE char *etc = memory_printf("%s/root/upper/etc", area);
    CHECK(symlink(bait, etc) == 0);
    plan.area_path = area;
    CHECK(life_begin(&life, &plan, &what, &err));
    CHECK(life_says(&life, NULL, "hostname", "brisk-otter\n"));
    life_end(&life);
    CHECK(rmdir(bait) == 0); /* it is as empty as it was */
    /* A pipe in the place of a file keeps nobody waiting. */
    AUTO_FREE char *hosts = memory_printf("%s/hosts", etc);
    CHECK(unlink(etc) == 0 && mkdir(etc, 0755) == 0 && mkfifo(hosts, 0666) == 0);
    CHECK(life_begin(&life, &plan, &what, &err));
    CHECK(life_says(&life, NULL, "hostname; stat -c %F /etc/hosts", "brisk-otter\nfifo\n"));
    life_end(&life);
}

/* A template with a /usr of its own, made of what the scripts here need. */
static void make_whole(const char *path)
{
    AUTO_FREE char *make =
        memory_printf("set -e; mkdir -p %s; cd %s; mkdir -p etc workspace opt var/log tmp proc dev sys usr/bin run; "
                      "chmod 1777 tmp run; "
                      "ln -s usr/bin bin; ln -s usr/lib lib; ln -s usr/lib64 lib64; "
                      "printf '/bin/sh\\n' > etc/shells; touch etc/profile; chown 1000:1000 workspace; "
                      "for p in sh cat stat ls mkdir mv rm tail ln touch chown hostname grep cut true false; do "
                      "q=$(readlink -f $(which $p)); "
                      "cp $q usr/bin/$p; ldd $q | grep -o '/lib[^ ]*' | while read l; do mkdir -p usr$(dirname $l); cp "
                      "-L $l usr$l; done; done",
                      path, path);
    run(make);
}

int main(void)
{
    life_start();
    AUTO_FREE char *image = memory_printf("%s/btrfs.image", life_house.state);
    AUTO_FREE char *btrfs = memory_printf("%s/btrfs", life_house.state);
    AUTO_FREE char *whole = memory_printf("%s/whole", life_house.state);
    AUTO_FREE char *folder = memory_printf("%s/area", life_house.state);
    AUTO_FREE char *folder_whole = memory_printf("%s/area-whole", life_house.state);
    AUTO_FREE char *hostile = memory_printf("%s/area-hostile", life_house.state);
    struct isolation_plan plan = life_plan(), plan_whole = life_plan();
    make_whole(whole);
    plan_whole.lower_root = whole;
    plan_whole.lower_usr = NULL;
    test_area(plan, NULL);
    test_area(plan_whole, NULL);
    test_area(plan, folder);
    test_area(plan_whole, folder_whole);
    test_again(folder);
    test_hostile(hostile);
    CHECK(mkdir(btrfs, 0700) == 0);
    AUTO_FREE char *make =
        memory_printf("truncate -s 256M %s && mkfs.btrfs -q %s > /dev/null && mount -o loop,nosuid,nodev %s %s", image,
                      image, image, btrfs);
    if (system("command -v mkfs.btrfs > /dev/null") == 0) { /* NOLINT */
        run(make);
        AUTO_FREE char *on_btrfs = memory_printf("%s/area", btrfs);
        AUTO_FREE char *whole_on_btrfs = memory_printf("%s/area-whole", btrfs);
        test_area(plan, on_btrfs);
        test_area(plan_whole, whole_on_btrfs);
        test_again(on_btrfs);
        CHECK(umount2(btrfs, 0) == 0);
    } else {
        printf("no mkfs.btrfs: areas on btrfs were not tried\n");
    }
    life_stop();
    return check_done();
}
