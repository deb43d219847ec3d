/* raw_send.c - any bytes with any descriptors. */
#include "tests/hostile/programs/hostile_init.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { ROOM_PATIENCE = 30 }; /* s */

bool raw_send(int socket, const void *data, size_t size, const int *fds, size_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * 253)] = {0};
    struct iovec piece = {.iov_len = size};
    memcpy(&piece.iov_base, &data, sizeof data);
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr head = {
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * count)};
        memcpy(control, &head, sizeof head);
        memcpy(CMSG_DATA((struct cmsghdr *)(void *)control), fds, sizeof(int) * count);
    }
    for (int i = 0; i < ROOM_PATIENCE; i++) {
        ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (sent >= 0 || errno != EAGAIN)
            return sent == (ssize_t)size;
        (void)poll(&(struct pollfd){.fd = socket, .events = POLLOUT}, 1, 1000);
    }
    return false;
}
