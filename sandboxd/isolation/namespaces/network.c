#include "sandboxd/isolation/namespaces/network.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>

bool network_visit(int network, int *home, struct error *err)
{
    AUTO_FD int here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (here < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open /proc/thread-self/ns/net");
    if (setns(network, CLONE_NEWNET) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "enter the sandbox's network namespace");
    *home = TAKE_FD(here);
    return true;
}

void network_return(int home)
{
    if (setns(home, CLONE_NEWNET) < 0)
        abort();
    close(home);
}
