#include "sandboxd/rootless/mapping.h"

#include "sandboxd/rootless/id_map.h"
#include "shared/base/cleanup.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUMBER_BYTES = 12, WORDS_MAX = 2 + 3 * ID_MAP_EXTENTS_MAX + 1, SAID_BYTES = 160, CANNOT_EXECUTE = 127 };

/* What one of the two programs is told. */
struct words {
    char numbers[WORDS_MAX][NUMBER_BYTES];
    char *list[WORDS_MAX + 1];
    size_t count;
};

static void add_number(struct words *words, uint32_t number)
{
    char *text = words->numbers[words->count];
    snprintf(text, NUMBER_BYTES, "%" PRIu32, number);
    words->list[words->count++] = text;
}

static void fill(struct words *words, char *program, pid_t pid, const struct id_map *map)
{
    words->list[words->count++] = program;
    add_number(words, (uint32_t)pid);
    for (size_t i = 0; i < map->count; i++) {
        add_number(words, map->list[i].inside);
        add_number(words, map->list[i].outside);
        add_number(words, map->list[i].count);
    }
}

/* --- in the child, which has stayed in the host's user namespace --- */

/* False: the program is gone from this host, or has said on stderr, which is `say`, why not. */
static bool run(const char *name, pid_t target, const struct id_map *map, int say)
{
    char program[32];
    struct words words = {0};
    (void)!text_copy(program, sizeof program, name);
    fill(&words, program, target, map);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(say, STDOUT_FILENO);
        dup2(say, STDERR_FILENO);
        execvp(program, words.list);
        _exit(CANNOT_EXECUTE);
    }
    int status = 1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_EXECUTE)
        dprintf(say, "%s is not installed: apt-get install uidmap", name);
    return pid > 0 && status == 0;
}

static _Noreturn void map_parent(pid_t parent, int start, int say, const struct id_map *uids, const struct id_map *gids)
{
    char byte = 0;
    bool is_done =
        read(start, &byte, 1) == 1 && run("newuidmap", parent, uids, say) && run("newgidmap", parent, gids, say);
    _exit(is_done ? 0 : 1);
}

/* --- in who calls --- */

/* Unshares; the child is told, and says nothing when all went well. */
static bool unshare_mapped(int start, int said, pid_t child, struct error *err)
{
    char text[SAID_BYTES];
    size_t size = 0;
    int failed = unshare(CLONE_NEWUSER) < 0 ? errno : 0;
    if (!failed && write(start, "u", 1) != 1)
        failed = errno;
    close(start);
    for (ssize_t got = 1; got > 0 && size<sizeof text - 1; size += got> 0 ? (size_t)got : 0)
        got = read(said, text + size, sizeof text - 1 - size);
    text[size] = '\0';
    text[strcspn(text, "\n")] = '\0';
    int status = 1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    errno = failed;
    if (failed)
        return error_set_errno(err, ERROR_FORBIDDEN,
                               "make a user namespace (sysctl user.max_user_namespaces, "
                               "kernel.unprivileged_userns_clone)");
    return status == 0 || error_set(err, ERROR_FORBIDDEN, "the subordinate ids cannot be mapped: %s",
                                    size ? text : "newuidmap or newgidmap was killed");
}

static bool map_self(const struct id_map *uids, const struct id_map *gids, struct error *err)
{
    int start[2];
    int said[2];
    if (pipe2(start, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a pipe");
    AUTO_FD int start_read = start[0];
    AUTO_FD int start_write = start[1];
    if (pipe2(said, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "make a pipe");
    AUTO_FD int said_read = said[0];
    AUTO_FD int said_write = said[1];
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return error_set_errno(err, ERROR_INTERNAL, "fork");
    if (pid == 0) {
        close(start_write);
        map_parent(self, start_read, said_write, uids, gids);
    }
    close(TAKE_FD(said_write));
    return unshare_mapped(TAKE_FD(start_write), said_read, pid, err);
}

/* Behind all that is given to anybody, so that the command which is advised gives nobody's ids twice. */
static uint32_t first_free(const char *path, uint32_t least)
{
    AUTO_FREE char *text = fd_read_file(path, 1024 * 1024, NULL, NULL);
    uint64_t first = least;
    for (const char *line = text; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
        unsigned long start = 0, count = 0;
        if (sscanf(line, "%*[^:\n]:%lu:%lu", &start, &count) == 2 && start < UINT32_MAX && count < UINT32_MAX &&
            start + count > first && start + count < UINT32_MAX / 2)
            first = start + count;
    }
    return (uint32_t)first;
}

static bool refuse(const char *name, const struct subordinate_ranges *uids, const struct subordinate_ranges *gids,
                   struct error *err)
{
    uint64_t counts[2] = {0, 0};
    for (size_t i = 0; i < uids->count; i++)
        counts[0] += uids->list[i].count;
    for (size_t i = 0; i < gids->count; i++)
        counts[1] += gids->list[i].count;
    uint32_t first = first_free("/etc/subgid", first_free("/etc/subuid", 100000));
    uint32_t last = first + 16 * ID_MAP_SLOT_STEP - 1;
    return error_set(err, ERROR_FORBIDDEN,
                     "%.32s has %" PRIu64 " subordinate uids and %" PRIu64
                     " gids; each sandbox takes 65536 in one range (16: sudo usermod --add-subuids %" PRIu32 "-%" PRIu32
                     " --add-subgids %" PRIu32 "-%" PRIu32 " %.32s)",
                     name, counts[0], counts[1], first, last, first, last, name);
}

bool mapping_make(uint32_t slots_max, struct error *err)
{
    struct subordinate_ranges uids, gids;
    struct id_map uid_map, gid_map;
    char number[NUMBER_BYTES];
    uid_t uid = geteuid();
    const struct passwd *user = getpwuid(uid);
    snprintf(number, sizeof number, "%" PRIu32, uid);
    AUTO_FREE char *name = memory_string(user ? user->pw_name : number);
    subordinate_read("/etc/subuid", name, uid, &uids);
    subordinate_read("/etc/subgid", name, uid, &gids);
    uint32_t slots = id_map_room(&uids);
    slots = id_map_room(&gids) < slots ? id_map_room(&gids) : slots;
    slots = slots < slots_max ? slots : slots_max;
    if (slots == 0)
        return refuse(name, &uids, &gids, err);
    id_map_plan(&uids, uid, slots, &uid_map);
    id_map_plan(&gids, getegid(), slots, &gid_map);
    return map_self(&uid_map, &gid_map, err);
}
