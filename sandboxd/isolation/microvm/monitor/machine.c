/* machine.c - the letter, and the initramfs that brings it in: see monitor.h. */
#include "sandboxd/isolation/microvm/monitor/monitor.h"

#include "sandboxd/isolation/microvm/boot/boot.h"
#include "sandboxd/isolation/microvm/initramfs.h"
#include "sandboxd/isolation/microvm/microvm.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { LETTER_BYTES = 64 * 1024, NUMBERS_BYTES = 32 };

/* One read is one message; of a stream it is repeated until the end. */
static bool is_message_socket(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

bool machine_read_letter(int from, char **letter, size_t *size, struct error *err)
{
    AUTO_FREE char *text = memory_new(LETTER_BYTES + 1);
    const bool is_message = is_message_socket(from);
    size_t length = 0;
    ssize_t got;
    do {
        got = read(from, text + length, LETTER_BYTES + 1 - length);
        length += got > 0 ? (size_t)got : 0;
    } while (length <= LETTER_BYTES && ((got > 0 && !is_message) || (got < 0 && errno == EINTR)));
    if (got < 0)
        return error_set_errno(err, ERROR_INTERNAL, "read the letter");
    if (length == 0 || length > LETTER_BYTES)
        return error_set(err, ERROR_INVALID, "a letter has 1..%d bytes, not %zu", LETTER_BYTES, length);
    *letter = TAKE(text);
    *size = length;
    return true;
}

static bool copy_base(int to, struct error *err)
{
    struct stat status;
    AUTO_FD int base = open(MICROVM_FOLDER "/" MICROVM_INITRAMFS, O_RDONLY | O_CLOEXEC);
    if (base < 0 || fstat(base, &status) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "open the initramfs");
    while (status.st_size > 0) {
        ssize_t sent = sendfile(to, base, NULL, (size_t)status.st_size);
        if (sent <= 0)
            return error_set_errno(err, ERROR_INTERNAL, "copy the initramfs");
        status.st_size -= sent;
    }
    return true;
}

int machine_make_initramfs(char *letter, size_t size, const struct boot_limits *limits, struct error *err)
{
    char text[NUMBERS_BYTES];
    int length = snprintf(text, sizeof text, "%" PRIu32 " %" PRIu32 "\n", limits->pids, limits->inodes);
    AUTO_INITRAMFS archive = {0};
    AUTO_FD int made = memfd_create("initramfs", MFD_CLOEXEC);
    if (made < 0) {
        error_set_errno(err, ERROR_INTERNAL, "memfd_create");
        return -1;
    }
    initramfs_add_file(&archive, BOOT_LETTER, 0400, letter, size);
    initramfs_add_file(&archive, BOOT_LIMITS, 0644, text, (size_t)length);
    initramfs_end(&archive);
    explicit_bzero(letter, size);
    if (!copy_base(made, err) || !fd_write_all(made, archive.bytes.data, archive.bytes.length, err))
        return -1;
    return TAKE_FD(made);
}
