/* probe.c - what this host gives for ways out: tried in two namespaces of a process of its own. */
#include "sandboxd/network/network_internal.h"

#include "shared/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct networks_options OPTIONS = {
    .state = "/probe", .net = "100.126.0.0/20", .servers = "9.9.9.9", .shared_folder = "/dev/shm", .egress_uid = 1};

/* All that a sandbox with names and networks needs, on a host that is a namespace of this process. */
static bool try_all(struct error *err)
{
    static const struct fl_network RULES = {
        .mode = FL_NETWORK_ALLOW, .net_count = 1, .nets = {{.address = 0x08080808, .prefix = 32}}, .names = "a.example"};
    if (unshare(CLONE_NEWNET) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a network namespace");
    AUTO(networks) *networks = networks_open(&OPTIONS, err);
    if (!networks)
        return false;
    AUTO_FD int where = networks_take(networks, err);
    AUTO(network) *network = network_new(networks, 0);
    bool is_done = where >= 0 && network_apply(network, where, &RULES, err);
    unlink(networks->forwarding_file);
    return is_done;
}

static _Noreturn void try_in_child(int to)
{
    struct error why = {0};
    bool is_done = try_all(&why);
    if (!is_done)
        (void)!write(to, why.message, strnlen(why.message, sizeof why.message));
    _exit(is_done ? 0 : 1);
}

bool networks_probe(char *detail, size_t size)
{
    int ends[2];
    char why[ERROR_MESSAGE_BYTES] = "";
    if (geteuid() != 0 || pipe2(ends, O_CLOEXEC) < 0) {
        snprintf(detail, size, "needs root");
        return false;
    }
    pid_t pid = fork();
    if (pid == 0)
        try_in_child(ends[1]);
    close(ends[1]);
    AUTO_FD int end = ends[0];
    int status = 1;
    (void)!read(end, why, sizeof why - 1);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    bool is_whole = pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!is_whole)
        snprintf(detail, size, "%.140s; needs nf_tables with nat, fib, ct and reject, and veth (CAP_NET_ADMIN)", why);
    else
        snprintf(detail, size, "links, nftables inside and on the host; %s",
                 forwarding_is_on() ? "this host forwards already (net.ipv4.ip_forward)"
                                    : "this host forwards nothing else: interfaces with routes are opened for sandboxes alone");
    return is_whole;
}
