#include "sandboxd/helpers/jupyter/connection.h"

#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

/* sockaddr_un holds 107 bytes: the folder's 63 and "/kernel-5" are far below. */
static const char SOCKET_STEM[] = "kernel";

static const char FOLDER_STEM[] = ".parley-jupyter-";
enum { ABANDONED_S = 10 }; /* a bridge has its lock by then */

/* A folder of ours whose bridge holds no lock any more. Neither may be another's, or a link. */
static bool is_abandoned(const char *path)
{
    struct stat status;
    AUTO_FREE char *file = memory_printf("%s/connection.json", path);
    if (lstat(path, &status) < 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
        time(NULL) - status.st_mtime < ABANDONED_S)
        return false;
    AUTO_FD int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void remove_abandoned(const char *place)
{
    DIR *folder = opendir(place);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder)) != NULL) {
        AUTO_FREE char *path = memory_printf("%s/%s", place, entry->d_name);
        if (text_starts_with(entry->d_name, FOLDER_STEM) && is_abandoned(path))
            (void)!fd_remove_tree(path, NULL);
    }
    if (folder)
        closedir(folder);
}

static bool make_folder(struct connection *connection, struct error *err)
{
    const char *const places[] = {getenv("TMPDIR"), "/tmp", "/dev/shm", getenv("HOME")};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!places[i] || *places[i] != '/' ||
            !text_format(connection->folder, sizeof connection->folder, "%s/%sXXXXXX", places[i], FOLDER_STEM))
            continue;
        remove_abandoned(places[i]);
        if (mkdtemp(connection->folder)) /* 0700 */
            return text_format(connection->file, sizeof connection->file, "%s/connection.json", connection->folder);
    }
    *connection->folder = '\0';
    return error_set_errno(err, ERROR_INTERNAL, "make a folder for the kernel's sockets below /tmp");
}

/* All are held at once, so that they differ; the kernel binds them a moment later. */
static bool find_ports(struct connection *connection, struct error *err)
{
    int held[CONNECTION_CHANNELS];
    int count = 0;
    bool fine = true;
    for (; count < CONNECTION_CHANNELS && fine; count++) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof address;
        held[count] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        fine = held[count] >= 0 && bind(held[count], (struct sockaddr *)&address, sizeof address) == 0 &&
               getsockname(held[count], (struct sockaddr *)&address, &size) == 0;
        connection->ports[count] = ntohs(address.sin_port);
    }
    if (!fine)
        error_set_errno(err, ERROR_INTERNAL, "find free ports of 127.0.0.1");
    while (count-- > 0)
        if (held[count] >= 0)
            close(held[count]);
    return fine;
}

static bool write_file(struct connection *connection, const char *kernel_name, struct error *err)
{
    AUTO_FREE char *stem = memory_printf("%s/%s", connection->folder, SOCKET_STEM);
    json_t *told = json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s}", "transport", connection->is_tcp ? "tcp" : "ipc", "ip",
        connection->is_tcp ? "127.0.0.1" : stem, "shell_port", connection->ports[CONNECTION_SHELL], "iopub_port",
        connection->ports[CONNECTION_IOPUB], "stdin_port", connection->ports[CONNECTION_STDIN], "control_port",
        connection->ports[CONNECTION_CONTROL], "hb_port", connection->ports[CONNECTION_HEARTBEAT], "key",
        connection->key, "signature_scheme", "hmac-sha256", "kernel_name", kernel_name);
    AUTO_FREE char *text = told ? json_dumps(told, JSON_INDENT(2)) : NULL;
    json_decref(told);
    if (text == NULL)
        return error_set(err, ERROR_INTERNAL, "write the connection file as JSON");
    connection->lock = open(connection->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (connection->lock < 0 || flock(connection->lock, LOCK_EX | LOCK_NB) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make %s", connection->file);
    return fd_write_all(connection->lock, text, strlen(text), err);
}

bool connection_make(struct connection *connection, bool tcp, const char *kernel_name, struct error *err)
{
    uint8_t secret[MESSAGE_KEY_BYTES / 2];
    *connection = (struct connection){.lock = -1, .is_tcp = tcp, .ports = {1, 2, 3, 4, 5}};
    random_bytes(secret, sizeof secret);
    text_hex(connection->key, secret, sizeof secret);
    return make_folder(connection, err) && (!tcp || find_ports(connection, err)) &&
           write_file(connection, kernel_name, err);
}

void connection_done(struct connection *connection)
{
    if (*connection->folder)
        (void)!fd_remove_tree(connection->folder, NULL);
    *connection->folder = '\0';
    if (connection->lock >= 0)
        close(TAKE_FD(connection->lock));
}

bool connection_address(const struct connection *connection, enum connection_channel channel,
                        char to[static CONNECTION_ADDRESS_BYTES])
{
    if (connection->is_tcp)
        return text_format(to, CONNECTION_ADDRESS_BYTES, "tcp://127.0.0.1:%u", connection->ports[channel]);
    static const char SEPARATORS[] = "-:";
    static const char SCHEME[] = "ipc://";
    for (const char *separator = SEPARATORS; *separator; separator++) {
        struct stat status;
        if (text_format(to, CONNECTION_ADDRESS_BYTES, "%s%s/%s%c%u", SCHEME, connection->folder, SOCKET_STEM,
                        *separator, connection->ports[channel]) &&
            stat(to + sizeof SCHEME - 1, &status) == 0 && S_ISSOCK(status.st_mode))
            return true;
    }
    return false;
}
