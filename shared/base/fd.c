#include "shared/base/fd.h"

#include "shared/base/beneath.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static enum error_kind kind_of_errno(int number)
{
    if (number == ENOSPC || number == EDQUOT)
        return ERROR_DISK_FULL;
    return number == ENOENT || number == ENOTDIR ? ERROR_NOT_FOUND : ERROR_INTERNAL;
}

bool fd_write_all(int fd, const void *data, size_t size, struct error *err)
{
    const char *at = data;
    while (size > 0) {
        ssize_t written = write(fd, at, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return error_set_errno(err, errno == ENOSPC || errno == EDQUOT ? ERROR_DISK_FULL : ERROR_INTERNAL, "write");
        if (written == 0)
            return error_set(err, ERROR_INTERNAL, "write: nothing was taken");
        at += written;
        size -= (size_t)written;
    }
    return true;
}

bool fd_read_exact(int fd, void *data, size_t size, struct error *err)
{
    char *at = data;
    for (size_t left = size; left > 0;) {
        ssize_t got = read(fd, at, left);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(err, ERROR_INTERNAL, "read");
        if (got == 0)
            return error_set(err, ERROR_INVALID, "ended after %zu of %zu bytes", size - left, size);
        at += got;
        left -= (size_t)got;
    }
    return true;
}

/* Reads to the end, at most `max` bytes: what /proc says is of size 0 has content all the same. */
static char *read_to_end(int fd, size_t expected, size_t max, size_t *size, struct error *err)
{
    size_t capacity = (expected < max ? expected : max) + 2; /* one to see that there is more, one for the NUL */
    AUTO_FREE char *data = memory_resize(NULL, capacity);
    size_t length = 0;
    for (;;) {
        ssize_t got = read(fd, data + length, capacity - 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            error_set_errno(err, ERROR_INTERNAL, "read");
            return NULL;
        }
        if (got == 0)
            break;
        length += (size_t)got;
        if (length > max) {
            error_set(err, ERROR_TOO_LARGE, "more than %zu bytes", max);
            return NULL;
        }
        if (length == capacity - 1) {
            capacity = capacity * 2 < max + 2 ? capacity * 2 : max + 2;
            data = memory_resize(data, capacity);
        }
    }
    data[length] = '\0';
    *size = length;
    return TAKE(data);
}

char *fd_read_file(const char *path, size_t max, size_t *size, struct error *err)
{
    if (max > PTRDIFF_MAX / 4)
        max = PTRDIFF_MAX / 4;
    /* O_NONBLOCK: opening a FIFO would wait for a writer. */
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        error_set_errno(err, kind_of_errno(errno), "open %s", path);
        return NULL;
    }
    struct stat status;
    if (fstat(fd, &status) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "stat %s", path);
        return NULL;
    }
    if (!S_ISREG(status.st_mode)) {
        error_set(err, ERROR_INVALID, "%s is not a regular file", path);
        return NULL;
    }
    size_t length = 0;
    char *data = read_to_end(fd, (size_t)status.st_size, max, &length, err);
    if (data == NULL) {
        error_prefix(err, "%s", path);
        return NULL;
    }
    if (size)
        *size = length;
    return data;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return memory_string(".");
    return slash == path ? memory_string("/") : memory_copy(path, (size_t)(slash - path));
}

static bool sync_folder_of(const char *path, struct error *err)
{
    AUTO_FREE char *folder = folder_of(path);
    AUTO_FD int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return error_set_errno(err, kind_of_errno(errno), "sync folder %s", folder);
    return true;
}

static bool fill_and_rename(int fd, const char *from, const char *path, mode_t mode, const void *data, size_t size,
                            struct error *err)
{
    if (!fd_write_all(fd, data, size, err))
        return error_prefix(err, "%s", path);
    if (fchmod(fd, mode) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "chmod %s", path);
    if (fsync(fd) < 0)
        return error_set_errno(err, kind_of_errno(errno), "sync %s", path);
    if (rename(from, path) < 0)
        return error_set_errno(err, kind_of_errno(errno), "rename to %s", path);
    return true;
}

bool fd_write_file(const char *path, mode_t mode, const void *data, size_t size, struct error *err)
{
    AUTO_FREE char *beside = memory_printf("%s.XXXXXX", path);
    AUTO_FD int fd = mkostemp(beside, O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, kind_of_errno(errno), "create a file beside %s", path);
    if (!fill_and_rename(fd, beside, path, mode, data, size, err)) {
        unlink(beside);
        return false;
    }
    return sync_folder_of(path, err);
}

/* One folder; its mode is set after, as mkdir(2) takes the umask off. */
static bool make_folder(const char *path, mode_t mode, struct error *err)
{
    if (mkdir(path, 0700) == 0) {
        AUTO_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fchmod(fd, mode) < 0)
            return error_set_errno(err, ERROR_INTERNAL, "chmod %s", path);
        return true;
    }
    int why = errno;
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return true;
    errno = why == EEXIST ? ENOTDIR : why;
    return error_set_errno(err, kind_of_errno(why), "make folder %s", path);
}

bool fd_make_folders(const char *path, mode_t mode, struct error *err)
{
    AUTO_FREE char *partial = memory_string(path);
    if (partial == NULL || partial[0] == '\0')
        return error_set(err, ERROR_INVALID, "a folder needs a name");
    for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool made = make_folder(partial, mode, err);
        *slash = '/';
        if (!made)
            return false;
    }
    return make_folder(partial, mode, err);
}

bool fd_set_nonblocking(int fd, struct error *err)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "set O_NONBLOCK");
    return true;
}

int fd_sealed_memfd(const char *name, const void *data, size_t size, struct error *err)
{
    AUTO_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        error_set_errno(err, ERROR_INTERNAL, "memfd_create %s", name);
        return -1;
    }
    if (!fd_write_all(fd, data, size, err))
        return -1;
    if (lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "seal memfd %s", name);
        return -1;
    }
    return TAKE_FD(fd);
}

/* --- removing a tree ---
 * What is removed was a stranger's: it may be nested deeper than any number of descriptors or any stack, so one
 * descriptor walks down by name and up by "..", and going up checks that the folder is the one it came from. */

struct walk {
    DIR *folder; /* where we are */
    struct level {
        dev_t device;
        ino_t inode;
    } * above; /* the folders from the top down to the one that holds `folder` */
    size_t depth, capacity;
};

static void walk_cleanup(struct walk *walk)
{
    if (walk->folder)
        closedir(walk->folder);
    free(walk->above);
}

/* Opens the folder `name` in `at`: no link, and not what is mounted over it. */
static int open_child(int at, const char *name)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                           .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS};
    return beneath_open(at, name, &how);
}

static bool walk_to(struct walk *walk, int fd)
{
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        int why = errno;
        close(fd);
        errno = why;
        return false;
    }
    if (walk->folder)
        closedir(walk->folder);
    walk->folder = folder;
    return true;
}

static bool walk_down(struct walk *walk, const char *name)
{
    struct stat status;
    if (fstat(dirfd(walk->folder), &status) < 0)
        return false;
    if (walk->depth == walk->capacity) {
        walk->capacity = walk->capacity ? walk->capacity * 2 : 32;
        walk->above = memory_resize(walk->above, walk->capacity * sizeof *walk->above);
    }
    int fd = open_child(dirfd(walk->folder), name);
    if (fd < 0 || !walk_to(walk, fd))
        return false;
    walk->above[walk->depth++] = (struct level){status.st_dev, status.st_ino};
    return true;
}

static bool walk_up(struct walk *walk)
{
    AUTO_FD int fd = openat(dirfd(walk->folder), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0)
        return false;
    const struct level *expected = &walk->above[--walk->depth];
    if (status.st_dev != expected->device || status.st_ino != expected->inode) {
        errno = ESTALE; /* it was moved while we were below */
        return false;
    }
    return walk_to(walk, TAKE_FD(fd));
}

/* unlink, or rmdir where it is a folder; ENOTEMPTY when that is not empty. */
static bool remove_entry(int at, const char *name)
{
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
        return true;
    if (errno != EISDIR && errno != EPERM)
        return false;
    int why = errno;
    if (unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return true;
    if (errno == EEXIST)
        errno = ENOTEMPTY;
    if (errno == ENOTDIR)
        errno = why;
    return false;
}

enum step { STEP_EMPTY, STEP_DOWN, STEP_FAILED };

/* Removes what can be removed here; goes into the first folder that is not empty. */
static enum step remove_here(struct walk *walk, char name[static NAME_MAX + 1])
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(walk->folder);
        if (entry == NULL)
            return errno ? STEP_FAILED : STEP_EMPTY;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (!text_copy(name, NAME_MAX + 1, entry->d_name))
            continue;
        if (remove_entry(dirfd(walk->folder), name))
            continue;
        return errno == ENOTEMPTY && walk_down(walk, name) ? STEP_DOWN : STEP_FAILED;
    }
}

static bool empty_folder(const char *path, struct error *err)
{
    __attribute__((cleanup(walk_cleanup))) struct walk walk = {0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || !walk_to(&walk, fd))
        return error_set_errno(err, ERROR_INTERNAL, "open %s", path);
    for (;;) {
        char name[NAME_MAX + 1] = "";
        enum step step = remove_here(&walk, name);
        if (step == STEP_FAILED)
            return error_set_errno(err, ERROR_INTERNAL, "remove %s: %zu folders down, %s", path, walk.depth, name);
        if (step == STEP_EMPTY && walk.depth == 0)
            return true;
        if (step == STEP_EMPTY && !walk_up(&walk))
            return error_set_errno(err, ERROR_INTERNAL, "remove %s: going up", path);
    }
}

bool fd_remove_tree(const char *path, struct error *err)
{
    enum { TRIES = 8 }; /* an entry that was made meanwhile is met again, but not for ever */
    for (int i = 0; i < TRIES; i++) {
        if (remove_entry(AT_FDCWD, path))
            return true;
        if (errno != ENOTEMPTY)
            break;
        if (!empty_folder(path, err))
            return false;
    }
    return error_set_errno(err, ERROR_INTERNAL, "remove %s", path);
}

/* --- messages with descriptors --- */

/* SCM_MAX_FD: no message has more, so none is cut, and none of its descriptors is closed by the kernel in our name. */
enum { SENT_FDS_MAX = 253, NESTED_MAX = 8 };

union control {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int) * SENT_FDS_MAX)];
};

static void drop(int fd, int depth);

/* The descriptors of a message: the first FD_MESSAGE_FDS into `to`, the others are dropped. How many came. */
static size_t take_descriptors(struct msghdr *message, int to[static FD_MESSAGE_FDS], int depth)
{
    size_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++, count++) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (count < FD_MESSAGE_FDS)
                to[count] = fd;
            else
                drop(fd, depth);
        }
    }
    return count;
}

/* As recvmsg(2); `count` descriptors came and were dropped. */
static ssize_t receive_and_drop(int socket, void *data, size_t size, size_t *count, int depth)
{
    union control control = {0};
    int taken[FD_MESSAGE_FDS];
    struct iovec piece = {.iov_base = data, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    int number = errno;
    *count = got < 0 ? 0 : take_descriptors(&message, taken, depth);
    for (size_t i = 0; i < *count && i < FD_MESSAGE_FDS; i++)
        drop(taken[i], depth);
    errno = number;
    return got;
}

/* What was sent over a UNIX socket and not received holds descriptors, too. After the shutdown no more comes. */
static void empty(int socket, int depth)
{
    char bytes[4096];
    bool is_stream = false;
    int type = 0;
    socklen_t size = sizeof type;
    is_stream = getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
    (void)shutdown(socket, SHUT_RDWR);
    for (;;) {
        size_t count = 0;
        ssize_t got = receive_and_drop(socket, bytes, sizeof bytes, &count, depth);
        if ((got < 0 && errno != EINTR) || (got == 0 && (is_stream || count == 0)))
            return;
    }
}

static void drop(int fd, int depth)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    int domain = 0, is_listening = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0) {
        size = sizeof is_listening;
        (void)getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size);
        if (domain == AF_UNIX && depth < NESTED_MAX) {
            for (int one; is_listening && fd_set_nonblocking(fd, NULL) && (one = accept(fd, NULL, NULL)) >= 0;)
                drop(one, depth + 1);
            empty(fd, depth + 1);
        } else if (domain == AF_INET || domain == AF_INET6) {
            (void)connect(fd, &nobody, sizeof nobody); /* what it still had to send is given up */
        }
        fd_disarm(fd);
    }
    close(fd);
}

void fd_disarm(int fd)
{
    static const struct linger NEVER = {0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &NEVER, sizeof NEVER);
}

void fd_drop(int fd)
{
    if (fd >= 0)
        drop(fd, 0);
}

void fd_drop_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fd_drop(fds[i]);
}

void fd_empty(int socket)
{
    empty(socket, 0);
}

void fd_hang_up(int fd)
{
    int domain = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX)
        empty(fd, 0);
    fd_disarm(fd);
}

ssize_t fd_receive(int socket, void *data, size_t size)
{
    size_t count = 0;
    return receive_and_drop(socket, data, size, &count, 0);
}

bool fd_send_message(int socket, const void *data, size_t size, const int *fds, size_t fd_count, struct error *err)
{
    if (size == 0 || fd_count > FD_MESSAGE_FDS)
        return error_set(err, ERROR_INVALID, "a message has 1 byte or more and at most %d descriptors", FD_MESSAGE_FDS);
    struct iovec piece = {.iov_len = size};
    memcpy(&piece.iov_base, &data, sizeof data); /* an iovec has no const */
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    union control control = {0};
    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        control.header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * fd_count)};
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * fd_count);
    }
    for (;;) {
        ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
        if (sent >= 0 && (size_t)sent == size)
            return true;
        if (sent >= 0)
            return error_set(err, ERROR_INTERNAL, "sendmsg took %zd of %zu bytes", sent, size);
        if (errno != EINTR)
            return error_set_errno(err, ERROR_INTERNAL, "sendmsg");
    }
}

ssize_t fd_receive_message(int socket, void *data, size_t size, int fds[static FD_MESSAGE_FDS], size_t *fd_count,
                           struct error *err)
{
    union control control = {0};
    struct iovec piece = {.iov_base = data, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t received = -1;
    do {
        received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received < 0) {
        error_set_errno(err, ERROR_INTERNAL, "recvmsg");
        return -1;
    }
    int taken[FD_MESSAGE_FDS];
    size_t count = take_descriptors(&message, taken, 0);
    bool cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || count > FD_MESSAGE_FDS;
    if (cut || received == 0)
        fd_drop_all(taken, count < FD_MESSAGE_FDS ? count : FD_MESSAGE_FDS);
    if (cut) {
        error_set(err, ERROR_INVALID, "a message of more than %zu bytes or %d descriptors", size, FD_MESSAGE_FDS);
        return -1;
    }
    *fd_count = received == 0 ? 0 : count;
    memcpy(fds, taken, sizeof(int) * *fd_count);
    return received;
}

/* ---- memfds of which the front is over ---- */

bool fd_can_punch(void)
{
    static atomic_int known; /* 1 yes, 2 no */
    if (known == 0) {
        AUTO_FD int fd = memfd_create("probe", MFD_CLOEXEC);
        bool can =
            fd >= 0 && ftruncate(fd, 1) == 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1) == 0;
        if (fd < 0)
            return true;
        known = can ? 1 : 2;
    }
    return known == 1;
}

static bool read_back(int fd, char *to, size_t size, uint64_t from)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, to + done, size - done, (off_t)(from + done));
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool write_back(int fd, const char *data, size_t size, uint64_t to)
{
    for (size_t done = 0; done < size;) {
        ssize_t written = pwrite(fd, data + done, size - done, (off_t)(to + done));
        if (written < 0 && errno != EINTR)
            return false;
        done += written > 0 ? (size_t)written : 0;
    }
    return true;
}

bool fd_drop_front(int memory, uint64_t from, uint64_t length)
{
    if (from == 0 || from > length)
        return from == 0;
    if (fd_can_punch())
        return fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)from) == 0;
    size_t size = (size_t)(length - from);
    AUTO_FREE char *rest = memory_new(size + 1);
    return read_back(memory, rest, size, from) && ftruncate(memory, 0) == 0 && ftruncate(memory, (off_t)length) == 0 &&
           write_back(memory, rest, size, from);
}
