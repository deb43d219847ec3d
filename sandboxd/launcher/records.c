#include "sandboxd/launcher/records.h"

#include "sandboxd/launcher/slots.h"
#include "shared/base/fd.h"
#include "shared/base/memory.h"
#include "shared/base/random.h"
#include "shared/base/text.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MAGIC = 0x50524543 /* PREC */,
    VERSION = 3,
    NETWORK_MAGIC = 0x504e4554 /* PNET */,
    NETWORK_VERSION = 2,
    COPIES = 2
};

/* No byte of it is padding, for all are summed. */
_Static_assert(offsetof(struct record, checksum) ==
                       offsetof(struct record, reserved) + sizeof((struct record){0}.reserved) &&
                   sizeof(struct record) == offsetof(struct record, checksum) + sizeof(uint64_t),
               "struct record has padding");

static uint64_t sum(const void *record, size_t size)
{
    uint64_t hash = 14695981039346656037ULL; /* FNV-1a: against accidents, for the folder is root's alone */
    const uint8_t *bytes = record;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 1099511628211ULL;
    return hash;
}

static uint64_t checksum(const struct record *record)
{
    return sum(record, offsetof(struct record, checksum));
}

static char *path_of(const char *folder, uint32_t slot)
{
    return memory_printf("%s/%" PRIu32, folder, slot);
}

/* --- two copies in a file --- */

struct copies {
    struct record record[COPIES];
    int newest; /* index of the newest whole one; -1: none */
};

static bool is_whole(const struct record *record)
{
    return record->magic == MAGIC && record->version == VERSION && record->checksum == checksum(record);
}

/* False when there is no file, or one that is too long. The second copy is newer when it was written one turn after the
 * first. */
static bool load(const char *path, struct copies *copies, struct error *err)
{
    size_t size = 0;
    AUTO_FREE char *bytes = fd_read_file(path, sizeof copies->record, &size, err);
    copies->newest = -1;
    if (bytes == NULL)
        return false;
    memcpy(copies->record, bytes, size);
    bool first = size >= sizeof(struct record) && is_whole(&copies->record[0]);
    bool second = size == sizeof copies->record && is_whole(&copies->record[1]);
    bool second_is_newer = (uint8_t)(copies->record[1].turn - copies->record[0].turn) == 1;
    copies->newest = first && second ? second_is_newer : first ? 0 : second ? 1 : -1;
    return true;
}

static bool create(const char *path, const void *record, size_t size, struct error *err)
{
    AUTO_FREE char *beside = memory_printf("%s.new", path);
    AUTO_FD int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, ERROR_INTERNAL, "create %s", beside);
    if (!fd_write_all(fd, record, size, err) || rename(beside, path) < 0) {
        error_set_errno(err, ERROR_INTERNAL, "write record %s", path);
        unlink(beside);
        return false;
    }
    return true;
}

bool record_write(const char *folder, struct record *record, struct error *err)
{
    struct copies copies = {.newest = -1};
    AUTO_FREE char *path = path_of(folder, record->slot);
    bool is_there = load(path, &copies, NULL) && copies.newest >= 0;
    record->magic = MAGIC;
    record->version = VERSION;
    record->turn = is_there ? (uint8_t)(copies.record[copies.newest].turn + 1) : 0;
    clock_boot_id(record->boot_id);
    record->checksum = checksum(record);
    if (!is_there)
        return create(path, record, sizeof *record, err);
    off_t at = copies.newest == 0 ? (off_t)sizeof *record : 0;
    AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    return (fd >= 0 && pwrite(fd, record, sizeof *record, at) == (ssize_t)sizeof *record) ||
           error_set_errno(err, ERROR_INTERNAL, "write record %s", path);
}

/* --- what may be in one --- */

static bool is_text(const char *field, size_t size)
{
    return strnlen(field, size) < size;
}

/* A live one has an id, one of the pool has none yet. */
static bool is_state_sane(const struct record *record)
{
    bool has_id = random_is_id(record->id, "sbx");
    switch (record->state) {
    case RECORD_STARTING:
        return has_id || record->id[0] == '\0';
    case RECORD_WARM:
        return record->id[0] == '\0' && record->init_pid > 1;
    case RECORD_LIVE:
        return has_id && record->init_pid > 1 && record->epoch > 0 && record->uid > 0;
    default:
        return false;
    }
}

static bool are_volumes_text(const struct record *record)
{
    for (size_t i = 0; i < FRONT_LAUNCHER_VOLUMES; i++) {
        if (!is_text(record->volumes[i], sizeof record->volumes[i]))
            return false;
    }
    return true;
}

static bool is_sane(const struct record *record, uint32_t slot)
{
    return record->slot == slot && record->slot < SLOTS_COUNT && record->uid_base == slots_uid(slot) &&
           is_text(record->id, sizeof record->id) && is_state_sane(record) &&
           is_text(record->hostname, sizeof record->hostname) &&
           is_text(record->template_name, sizeof record->template_name) &&
           is_text(record->template_version, sizeof record->template_version) &&
           is_text(record->isolation, sizeof record->isolation) && is_text(record->storage, sizeof record->storage) &&
           is_text(record->snapshot, sizeof record->snapshot) && are_volumes_text(record) &&
           is_text(record->boot_id, sizeof record->boot_id) && env_is_whole(record->env);
}

bool record_read(const char *folder, uint32_t slot, struct record *record, struct error *err)
{
    struct copies copies = {.newest = -1};
    AUTO_FREE char *path = path_of(folder, slot);
    if (!load(path, &copies, err))
        return err && err->kind == ERROR_TOO_LARGE ? error_set(err, ERROR_INVALID, "record %s is too long", path)
                                                   : false;
    if (copies.newest < 0 || !is_sane(&copies.record[copies.newest], slot))
        return error_set(err, ERROR_INVALID, "record %s is damaged", path);
    const struct record *read = &copies.record[copies.newest];
    char boot_id[CLOCK_BOOT_ID_BYTES];
    clock_boot_id(boot_id);
    if (strcmp(boot_id, read->boot_id) != 0)
        return error_set(err, ERROR_INVALID, "record %s is of an earlier boot", path);
    *record = *read;
    return true;
}

/* --- where it may go --- */

_Static_assert(sizeof(struct network_record) == offsetof(struct network_record, checksum) + sizeof(uint64_t),
               "struct network_record has padding");

static char *network_path_of(const char *folder, uint32_t slot)
{
    return memory_printf("%s/%" PRIu32 ".network", folder, slot);
}

bool record_write_network(const char *folder, struct network_record *record, struct error *err)
{
    AUTO_FREE char *path = network_path_of(folder, record->slot);
    record->magic = NETWORK_MAGIC;
    record->version = NETWORK_VERSION;
    record->checksum = sum(record, offsetof(struct network_record, checksum));
    return create(path, record, sizeof *record, err);
}

bool record_read_network(const char *folder, uint32_t slot, const char *id, struct network_record *record,
                         struct error *err)
{
    size_t size = 0;
    AUTO_FREE char *path = network_path_of(folder, slot);
    AUTO_FREE char *bytes = fd_read_file(path, sizeof *record, &size, err);
    if (!bytes)
        return false;
    struct network_record read = {0};
    memcpy(&read, bytes, size);
    bool is_whole_one =
        size == sizeof read && read.magic == NETWORK_MAGIC && read.version == NETWORK_VERSION &&
        read.checksum == sum(&read, offsetof(struct network_record, checksum)) && read.slot == slot &&
        read.network.mode <= FL_NETWORK_ALLOW && read.network.net_count <= FRONT_LAUNCHER_NETS &&
        read.network.denied_count <= FRONT_LAUNCHER_NETS && is_text(read.network.names, sizeof read.network.names) &&
        is_text(read.network.denied_names, sizeof read.network.denied_names) && is_text(read.id, sizeof read.id);
    if (!is_whole_one)
        return error_set(err, ERROR_INVALID, "record %s is damaged", path);
    if (strcmp(read.id, id) != 0)
        return error_set(err, ERROR_NOT_FOUND, "record %s is another sandbox's", path);
    *record = read;
    return true;
}

void record_remove(const char *folder, uint32_t slot)
{
    AUTO_FREE char *path = path_of(folder, slot);
    AUTO_FREE char *network = network_path_of(folder, slot);
    unlink(network);
    unlink(path);
}

size_t record_list(const char *folder, uint32_t *slots, size_t max)
{
    size_t count = 0;
    DIR *entries = opendir(folder);
    for (const struct dirent *entry = entries ? readdir(entries) : NULL; entry; entry = readdir(entries)) {
        const char *name = entry->d_name;
        uint64_t slot = 0;
        if (text_parse_u64(name, strlen(name), SLOTS_COUNT - 1, &slot) && count < max)
            slots[count++] = (uint32_t)slot;
        else if (strstr(name, ".new"))
            unlinkat(dirfd(entries), name, 0);
    }
    if (entries)
        closedir(entries);
    return count;
}

size_t record_count(const char *folder, enum record_state state)
{
    size_t count = 0;
    AUTO_FREE uint32_t *slots = memory_array(SLOTS_COUNT, sizeof *slots);
    size_t found = record_list(folder, slots, SLOTS_COUNT);
    for (size_t i = 0; i < found; i++) {
        struct record record;
        if (record_read(folder, slots[i], &record, NULL) && record.state == state)
            count++;
    }
    return count;
}
