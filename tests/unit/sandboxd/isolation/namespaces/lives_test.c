/* What a sandbox becomes: commands as root with a short list of capabilities and nothing beyond it, volumes that are
 * nobody else's way out, open files, limits that change while it lives. */
#include "tests/unit/sandboxd/isolation/namespaces/life_rig.h"

static char search[] = "PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";
static char *const VARIABLES[] = {search, NULL};
static const struct rig_start ROOT = {.as_root = 1, .variables = VARIABLES};

static struct isolation_plan plan_with(int area)
{
    struct isolation_plan plan = life_plan();
    plan.area_mount = area;
    return plan;
}

static bool make(struct life *life, const struct isolation_life *what)
{
    struct error err = {0};
    AUTO_FD int area = life_make_tmpfs("128m");
    const struct isolation_plan plan = plan_with(area);
    bool is_made = life_begin(life, &plan, what, &err);
    if (!is_made)
        fprintf(stderr, "%s\n", err.message);
    CHECK(is_made);
    return is_made;
}

static void check_fails(struct life *life, const char *script, const char *why)
{
    AUTO_FREE char *all = memory_printf(
        "{ %s; } > /dev/null 2> /tmp/why && echo done; grep -o '%s' /tmp/why | head -1; rm /tmp/why", script, why);
    AUTO_FREE char *expected = memory_printf("%s\n", why);
    CHECK(life_says(life, &ROOT, all, expected));
}

/* --- root --- */

static void check_what_root_may(struct life *life)
{
    CHECK(life_says(life, &ROOT,
                    "id -u; id -g; id -G; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'",
                    "0\n0\n0\nCapInh:0000000000000000\nCapPrm:00000000800404fb\nCapEff:00000000800404fb\n"
                    "CapBnd:00000000800404fb\nCapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n"));
    CHECK(life_says(life, &ROOT,
                    "cd /root && echo secret > s && chmod 600 s && chown 1000:1000 s && cat s && stat -c %u:%g s",
                    "secret\n1000:1000\n"));
    CHECK(life_says(life, NULL, "cat /root/s 2>/dev/null || echo no; id -u", "no\n1000\n"));
    CHECK(life_says(
        life, &ROOT,
        "setpriv --reuid 33 --regid 33 --clear-groups sh -c 'id -u; grep CapEff /proc/self/status | tr -d \"\\t\"'",
        "33\nCapEff:0000000000000000\n"));
    CHECK(life_says(life, &ROOT, "mkdir -p /srv/r/bin && chroot / true && cp /usr/bin/true /srv/r/bin/ && echo kept",
                    "kept\n"));
    CHECK(life_says(life, &ROOT, "mknod /tmp/p p && stat -c %F /tmp/p && rm /tmp/p", "fifo\n"));
    CHECK(life_says(
        life, &ROOT,
        "python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 80)); print(s.getsockname()[1])'",
        "80\n"));
    CHECK(life_says(
        life, &ROOT,
        "sleep 1000 & a=$!; setpriv --reuid 1000 --clear-groups sleep 1000 & sleep 0.1; kill $a $! && echo ended",
        "ended\n"));
    CHECK(life_says(life, &ROOT,
                    "cp /usr/bin/cat /tmp/c && setcap cap_net_raw+ep /tmp/c 2>/dev/null; chmod u+s /tmp/c && stat -c "
                    "%a /tmp/c && rm /tmp/c",
                    "4755\n"));
}

static void check_what_root_may_not(struct life *life)
{
    check_fails(life, "mount -t tmpfs none /mnt", "permission denied");
    check_fails(life, "umount /dev/shm", "must be superuser");
    check_fails(life, "unshare -U true", "Operation not permitted");
    check_fails(life, "unshare -m true", "Operation not permitted");
    check_fails(life, "nsenter -t 1 -m true", "Permission denied");
    check_fails(life, "mknod /tmp/sda b 8 0", "Operation not permitted");
    check_fails(life, "mknod /tmp/mem c 1 1", "Operation not permitted");
    check_fails(life, "hostname other", "must be root");
    check_fails(life, "ls /proc/1/fd", "Permission denied");
    check_fails(life, "cat /proc/1/maps", "Permission denied");
    check_fails(life, "ls -L /proc/1/root", "Permission denied");
    check_fails(life, "echo 1 > /proc/sys/net/ipv4/ip_forward", "Read-only file system");
    check_fails(life, "echo 1 > /proc/sys/kernel/panic", "Read-only file system");
    check_fails(life,
                "python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, "
                "struct.pack(\"16sh14x\", b\"lo\", 0))'",
                "Operation not permitted");
    check_fails(life, "ulimit -Hn 1000000", "Operation not permitted");
    check_fails(life, "renice -n -5 $$", "Permission denied");
    check_fails(life, "chattr +i /etc/shells", "Operation not permitted");
    check_fails(life, "python3 -c 'import os; os.setxattr(\"/etc/shells\", \"trusted.x\", b\"1\")'",
                "Operation not permitted");
    CHECK(life_says(life, &ROOT, "kill -9 1; kill -STOP 1; kill -TERM 1; sleep 0.1; echo there", "there\n"));
    CHECK(life_says(life, &ROOT, "wc -c < /proc/kallsyms; cat /proc/kcore 2>/dev/null | head -c 1 | wc -c; ls /sys",
                    "0\n0\n"));
    /* What root set up is of no use to others: nosuid, no_new_privs. */
    CHECK(life_says(life, &ROOT, "cp /usr/bin/id /srv/id && chmod 6755 /srv/id", ""));
    CHECK(life_says(life, NULL, "/srv/id -u; /srv/id -ru; rm -f /srv/id 2>/dev/null; ls /srv", "1000\n1000\nid\nr\n"));
}

/* A package is installed, by dpkg and by apt from a repository of files, with a user of its own and its set-uid. */
static void check_packages(struct life *life)
{
    CHECK(life_says(life, &ROOT,
                    "set -e; mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin /tmp/p/var/lib/hello /tmp/repo; cd /tmp; "
                    "printf '#!/bin/sh\\necho hello\\n' > p/usr/bin/hello; chmod 4755 p/usr/bin/hello; "
                    "printf 'Package: hello-parley\\nVersion: 1\\nArchitecture: all\\nMaintainer: x "
                    "<x@x>\\nDescription: x\\n' > p/DEBIAN/control; "
                    "printf '#!/bin/sh\\nset -e\\nchown 1000:33 /var/lib/hello\\n[ -p /var/lib/hello/p ] || mkfifo "
                    "/var/lib/hello/p\\n' > p/DEBIAN/postinst; "
                    "chmod 755 p/DEBIAN/postinst; dpkg-deb --root-owner-group -b p repo/hello.deb > /dev/null; "
                    "mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers; touch "
                    "/var/lib/dpkg/status /var/lib/dpkg/available; "
                    "dpkg -i repo/hello.deb > log 2>&1 || { cat log; exit 1; }; hello; stat -c %a:%u /usr/bin/hello; "
                    "stat -c %u:%g /var/lib/hello; dpkg -r hello-parley > log 2>&1 || cat log; hash -r; hello "
                    "2>/dev/null || echo gone",
                    "hello\n4755:0\n1000:33\ngone\n"));
    CHECK(life_says(
        life, &ROOT,
        "set -e; cd /tmp/repo; { dpkg-deb -f hello.deb; echo Filename: ./hello.deb; echo Size: $(stat -c %s "
        "hello.deb); "
        "echo SHA256: $(sha256sum hello.deb | cut -d' ' -f1); echo; } > Packages; "
        "mkdir -p /etc/apt/apt.conf.d /etc/apt/preferences.d /var/lib/apt/lists/partial "
        "/var/cache/apt/archives/partial /var/log/apt; "
        "echo 'deb [trusted=yes] file:/tmp/repo ./' > /etc/apt/sources.list; grep -q _apt /etc/passwd || "
        "echo '_apt:x:42:65534::/nonexistent:/usr/sbin/nologin' >> /etc/passwd; "
        "{ apt-get update && apt-get install -y hello-parley; } > /tmp/log 2>&1 || cat /tmp/log; hash -r; hello; "
        "grep -i -c 'denied\\|not permitted' /tmp/log || true",
        "hello\n0\n"));
}

static void test_root(void)
{
    struct life life;
    struct isolation_life what = life_standard();
    what.root_allowed = true;
    if (make(&life, &what)) {
        check_what_root_may(&life);
        check_what_root_may_not(&life);
        check_packages(&life);
        life_end(&life);
    }
    what.root_allowed = false;
    if (make(&life, &what)) {
        CHECK(life_says(&life, &ROOT, "id -u", "this sandbox runs no commands as root; leave out \"user\""));
        CHECK(life_says(&life, NULL, "id -u; grep CapBnd /proc/self/status | tr -d '\\t'",
                        "1000\nCapBnd:0000000000000000\n"));
        life_end(&life);
    }
}

/* --- a user of the template, open files --- */

static void test_user_and_files(void)
{
    struct life life;
    struct isolation_life what = life_standard();
    what.uid = 4711;
    what.gid = 33;
    what.open_files = 100;
    if (!make(&life, &what))
        return;
    CHECK(life_says(&life, NULL, "id -u; id -g; ulimit -Sn; ulimit -Hn", "4711\n33\n100\n100\n"));
    const struct rig_start other = {.open_files = 333}, least = {.open_files = 16};
    CHECK(life_says(&life, &other, "ulimit -Sn; ulimit -Hn; ulimit -n 334 2>/dev/null || echo no", "333\n333\nno\n"));
    CHECK(life_says(&life, &other, "ulimit -n", "333\n"));
    CHECK(life_says(&life, NULL, "ulimit -n", "100\n"));
    CHECK(life_says(&life, &least, "ulimit -n", "16\n"));
    CHECK(life_says(&life, NULL, "df -B1 --output=size /dev/shm | tail -1 | tr -d ' '", "33554432\n"));
    life_end(&life);
}

/* --- volumes --- */

static struct isolation_volume folder_of(const char *source, const char *path)
{
    return (struct isolation_volume){.source = source, .path = path};
}

static void test_volumes(void)
{
    struct life life;
    struct isolation_life what = life_standard();
    AUTO_FREE char *named = memory_printf("%s/named", life_house.state);
    AUTO_FREE char *host = memory_printf("%s/host", life_house.state);
    AUTO_FREE char *file = memory_printf("%s/host/of-others", life_house.state);
    CHECK(mkdir(named, 0755) == 0 && chown(named, 1000, 1000) == 0);
    CHECK(mkdir(host, 0755) == 0 && chown(host, 54321, 54322) == 0);
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, "host\n", 5) == 5 && close(fd) == 0);
    what.root_allowed = true;
    what.volume_count = 3;
    what.volumes[0] = folder_of(named, "/data/deep/named");
    what.volumes[1] = folder_of(host, "/workspace/host");
    what.volumes[1].is_squashed = true;
    what.volumes[1].owner = 54321;
    what.volumes[2] = folder_of(named, "/mnt");
    what.volumes[2].read_only = true;
    if (!make(&life, &what))
        return;
    CHECK(
        life_says(&life, NULL,
                  "cd /data/deep/named && echo one > x && cat /mnt/x && stat -c %u /mnt/x ; touch /mnt/y; rm -f /mnt/x",
                  "one\n1000\ntouch: cannot touch '/mnt/y': Read-only file system\nrm: cannot remove '/mnt/x': "
                  "Read-only file system\n"));
    CHECK(life_says(&life, &ROOT,
                    "cd /data/deep/named && cp /usr/bin/id id && chmod 4755 id && mkdir -p sub && chown 7:8 sub; stat "
                    "-c %u:%g:%a id sub",
                    "0:0:4755\n7:8:755\n"));
    CHECK(life_says(&life, NULL, "/data/deep/named/id -u", "1000\n")); /* nosuid */
    CHECK(
        life_says(&life, NULL,
                  "stat -c %u:%g /workspace/host /workspace/host/of-others; cd /workspace/host && echo mine > mine && "
                  "stat -c %u:%g mine; "
                  "cat of-others; echo x >> of-others",
                  "1000:1000\n65534:65534\n1000:1000\nhost\n/bin/sh: 1: cannot create of-others: Permission denied\n"));
    CHECK(life_says(
        &life, &ROOT,
        "cd /workspace/host; touch root 2>&1; chown 0 mine 2>&1; chmod 777 of-others 2>&1; rm -f of-others 2>&1; true",
        "touch: cannot touch 'root': Value too large for defined data type\n"
        "chown: changing ownership of 'mine': Value too large for defined data type\n"
        "chmod: changing permissions of 'of-others': Value too large for defined data type\n"
        "rm: cannot remove 'of-others': Value too large for defined data type\n"));
    CHECK(life_says(&life, NULL, "stat -c %u /data /data/deep", "0\n0\n"));
    life_end(&life);
    struct stat status;
    AUTO_FREE char *mine = memory_printf("%s/mine", host);
    AUTO_FREE char *id = memory_printf("%s/id", named);
    CHECK(stat(mine, &status) == 0 && status.st_uid == 54321 && status.st_gid == 54322);
    CHECK(stat(id, &status) == 0 && status.st_uid == 0 &&
          (status.st_mode & 04000)); /* why the pool is closed to users */
    CHECK(stat(file, &status) == 0 && status.st_uid == 0);
}

static void check_refused(const struct isolation_volume *volume, const char *expected)
{
    struct error err = {0};
    struct life life;
    struct isolation_life what = life_standard();
    AUTO_FD int area = life_make_tmpfs("64m");
    const struct isolation_plan plan = plan_with(area);
    /* A link that is in the way, as a snapshot may hold. */
    CHECK(mkdirat(area, "root/upper/srv", 0755) == 0 && symlinkat("/", area, "root/upper/srv/link") == 0);
    what.volume_count = 1;
    what.volumes[0] = *volume;
    CHECK(!life_begin(&life, &plan, &what, &err));
    if (strstr(err.message, expected) == NULL)
        fprintf(stderr, "\"%s\" is not in \"%s\"\n", expected, err.message);
    CHECK(strstr(err.message, expected) != NULL && err.kind == ERROR_INVALID);
}

static void test_volumes_refused(void)
{
    static const char *const CLOSED[] = {"/proc", "/proc/sys", "/dev", "/dev/shm/x", "/sys", "/sys/fs"};
    struct isolation_volume volume = folder_of(life_house.state, "/data");
    for (size_t i = 0; i < sizeof CLOSED / sizeof CLOSED[0]; i++) {
        volume.path = CLOSED[i];
        check_refused(&volume, "nothing is mounted in");
    }
    volume.path = "/srv/link/data";
    check_refused(&volume, "no folder at /srv/link/data");
    volume.path = "/etc/shells/data";
    check_refused(&volume, "no folder at /etc/shells/data");
    volume.path = "/data";
    volume.is_squashed = true; /* root's */
    check_refused(&volume, "owner or group is root");
    volume.is_squashed = false;
    volume.source = "/etc/passwd";
    check_refused(&volume, "must be a folder");
    volume.source = "/no/such/folder";
    check_refused(&volume, "volume /data");
}

/* --- limits at run time --- */

static void test_limits(void)
{
    struct error err = {0};
    struct life life;
    struct isolation_life what = life_standard();
    struct isolation_limits limits = {.cpu_milli = 1000, .pids = 20, .memory_bytes = 128 << 20};
    static const char TAKE[] = "python3 -c 'b = bytearray(90 << 20); print(\"has\", flush=True); input()'";
    if (!make(&life, &what))
        return;
    const struct rig_start with_stdin = {.with_stdin = 1};
    struct front_init_message message;
    int fds[FI_FDS_MAX];
    CHECK(isolation_namespaces.limit(LIFE_SLOT, &limits, &err));
    CHECK(rig_start_shell(&life.rig, "taker", &with_stdin, TAKE) &&
          rig_expect(&life.rig, FI_STARTED, "taker", &message, fds));
    AUTO_FREE char *has = rig_read(fds[FI_FD_STDOUT_PIPE], 4);
    CHECK_TEXT(has, "has\n");
    limits.memory_bytes = 64 << 20;
    CHECK(!isolation_namespaces.limit(LIFE_SLOT, &limits, &err) && err.kind == ERROR_INVALID);
    CHECK(strstr(err.message, "are in use") != NULL);
    limits.memory_bytes = 256 << 20; /* it lives, and more can be had */
    CHECK(isolation_namespaces.limit(LIFE_SLOT, &limits, &err));
    CHECK(life_says(&life, NULL, "python3 -c 'print(len(bytearray(120 << 20)))'", "125829120\n"));
    limits.memory_bytes = 160 << 20;
    CHECK(isolation_namespaces.limit(LIFE_SLOT, &limits, &err));
    CHECK(life_says(&life, NULL, "python3 -c 'print(len(bytearray(300 << 20)))' 2> /dev/null; echo $?", "137\n"));
    CHECK(life_says(&life, NULL, "for i in $(seq 40); do sleep 1 & done 2>&1 | grep -o -m 1 'annot fork'",
                    "annot fork\n"));
    limits.pids = 100;
    CHECK(isolation_namespaces.limit(LIFE_SLOT, &limits, &err));
    CHECK(life_says(&life, NULL, "for i in $(seq 40); do sleep 0.1 & done; wait; echo all", "all\n"));
    for (size_t i = 0; i < FI_FDS_MAX; i++)
        close(fds[i]);
    life_end(&life);
    CHECK(!isolation_namespaces.limit(LIFE_SLOT, &limits, &err) && err.kind == ERROR_NOT_FOUND);
}

int main(void)
{
    life_start();
    test_root();
    test_user_and_files();
    test_volumes();
    test_volumes_refused();
    test_limits();
    life_stop();
    return check_done();
}
