/* keeper_test.c - the keeper in a whole slot, with the test as launcher and front, and a few lines of Python as the
 * monitor: from its order to its end, connections both ways, and what a monitor that turned hostile can reach. */
#include "sandboxd/isolation/guest/guest.h"

#include "sandboxd/isolation/namespaces/seccomp.h"
#include "sandboxd/launcher_init/launcher_init.h"
#include "shared/base/clock.h"
#include "tests/unit/sandboxd/isolation/namespaces/life_rig.h"

#include <netinet/in.h>

static const char LETTER[] = "{\"sandbox\":\"sbx_0123\"}";

/* Reads the letter, says that it is ready, and answers each connection with the letter and what came. */
static const char ECHO[] = "import socket,sys,threading\n"
                           "s=socket.socket(fileno=0)\n"
                           "letter=s.recv(65536)\n"
                           "def serve(c):\n"
                           "  said=c.recv(100)\n"
                           "  try: socket.send_fds(c,[letter+b'|'],[0]); c.sendall(b'a descriptor went with it')\n"
                           "  except PermissionError: c.sendall(letter+b'|')\n"
                           "  c.sendall(said); c.close()\n"
                           "print('guest ready',flush=True)\n"
                           "while True:\n"
                           "  data,fds,_,_=socket.recv_fds(s,16,1)\n"
                           "  if not data: sys.exit(0)\n"
                           "  threading.Thread(target=serve,args=(socket.socket(fileno=fds[0]),)).start()\n";

/* The same behind a port of its network namespace; ready is said by a packet. */
static const char PORT[] = "import socket,sys\n"
                           "s=socket.socket(fileno=0)\n"
                           "letter=s.recv(65536)\n"
                           "l=socket.create_server(('127.0.0.1',4477))\n"
                           "s.send(b'1')\n"
                           "while True:\n"
                           "  c,_=l.accept(); c.sendall(letter+b'|'+c.recv(100)+sys.argv[1].encode()); c.close()\n";

/* What it can reach, a word each, as its last line before it dies: the launcher hears it as the error. */
static const char HOSTILE[] =
    "import os,socket,sys,ctypes,signal\n"
    "libc=ctypes.CDLL(None,use_errno=True)\n"
    "got=[]\n"
    "def attempt(name,what):\n"
    "  try:\n"
    "    if what(): got.append(name)\n"
    "  except OSError: pass\n"
    "attempt('shadow',lambda: open('/etc/shadow').read())\n"
    "attempt('host-root',lambda: os.path.exists('/home') or os.path.exists('/etc'))\n"
    "attempt('other-pids',lambda: [p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1,os.getpid())])\n"
    "attempt('keeper-memory',lambda: open('/proc/1/mem','rb'))\n"
    "attempt('keeper-root',lambda: os.listdir('/proc/1/cwd'))\n"
    "attempt('keeper-trace',lambda: libc.ptrace(16,1,0,0)==0)\n"
    "attempt('keeper-kill',lambda: os.kill(1,signal.SIGKILL) or False)\n"
    "attempt('network',lambda: socket.create_connection(('10.0.0.1',80),1))\n"
    "attempt('interfaces',lambda: len(socket.if_nameindex())>1)\n"
    "attempt('bundle-write',lambda: open('/bundle/x','w'))\n"
    "attempt('usr-write',lambda: open('/usr/x','w'))\n"
    "for at in ('/usr','/bundle'):\n" /* it may mount: what then? */
    "  libc.mount(None,at.encode(),None,32|4096,None)\n"
    "  attempt('remounted-write'+at,lambda: open(at+'/x','w'))\n"
    "  attempt('remounted-chmod'+at,lambda: os.chmod(at,0o777) or True)\n"
    "  attempt('remounted-mkdir'+at,lambda: os.mkdir(at+'/d') or True)\n"
    "attempt('remounted-program',lambda: open('/usr/bin/env','r+b'))\n"
    "attempt('disk',lambda: libc.mount(b'/dev/vda',b'/tmp',b'ext4',0,None)==0)\n"
    "attempt('node',lambda: os.mknod('/tmp/n',0o20666,os.makedev(1,1)) or True)\n"
    "attempt('cgroup',lambda: libc.mount(b'none',b'/tmp',b'cgroup2',0,None)==0 and "
    "[d for d in os.listdir('/tmp') if d.startswith('s39')])\n"
    "attempt('core-pattern',lambda: open('/proc/sys/kernel/core_pattern','w'))\n"
    "attempt('sysrq',lambda: open('/proc/sysrq-trigger','w').write('h'))\n"
    "attempt('setuid-out',lambda: os.setuid(65536) or True)\n"
    "attempt('bpf',lambda: libc.syscall(321,0,0,0)==0 or ctypes.get_errno() not in (1,38))\n"
    "attempt('io-uring',lambda: libc.syscall(425,8,0)>=0)\n"
    "attempt('keyring',lambda: libc.syscall(250,0,-3,0)>=0)\n"
    "attempt('module',lambda: libc.syscall(175,0,0,0)==0 or ctypes.get_errno()!=1)\n"
    "attempt('raw',lambda: socket.socket(socket.AF_PACKET,socket.SOCK_RAW))\n"
    "print('reached:'+','.join(got),flush=True)\n"
    "sys.exit(7)\n";

static struct guest_host host = GUEST_HOST_NONE_INIT;

static void open_host(void)
{
    char path[1024];
    struct error err = {0};
    size_t size = 0;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    CHECK(length > 0);
    path[length] = '\0';
    strcpy(strrchr(path, '/'), "/../bin/parley-keeper");
    AUTO_FREE char *bytes = fd_read_file(path, 1 << 24, &size, &err);
    CHECK(bytes != NULL);
    host.keeper = bytes ? fd_sealed_memfd("parley-keeper", bytes, size, &err) : -1;
    CHECK(host.keeper >= 0 && fchmod(host.keeper, 0511) == 0);
    host.seccomp = seccomp_build(SECCOMP_MONITOR, &err);
    host.folder = memory_printf("%s/bundle", life_house.state);
    CHECK(host.seccomp >= 0 && mkdir(host.folder, 0755) == 0);
}

static const char *const *python(const char *script, const char *argument)
{
    static const char *arguments[] = {"/usr/bin/python3", "-I", "-S", "-c", NULL, NULL, NULL};
    arguments[4] = script;
    arguments[5] = argument;
    return arguments;
}

static bool raise_guest(struct life *life, const struct guest_order *order, struct error *err)
{
    int area = life_make_tmpfs("64m");
    struct isolation_plan plan = life_plan();
    struct isolation_life what = life_standard();
    plan.area_mount = area;
    what.letter = LETTER;
    *life = (struct life){.sandbox = ISOLATION_NONE, .rig = {.connection = -1}};
    snprintf(life->rig.folder, sizeof life->rig.folder, "%s", life_house.state);
    bool is_up = guest_begin(&host, order, &plan, &life->sandbox, err);
    close(area);
    if (is_up && !life_raise(life, &plan, &what, err)) {
        life_end(life);
        return false;
    }
    return is_up;
}

/* Asks for a connection and talks to whoever is there. */
static bool answers(struct life *life, uint64_t number, const char *expected)
{
    struct front_init_message message = {.type = FI_DIAL};
    int fds[FI_FDS_MAX];
    size_t count = 0;
    char said[256] = "";
    message.as.dial = (struct fi_dial){.number = number, .family = FI_FAMILY_GUEST};
    CHECK(rig_send(&life->rig, &message, -1));
    if (rig_receive(&life->rig, &message, fds, &count) != 1 || message.type != FI_DIALED || count != 1)
        return false;
    AUTO_FD int connection = fds[0];
    struct pollfd wait = {.fd = connection, .events = POLLOUT};
    CHECK(message.as.dialed.number == number && poll(&wait, 1, RIG_PATIENCE_MS) == 1);
    CHECK(write(connection, "hello", 5) == 5);
    for (size_t at = 0; at < sizeof said - 1;) {
        wait.events = POLLIN;
        ssize_t got = poll(&wait, 1, RIG_PATIENCE_MS) == 1 ? read(connection, said + at, sizeof said - 1 - at) : 0;
        if (got <= 0)
            break;
        at += (size_t)got;
    }
    CHECK_TEXT(said, expected);
    return true;
}

static void expect_current(struct life *life)
{
    struct front_init_message message;
    rig_connect(&life->rig);
    CHECK(rig_expect(&life->rig, FI_CURRENT, "", &message, NULL));
}

/* Linux 6.16. */
static bool kernel_refuses_descriptors(void)
{
    const int off = 0;
    AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return setsockopt(fd, SOL_SOCKET, 83, &off, sizeof off) == 0;
}

static void test_connections(void)
{
    struct life life;
    struct error err = {0};
    if (!kernel_refuses_descriptors())
        return; /* the echo would say that one went with it */
    const struct guest_order order = {.arguments = python(ECHO, NULL)};
    bool is_up = raise_guest(&life, &order, &err);
    CHECK(is_up);
    if (!is_up) {
        fprintf(stderr, "%s\n", err.message);
        return;
    }
    expect_current(&life);
    CHECK(answers(&life, 1, "{\"sandbox\":\"sbx_0123\"}|hello") &&
          answers(&life, 2, "{\"sandbox\":\"sbx_0123\"}|hello"));
    expect_current(&life); /* another front */
    CHECK(answers(&life, 3, "{\"sandbox\":\"sbx_0123\"}|hello"));

    struct front_init_message message = {.type = FI_DIAL};
    message.as.dial = (struct fi_dial){.number = 4, .port = 80, .family = 4};
    CHECK(rig_send(&life.rig, &message, -1) && rig_expect(&life.rig, FI_DIALED, rig_id(&message), &message, NULL));
    CHECK(message.as.dialed.error_number == EPROTONOSUPPORT);
    CHECK(rig_start_shell(&life.rig, "c1", &(struct rig_start){0}, "true"));
    CHECK(rig_expect(&life.rig, FI_REFUSED, "c1", &message, NULL) && message.as.refused.error.kind == ERROR_INVALID);

    CHECK(rig_terminate(&life.rig, 10000) && life_wait(life.sandbox.init)); /* Python dies of SIGTERM */
    life_end(&life);
}

static void test_port(void)
{
    struct life life;
    struct error err = {0};
    const struct guest_order order = {.arguments = python(PORT, "{memory_mib}"), .port = 4477, .starts_late = true};
    bool is_up = raise_guest(&life, &order, &err);
    CHECK(is_up);
    if (!is_up)
        return;
    expect_current(&life);
    CHECK(answers(&life, 1, "{\"sandbox\":\"sbx_0123\"}|hello512"));
    life_end(&life);
}

static void test_deadline(void)
{
    struct life life;
    struct error err = {0};
    const struct guest_order order = {.arguments = python(ECHO, NULL)};
    CHECK(raise_guest(&life, &order, &err));
    expect_current(&life);
    struct front_init_message message = {.type = FI_DEADLINE};
    message.as.deadline.boot_ns = clock_boot_ns() + 1;
    CHECK(rig_send(&life.rig, &message, -1) && life_wait(life.sandbox.init));
    life_end(&life);
}

static void test_failures(void)
{
    struct life life;
    struct error err = {0};
    const struct guest_order bad = {.arguments = python("import sys; print('no',flush=True); sys.exit(3)", NULL)};
    CHECK(!raise_guest(&life, &bad, &err) && strstr(err.message, "(exit 3)") && strstr(err.message, ": no"));
    const char *const nothing[] = {"/bundle/monitor", NULL};
    const struct guest_order none = {.arguments = nothing};
    CHECK(!raise_guest(&life, &none, &err) && strstr(err.message, "execute: /bundle/monitor: No such file"));
}

/* First what can be had outside, so that each attempt is one: as root of the host all of it would be. */
static void test_hostile_monitor(void)
{
    struct life life;
    struct error err = {0};
    const struct guest_order order = {.arguments = python(HOSTILE, NULL)};
    CHECK(access("/etc/shadow", R_OK) == 0 && access("/home", F_OK) == 0);
    CHECK(!raise_guest(&life, &order, &err));
    const char *reached = strstr(err.message, "reached:");
    CHECK_TEXT(reached, "reached:");
}

int main(void)
{
    life_start();
    open_host();
    test_connections();
    test_port();
    test_deadline();
    test_failures();
    test_hostile_monitor();
    life_stop();
    return check_done();
}
