/* The three jails, as attacks: what works out here fails in there; what they are for works. As root. */
#include "sandboxd/templates/tool/jail.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { WITHIN_S = 120 };

static char above[] = "/tmp/parley-jail-XXXXXX";
static char rootfs[64], secret[64];
static const char SHELL[] = "/bin/sh";

/* What was said, a line each; the result. */
struct heard {
    char lines[8192];
    int end;
    struct error err;
};

static void listen_to(const struct jail_plan *plan, unsigned seconds, struct heard *heard)
{
    AUTO_JAIL jail = JAIL_NONE;
    struct message message;
    *heard = (struct heard){.end = -1};
    if (!jail_start(&jail, plan, seconds, &heard->err))
        return;
    while ((heard->end = jail_next(&jail, &message, &heard->err)) > 0) {
        const char *text = message.type == MESSAGE_FAILED ? message.as.failed.message : message.as.text;
        size_t length = strlen(heard->lines);
        snprintf(heard->lines + length, sizeof heard->lines - length, "%s\n", text);
    }
}

static void say(const struct jail_inside *inside, const char *text, bool is_so)
{
    struct message message = {.type = MESSAGE_TEXT};
    snprintf(message.as.text, sizeof message.as.text, "%s %s (%s)", text, is_so ? "yes" : "no", strerrordesc_np(errno));
    message_send(inside->channel, &message);
}

/* --- PARSE --- */

/* Each of these works for the test itself. */
static void attack(const struct jail_inside *inside)
{
    char *const words[] = {(char *)(uintptr_t)SHELL, NULL};
    say(inside, "reads the host's files:", open("/etc/passwd", O_RDONLY) >= 0);
    say(inside, "reads by relative names:", open("../../../../etc/passwd", O_RDONLY) >= 0);
    say(inside, "leaves the rootfs:",
        openat(inside->rootfs, "../secret", O_RDONLY) >= 0 ||
            openat(inside->rootfs, "../../../../../../etc/passwd", O_RDONLY) >= 0);
    say(inside, "makes a socket:", socket(AF_INET, SOCK_STREAM, 0) >= 0);
    say(inside, "makes a UNIX socket:", socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
    say(inside, "mounts:", mount("x", "/", "tmpfs", 0, NULL) == 0);
    say(inside, "makes a device:", mknodat(inside->rootfs, "null", S_IFCHR | 0666, makedev(1, 3)) == 0);
    say(inside, "starts a process:", fork() >= 0);
    say(inside, "executes:", execv(SHELL, words) == 0);
    say(inside, "becomes another:", setresuid(5, 5, 5) == 0);
    say(inside, "signals:", kill(-1, 0) == 0);
    AUTO_FD int made = openat(inside->rootfs, "made", O_WRONLY | O_CREAT, 0640);
    say(inside, "writes into the rootfs:", made >= 0 && fchown(made, 1234, 65535) == 0 && write(made, "x", 1) == 1);
}

static void test_parse(void)
{
    struct heard heard;
    const struct jail_plan plan = {.kind = JAIL_PARSE, .rootfs = rootfs, .file_bytes = 1 << 20, .work = attack};
    AUTO_FREE char *made = memory_printf("%s/made", rootfs);
    struct stat status;
    listen_to(&plan, WITHIN_S, &heard);
    CHECK(heard.end == 0);
    char *rest = heard.lines;
    size_t lines = 0;
    for (char *line; (line = strsep(&rest, "\n")) && *line; lines++) {
        bool is_wanted = strncmp(line, "writes", 6) == 0;
        if ((strstr(line, ": yes") != NULL) != is_wanted)
            fprintf(stderr, "%s\n", line);
        CHECK((strstr(line, ": yes") != NULL) == is_wanted);
    }
    CHECK(lines == 12);
    /* Its ids are those on disk: 0..65535. */
    CHECK(stat(made, &status) == 0 && status.st_uid == 1234 && status.st_gid == 65535);
}

static void sleep_long(const struct jail_inside *inside)
{
    (void)inside;
    for (volatile unsigned long i = 0;; i++) {
    }
}

static void crash(const struct jail_inside *inside)
{
    (void)inside;
    abort();
}

static void talk_nonsense(const struct jail_inside *inside)
{
    (void)!write(inside->channel, "nonsense", 8);
}

static void test_ends(void)
{
    struct heard heard;
    struct jail_plan plan = {.kind = JAIL_PARSE, .rootfs = rootfs, .file_bytes = 1 << 20, .work = sleep_long};
    listen_to(&plan, 1, &heard);
    CHECK(heard.end == -1 && heard.err.kind == ERROR_TIMEOUT);
    plan.work = crash;
    listen_to(&plan, WITHIN_S, &heard);
    CHECK(heard.end == -1 && heard.err.kind == ERROR_INTERNAL);
    plan.work = talk_nonsense;
    listen_to(&plan, WITHIN_S, &heard);
    CHECK(heard.end == -1 && heard.err.kind == ERROR_INVALID);
    plan.rootfs = "/no/such/folder";
    listen_to(&plan, WITHIN_S, &heard);
    CHECK(heard.end == -1 && strstr(heard.err.message, "/no/such/folder"));
}

/* --- FETCH and CONFIGURE --- */

static void run_shell(const struct jail_inside *inside)
{
    char *const words[] = {(char *)(uintptr_t)SHELL, (char *)(uintptr_t) "-c", inside->context, NULL};
    char *const variables[] = {(char *)(uintptr_t) "PATH=/usr/sbin:/usr/bin:/bin", NULL};
    execve(SHELL, words, variables);
}

static void run_script(enum jail_kind kind, const char *script, struct heard *heard)
{
    AUTO_FREE char *copy = memory_string(script);
    const struct jail_plan plan = {
        .kind = kind, .rootfs = rootfs, .file_bytes = 1 << 20, .work = run_shell, .context = copy};
    listen_to(&plan, WITHIN_S, heard);
}

static void test_fetch(void)
{
    struct heard heard;
    AUTO_FREE char *script =
        memory_printf("id -u; cat %s; cat /etc/shadow /root/.bashrc; ls /home /tmp /root /run; touch /usr/x; "
                      "echo fine > /target/fetched; mount -t tmpfs x /mnt; mount --bind / /target; "
                      "kill -9 -1; readlink /proc/1/exe; echo end; exit 3",
                      secret);
    run_script(JAIL_FETCH, script, &heard);
    CHECK(heard.end == -1 && strstr(heard.err.message, "status 3"));
    CHECK(strncmp(heard.lines, "0\n", 2) == 0 && strstr(heard.lines, "\nend\n"));
    CHECK(strstr(heard.lines, "SECRET") == NULL && strstr(heard.lines, "cat: /etc/shadow:") &&
          strstr(heard.lines, "mount: /target:"));
    CHECK(strstr(heard.lines, "/usr/x") != NULL); /* "cannot touch" */
    AUTO_FREE char *fetched = memory_printf("%s/fetched", rootfs);
    CHECK(access(fetched, F_OK) == 0 && access("/usr/x", F_OK) < 0);
    run_script(JAIL_FETCH, "wc -l < /proc/net/dev", &heard);
    CHECK(heard.end == 0 && atoi(heard.lines) > 3); /* two lines of head, lo, and the host's */
}

static void test_configure(void)
{
    struct heard heard;
    size_t size = 0;
    AUTO_FREE char *busybox = fd_read_file("/bin/busybox", 16 << 20, &size, NULL);
    AUTO_FREE char *bin = memory_printf("%s/bin", rootfs);
    AUTO_FREE char *sh = memory_printf("%s/bin/sh", rootfs);
    if (busybox == NULL || memmem(busybox, 4096, "/ld-", 4)) {
        printf("no static busybox: CONFIGURE is not tested\n");
        return;
    }
    CHECK(mkdir(bin, 0755) == 0 && fd_write_file(sh, 0755, busybox, size, NULL));
    run_script(JAIL_CONFIGURE,
               "while read -r line; do echo \"net $line\"; done < /proc/net/dev; echo x > /configured; "
               "for f in /*; do echo \"at $f\"; done; echo end",
               &heard);
    CHECK(heard.end == 0 && strstr(heard.lines, "\nend\n"));
    CHECK(strstr(heard.lines, "net lo:") && strstr(heard.lines, "eth") == NULL && strstr(heard.lines, "ens") == NULL);
    CHECK(strstr(heard.lines, "at /bin\n") && strstr(heard.lines, "at /usr\n") == NULL);
    AUTO_FREE char *configured = memory_printf("%s/configured", rootfs);
    CHECK(access(configured, F_OK) == 0);
}

int main(void)
{
    if (geteuid() != 0)
        check_skip("needs root");
    if (mkdtemp(above) == NULL)
        return 1;
    snprintf(rootfs, sizeof rootfs, "%s/rootfs", above);
    snprintf(secret, sizeof secret, "%s/secret", above);
    CHECK(mkdir(rootfs, 0755) == 0 && chmod(above, 0755) == 0);
    CHECK(fd_write_file(secret, 0644, "SECRET\n", 7, NULL));
    test_parse();
    test_ends();
    test_fetch();
    test_configure();
    CHECK(fd_remove_tree(above, NULL));
    return check_done();
}
