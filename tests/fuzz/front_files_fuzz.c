/* front_files_fuzz.c - hostile requests, records and edits against the codec between front and file helper. */
#include "sandboxd/front_files/front_files.h"
#include "shared/base/fd.h"

#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        __builtin_trap();
}

static void require_sentence(const struct error *err)
{
    require(err->kind > ERROR_NONE && strnlen(err->message, sizeof err->message) < sizeof err->message);
}

/* What was received passes the checks, and is the same when sent on. */
static void fuzz_request(const uint8_t *data, size_t size)
{
    struct files_request request, again;
    struct error err = {0};
    AUTO_FREE void *memory = NULL, *memory_again = NULL;
    AUTO_FD int descriptor = -1, second = -1;
    int ends[2];
    if (size < 2 || size > FRONT_FILES_PACKET_MAX || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return;
    AUTO_FD int ours = ends[0], theirs = ends[1];
    int fds[2] = {ours, theirs};
    require(fd_send_message(ours, data + 1, size - 1, fds, data[0] % 3, &err));
    if (front_files_request_receive(theirs, &request, &memory, &descriptor, &err) != 1) {
        require_sentence(&err);
        return;
    }
    require(front_files_request_check(&request, descriptor >= 0, &err));
    require(strlen(request.path) <= FRONT_FILES_PATH_MAX && strstr(request.path, "/../") == NULL);
    require(front_files_request_send(ours, &request, descriptor, &err));
    require(front_files_request_receive(theirs, &again, &memory_again, &second, &err) == 1);
    require(strcmp(request.path, again.path) == 0 && strcmp(request.pattern, again.pattern) == 0 &&
            request.flags == again.flags && request.offset == again.offset);
}

static void fuzz_records(const uint8_t *data, size_t size)
{
    static struct files_packet packet;
    struct files_record record;
    struct error err = {0};
    size_t at = 0;
    int got;
    while ((got = front_files_packet_next((const char *)data, size, &at, &record, &err)) == 1) {
        require(at <= size && front_files_path_is_relative(record.path.data, record.path.size));
        require(front_files_record_check(&record, &err));
        packet.size = 0;
        require(front_files_packet_add(&packet, &record));
        if (record.kind == FILES_ERROR)
            require_sentence(&record.error);
    }
    if (got < 0)
        require_sentence(&err);
}

static void fuzz_edits(const uint8_t *data, size_t size)
{
    struct error err = {0};
    AUTO_FREE struct files_edit *edits = NULL, *again = NULL;
    size_t count, count_again;
    AUTO_FD int fd = fd_sealed_memfd("fuzz", data, size, &err);
    if (fd < 0 || !front_files_edits_read(fd, &edits, &count, &err))
        return;
    AUTO_FD int second = front_files_edits_seal(edits, count, &err);
    require(second >= 0 && front_files_edits_read(second, &again, &count_again, &err) && count == count_again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] < 0x60)
        fuzz_request(data + 1, size - 1);
    else if (data[0] < 0xe0)
        fuzz_records(data + 1, size - 1);
    else
        fuzz_edits(data + 1, size - 1);
    return 0;
}
