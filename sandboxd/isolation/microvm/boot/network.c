/* network.c - the guest's one network card: see boot.h. Source: netdevice(7). */
#include "sandboxd/isolation/microvm/boot/boot.h"

#include "shared/base/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { NETWORK_BYTES = 64 };

static bool set_address(int control, const char *interface, unsigned long request, const char *text, struct error *err)
{
    struct ifreq wanted = {0};
    struct sockaddr_in address = {.sin_family = AF_INET};
    memcpy(wanted.ifr_name, interface, strlen(interface) + 1);
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
        return error_set(err, ERROR_INVALID, "\"%.32s\" is no IPv4 address", text);
    memcpy(&wanted.ifr_addr, &address, sizeof address);
    if (ioctl(control, request, &wanted) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "set %s of %s", text, interface);
    return true;
}

static bool raise_interface(int control, const char *interface, struct error *err)
{
    struct ifreq wanted = {0};
    memcpy(wanted.ifr_name, interface, strlen(interface) + 1);
    if (ioctl(control, SIOCGIFFLAGS, &wanted) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "find interface %s", interface);
    wanted.ifr_flags = (short)(wanted.ifr_flags | IFF_UP);
    if (ioctl(control, SIOCSIFFLAGS, &wanted) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "raise interface %s", interface);
    return true;
}

bool boot_raise_network(struct error *err)
{
    char address[NETWORK_BYTES / 2], netmask[NETWORK_BYTES / 2];
    AUTO_FREE char *text = fd_read_file("/" BOOT_NETWORK, NETWORK_BYTES, NULL, err);
    AUTO_FD int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (!text)
        return false;
    if (sscanf(text, "%31s %31s", address, netmask) != 2)
        return error_set(err, ERROR_INVALID, "/" BOOT_NETWORK " holds no address and netmask");
    return raise_interface(control, "lo", err) && set_address(control, "eth0", SIOCSIFADDR, address, err) &&
           set_address(control, "eth0", SIOCSIFNETMASK, netmask, err) && raise_interface(control, "eth0", err);
}
