/** change_rig.h - on top of tree_rig.h: descriptors in answers, bytes poured into pipes. */
#pragma once

#include "shared/base/fd.h"
#include "tests/unit/sandboxd/helpers/files/tree_rig.h"

static inline struct files_request rig_request(enum files_operation operation, const char *root, const char *path)
{
    return (struct files_request){.operation = operation, .root = root, .path = path};
}

/** Asks with a descriptor, which is closed; the answer's end. */
static inline struct answer rig_wait(struct rig *rig)
{
    struct answer answer = {0};
    while (answer.end.kind == 0 && rig_more(rig, &answer, -1))
        ;
    return answer;
}

/** OPEN: the descriptor, or -1; *end is the end. */
static inline int rig_open_file(struct rig *rig, const char *root, const char *path, struct files_record *end)
{
    static char packet[FRONT_FILES_PACKET_MAX];
    struct files_request request = rig_request(FILES_OPEN, root, path);
    int fds[FD_MESSAGE_FDS], descriptor = -1;
    struct error err = {0};
    rig_send(rig, &request, -1);
    *end = (struct files_record){0};
    while (end->kind != FILES_DONE && end->kind != FILES_ERROR) {
        size_t count = 0, at = 0;
        ssize_t size = fd_receive_message(rig->socket, packet, sizeof packet, fds, &count, &err);
        CHECK(size > 0 && count <= 1);
        if (size <= 0)
            break;
        if (count == 1)
            descriptor = fds[0];
        while (front_files_packet_next(packet, (size_t)size, &at, end, &err) == 1) {
        }
    }
    return descriptor;
}

/** The whole text behind OPEN; NULL when it failed. The caller frees. */
static inline char *rig_read_text(struct rig *rig, const char *root, const char *path)
{
    struct files_record end;
    char text[4096];
    AUTO_FD int fd = rig_open_file(rig, root, path, &end);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    return size < 0 ? NULL : memory_copy(text, (size_t)size);
}

/** Begins a WRITE or PIECE: the pipe's write end. */
static inline int rig_begin(struct rig *rig, const struct files_request *request)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    rig_send(rig, request, ends[0]);
    close(ends[0]);
    return ends[1];
}

static inline void rig_commit(struct rig *rig, uint64_t size)
{
    const struct files_request commit = {.operation = FILES_COMMIT, .size = size};
    rig_send(rig, &commit, -1);
}

/** All of it: the answer is the caller's. */
static inline struct answer rig_pour(struct rig *rig, const struct files_request *request, const char *data,
                                     size_t size)
{
    struct error ignored;
    int pipe = rig_begin(rig, request);
    bool is_poured = fd_write_all(pipe, data, size, &ignored); /* false: it was refused before it read all */
    close(pipe);
    rig_commit(rig, size);
    (void)is_poured;
    return rig_wait(rig);
}

static inline struct files_record rig_put(struct rig *rig, const char *root, const char *path, uint32_t flags,
                                          const char *text)
{
    struct files_request request = rig_request(FILES_WRITE, root, path);
    request.flags = flags;
    struct answer answer = rig_pour(rig, &request, text, strlen(text));
    struct files_record end = answer.end;
    CHECK(end.kind == FILES_ERROR ? answer.count == 0 : answer.count == 1);
    answer_done(&answer);
    return end;
}

/** What a file of the rig's folder holds; NULL when there is none. The caller frees. */
static inline char *rig_text_of(const struct rig *rig, const char *path)
{
    char text[4096];
    AUTO_FD int fd = openat(rig->root, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    return size < 0 ? NULL : memory_copy(text, (size_t)size);
}

#define CHECK_FILE(rig, path, want)                                                                                    \
    do {                                                                                                               \
        char *text_ = rig_text_of(rig, path);                                                                          \
        CHECK_TEXT(text_, want);                                                                                       \
        free(text_);                                                                                                   \
    } while (0)

/** Names in a folder, without . and .. */
static inline size_t rig_count(const struct rig *rig, const char *path)
{
    char link[128];
    (void)snprintf(link, sizeof link, "ls -A %s/%s | wc -l", rig->folder, path);
    FILE *pipe = popen(link, "re");
    size_t count = 0;
    CHECK(pipe != NULL && fscanf(pipe, "%zu", &count) == 1);
    if (pipe)
        pclose(pipe);
    return count;
}

static inline struct files_record rig_stat(struct rig *rig, const char *root, const char *path, uint32_t flags)
{
    struct files_request request = rig_request(FILES_STAT, root, path);
    request.flags = flags;
    struct answer answer = rig_ask(rig, &request);
    struct files_record got = answer.count == 1 ? answer.all[0].record : answer.end;
    answer_done(&answer);
    return got;
}
