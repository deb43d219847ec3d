#include "sandboxd/isolation/namespaces/network.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

bool network_loopback_up(struct error *err)
{
    AUTO_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_name = "lo"};
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "look at the loopback interface");
    request.ifr_flags = (short)(request.ifr_flags | IFF_UP);
    if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "bring the loopback interface up");
    return true;
}
