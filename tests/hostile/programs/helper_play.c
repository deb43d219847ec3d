/* helper_play.c - a file helper that lies: what is asked does not matter, only what was chosen. */
#include "tests/hostile/programs/hostile_init.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint64_t MEBIBYTE = 1 << 20;

static struct files_record entry_of(const char *path, enum files_type type)
{
    return (struct files_record){.kind = FILES_ENTRY,
                                 .type = type,
                                 .mode = 0644,
                                 .links = 1,
                                 .version = {.inode = 7, .size = MEBIBYTE, .mtime_ns = 1, .ctime_ns = 1},
                                 .path = {.data = path, .size = strlen(path)}};
}

static void add(struct files_packet *packet, const struct files_record *record)
{
    if (!front_files_packet_add(packet, record))
        _exit(70);
}

static const struct files_record DONE = {.kind = FILES_DONE, .count = 1};

/* An entry of a file and the end of it, with these descriptors. */
static void answer(int socket, const int *fds, size_t count)
{
    static struct files_packet packet;
    struct files_record record = entry_of("", FILES_REGULAR);
    packet.size = 0;
    add(&packet, &record);
    add(&packet, &DONE);
    (void)raw_send(socket, packet.data, packet.size, fds, count);
}

/* A file of a mebibyte, in the sandbox's own folder, that is gone, cut or grows as soon as it is given. */
static void answer_file(int socket, const char *how)
{
    static char bytes[1 << 20];
    char path[] = "/workspace/.hostileXXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes)
        _exit(71);
    int reads = open(path, O_RDONLY | O_CLOEXEC);
    unlink(path);
    if (strcmp(how, "writable") == 0)
        answer(socket, &fd, 1);
    else
        answer(socket, &reads, 1);
    if (strcmp(how, "cut") == 0)
        (void)!ftruncate(fd, 1000);
    if (strcmp(how, "grow") == 0 && fork() == 0) {
        for (int i = 0; i < 64; i++)
            (void)!write(fd, bytes, sizeof bytes);
        _exit(0);
    }
    close(fd);
    close(reads);
}

/* Entries without an end, as long as somebody takes them. */
static void answer_endless(int socket, const char *name)
{
    static struct files_packet packet;
    struct files_record record = entry_of(name, FILES_REGULAR);
    packet.size = 0;
    while (front_files_packet_add(&packet, &record)) {
    }
    if (fork() == 0) {
        (void)fcntl(socket, F_SETFL, O_RDWR);
        while (raw_send(socket, packet.data, packet.size, NULL, 0)) {
        }
        _exit(0);
    }
}

/* An entry whose name is put in behind the checks of our own end. */
static void answer_name(int socket, const char *name)
{
    static struct files_packet packet;
    char place[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static const char with_nul[] = "a\0b";
    bool is_nul = strcmp(name, "nul") == 0;
    size_t size = is_nul ? 3 : strlen(name);
    place[size] = 0;
    struct files_record record = entry_of(place, FILES_REGULAR);
    packet.size = 0;
    add(&packet, &record);
    memcpy(packet.data + packet.size - size, is_nul ? with_nul : name, size);
    add(&packet, &DONE);
    (void)raw_send(socket, packet.data, packet.size, NULL, 0);
}

static void answer_error(int socket, int kind, const char *text)
{
    static struct files_packet packet;
    struct files_record record = {.kind = FILES_ERROR, .error.kind = ERROR_INVALID};
    memset(record.error.message, 'x', 200);
    packet.size = 0;
    add(&packet, &record);
    struct error lie = {.system_errno = 4711};
    memcpy(&lie.kind, &kind, sizeof kind);
    strncpy(lie.message, text, sizeof lie.message - 1);
    memcpy(packet.data + packet.size - sizeof lie, &lie, sizeof lie); /* an error has no texts behind it */
    (void)raw_send(socket, packet.data, packet.size, NULL, 0);
}

static void answer_bytes(int socket, const char *how)
{
    static char bytes[2 * FRONT_FILES_PACKET_MAX];
    static struct files_packet packet;
    struct files_record record = entry_of("", FILES_REGULAR);
    packet.size = 0;
    add(&packet, &record);
    uint32_t number = strcmp(how, "kind") == 0 ? 77U : UINT32_MAX;
    if (strcmp(how, "huge") == 0) {
        (void)raw_send(socket, bytes, sizeof bytes, NULL, 0);
        return;
    }
    if (strcmp(how, "short") == 0)
        packet.size = 3;
    else /* kind: at 0; size: at 4; text: at 8 */
        memcpy(packet.data + (strcmp(how, "kind") == 0 ? 0 : strcmp(how, "size") == 0 ? 4 : 8), &number, sizeof number);
    (void)raw_send(socket, packet.data, packet.size, NULL, 0);
}

/* Its last word, and then more. */
static void answer_behind(int socket)
{
    int fd = descriptor_make("linger", -1);
    answer(socket, NULL, 0);
    for (int i = 0; i < 3; i++)
        (void)raw_send(socket, "x", 1, &fd, 1);
    close(fd);
}

static void lie(struct play *play, int socket)
{
    const char *mode = play->modes.helper, *detail = play->modes.helper_detail;
    int fds[200];
    if (strcmp(mode, "fd") == 0 || strcmp(mode, "fds") == 0) {
        size_t count = mode[2] ? 200 : 1;
        fds[0] = descriptor_make(detail, play->connection);
        for (size_t i = 1; i < count; i++)
            fds[i] = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
        answer(socket, fds, count);
        for (size_t i = 0; i < count; i++)
            close(fds[i]);
    } else if (strcmp(mode, "file") == 0) {
        answer_file(socket, detail);
    } else if (strcmp(mode, "no-fd") == 0) {
        answer(socket, NULL, 0);
    } else if (strcmp(mode, "done") == 0) {
        struct files_packet packet = {.size = 0};
        add(&packet, &DONE);
        (void)raw_send(socket, packet.data, packet.size, NULL, 0);
    } else if (strcmp(mode, "endless") == 0) {
        answer_endless(socket, detail);
    } else if (strcmp(mode, "name") == 0) {
        answer_name(socket, detail);
    } else if (strcmp(mode, "error") == 0) {
        answer_error(socket, atoi(detail), "a\033[2J\nb");
    } else if (strcmp(mode, "bytes") == 0) {
        answer_bytes(socket, detail);
    } else if (strcmp(mode, "behind") == 0) {
        answer_behind(socket);
    }
}

bool helper_play(struct play *play, int socket)
{
    static char request[1 << 20];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
    struct iovec piece = {.iov_base = request, .iov_len = sizeof request};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); /* what comes with it stays open */
    if (got <= 0)
        return false;
    lie(play, socket);
    return strcmp(play->modes.helper, "close") != 0;
}
