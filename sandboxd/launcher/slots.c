#include "sandboxd/launcher/slots.h"

#include "sandboxd/rootless/id_map.h"
#include "sandboxd/rootless/rootless.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOCK_MAX_BYTES = 8192, SUBID_MAX_BYTES = 1024 * 1024, STATUS_MAX_BYTES = 65536, OVERFLOW_UID = 65534 };

_Static_assert(ID_MAP_SLOT_STEP == SLOTS_UID_COUNT, "a slot is as wide here as there");

uint32_t slots_uid(uint32_t slot)
{
    return (rootless_is_active() ? ID_MAP_SLOT_FIRST : SLOTS_UID_FIRST) + slot * SLOTS_UID_COUNT;
}

uint32_t slots_count(void)
{
    return rootless_is_active() ? rootless_slots() : SLOTS_COUNT;
}

/* A user's slots are named by what they are on the host: another map of the same user's has other numbers for them. */
static char *lock_path(const struct slots *slots, uint32_t slot)
{
    if (rootless_is_active() && slot < slots_count())
        return memory_printf("%s/uid-%" PRIu32, slots->folder, rootless_outside(slots_uid(slot)));
    return memory_printf("%s/%" PRIu32, slots->folder, slot);
}

/* For looking at a lock and then removing it: other launchers of this machine wait until the descriptor is closed.
 * Should that not be possible it is -1, and what was looked at is done all the same. */
static int hold_folder(const struct slots *slots)
{
    AUTO_FD int fd = open(slots->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX) < 0 && errno == EINTR) {
    }
    return TAKE_FD(fd);
}

/* The state folder that the lock names; NULL when there is no lock. */
static char *lock_owner(const struct slots *slots, uint32_t slot)
{
    AUTO_FREE char *path = lock_path(slots, slot);
    AUTO_FREE char *text = fd_read_file(path, LOCK_MAX_BYTES, NULL, NULL);
    return text ? memory_copy(text, strcspn(text, "\n")) : NULL;
}

/* --- what others have --- */

/* One line "name:start:count" of subuid(5). */
static void block_line(struct slots *slots, const char *line, size_t length)
{
    const char *first = memchr(line, ':', length);
    const char *second = first ? memchr(first + 1, ':', length - (size_t)(first + 1 - line)) : NULL;
    uint64_t start = 0;
    uint64_t count = 0;
    if (!second || !text_parse_u64(first + 1, (size_t)(second - first - 1), UINT32_MAX, &start) ||
        !text_parse_u64(second + 1, length - (size_t)(second + 1 - line), UINT32_MAX, &count))
        return;
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        uint64_t mine = slots_uid(slot);
        if (start < mine + SLOTS_UID_COUNT && mine < start + count)
            slots->blocked[slot] = true;
    }
}

static void block_of_file(struct slots *slots, const char *etc, const char *name)
{
    AUTO_FREE char *path = memory_printf("%s/%s", etc, name);
    AUTO_FREE char *text = fd_read_file(path, SUBID_MAX_BYTES, NULL, NULL);
    for (const char *line = text; line && *line;) {
        size_t length = strcspn(line, "\n");
        block_line(slots, line, length);
        line += length + (line[length] != '\0');
    }
}

/* Which slots have a process, by the real uids of all that runs. */
static void find_busy(bool busy[static SLOTS_COUNT])
{
    DIR *folder = opendir("/proc");
    for (const struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        AUTO_FREE char *path = memory_printf("/proc/%s/status", entry->d_name);
        AUTO_FREE char *text = fd_read_file(path, STATUS_MAX_BYTES, NULL, NULL);
        const char *line = text ? strstr(text, "\nUid:\t") : NULL;
        unsigned long uid = line ? strtoul(line + 6, NULL, 10) : 0;
        /* Whoever is not in our map is shown as the overflow uid; a front has an id of the first slot's range. */
        bool is_shown = !rootless_is_active() || (uid != OVERFLOW_UID && uid != ID_MAP_FRONT);
        if (is_shown && uid >= slots_uid(0) && uid < slots_uid(SLOTS_COUNT))
            busy[(uid - slots_uid(0)) / SLOTS_UID_COUNT] = true;
    }
    if (folder)
        closedir(folder);
}

static void remove_abandoned(struct slots *slots)
{
    AUTO_FD int held UNUSED = hold_folder(slots);
    bool looked = false;
    bool *busy = memory_array(SLOTS_COUNT, sizeof *busy);
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        AUTO_FREE char *owner = lock_owner(slots, slot);
        if (!owner || text_equal(owner, slots->state) || access(owner, F_OK) == 0 || errno != ENOENT)
            continue;
        if (!looked)
            find_busy(busy);
        looked = true;
        AUTO_FREE char *path = lock_path(slots, slot);
        if (!busy[slot])
            unlink(path);
    }
    free(busy);
}

bool slots_start(struct slots *slots, const char *folder, const char *state, const char *etc, struct error *err)
{
    if (!fd_make_folders(folder, 0700, err))
        return false;
    /* Who has which sandbox is nobody's business; locks of before were 0644. */
    if (chmod(folder, 0700) < 0)
        return error_set_errno(err, ERROR_INTERNAL, "chmod %s", folder);
    *slots = (struct slots){.folder = memory_string(folder), .state = memory_string(state)};
    for (uint32_t slot = slots_count(); slot < SLOTS_COUNT; slot++)
        slots->blocked[slot] = true;
    if (!rootless_is_active()) {
        block_of_file(slots, etc, "subuid");
        block_of_file(slots, etc, "subgid");
    }
    remove_abandoned(slots);
    return true;
}

void slots_done(struct slots *slots)
{
    free(slots->folder);
    free(slots->state);
    *slots = (struct slots){0};
}

/* --- locking --- */

/* Locks by link(2): the lock appears whole, with its owner in it, or not at all. */
static bool lock(const struct slots *slots, uint32_t slot, const char *id, bool *taken, struct error *err)
{
    AUTO_FREE char *path = lock_path(slots, slot);
    AUTO_FREE char *beside = memory_printf("%s/.%" PRIu32 ".%d", slots->folder, slot, (int)getpid());
    AUTO_FREE char *text = memory_printf("%s\n%s\n", slots->state, id);
    AUTO_FD int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, ERROR_INTERNAL, "create %s", beside);
    bool written = fd_write_all(fd, text, strlen(text), err);
    int failed = written && link(beside, path) < 0 ? errno : 0;
    unlink(beside);
    errno = failed;
    if (failed && failed != EEXIST)
        return error_set_errno(err, ERROR_INTERNAL, "lock slot %s", path);
    *taken = failed == 0;
    return written;
}

bool slots_take(struct slots *slots, const char *id, uint32_t *slot, struct error *err)
{
    for (uint32_t tried = 0; tried < SLOTS_COUNT; tried++) {
        uint32_t here = (slots->next + tried) % SLOTS_COUNT;
        bool taken = false;
        if (slots->blocked[here] || slots->held[here])
            continue;
        if (!lock(slots, here, id, &taken, err))
            return false;
        if (!taken)
            continue;
        slots->held[here] = true;
        slots->next = (here + 1) % SLOTS_COUNT;
        *slot = here;
        return true;
    }
    return error_set(err, ERROR_NO_CAPACITY, "all %" PRIu32 " uid ranges of %s are in use", slots_count(),
                     rootless_is_active() ? "this user" : "this machine");
}

bool slots_claim(struct slots *slots, uint32_t slot, const char *id, struct error *err)
{
    bool taken = false;
    if (slot >= SLOTS_COUNT)
        return error_set(err, ERROR_INVALID, "there is no slot %" PRIu32, slot);
    if (!lock(slots, slot, id, &taken, err))
        return false;
    AUTO_FREE char *owner = taken ? NULL : lock_owner(slots, slot);
    if (!taken && !text_equal(owner, slots->state))
        return error_set(err, ERROR_CONFLICT, "slot %" PRIu32 " is locked by %s", slot, owner ? owner : "another");
    slots->held[slot] = true;
    return true;
}

void slots_release(struct slots *slots, uint32_t slot)
{
    if (slot >= SLOTS_COUNT)
        return;
    AUTO_FD int held UNUSED = hold_folder(slots);
    AUTO_FREE char *path = lock_path(slots, slot);
    AUTO_FREE char *owner = lock_owner(slots, slot);
    if (text_equal(owner, slots->state))
        unlink(path);
    slots->held[slot] = false;
}

size_t slots_release_stale(struct slots *slots)
{
    size_t count = 0;
    for (uint32_t slot = 0; slot < SLOTS_COUNT; slot++) {
        AUTO_FREE char *owner = slots->held[slot] ? NULL : lock_owner(slots, slot);
        if (owner && text_equal(owner, slots->state)) {
            slots_release(slots, slot);
            count++;
        }
    }
    return count;
}
