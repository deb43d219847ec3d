/* sandboxd_disk_fuzz.c - what a node finds on its own disk at a start: records of sandboxes and where they may go, the
 * journal of marks, the spool; and pages of marks as the negotiator sends them. The first byte chooses; odd ones
 * have their sums set right, so that what lies behind is reached. Lines of journals are parted by LF, files by NUL. */
#include "sandboxd/journal/marks.h"
#include "sandboxd/journal/spool_internal.h"
#include "sandboxd/launcher/records.h"
#include "sandboxd/launcher/slots.h"
#include "shared/base/clock.h"
#include "shared/base/fd.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOT = 7 };

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* ---- records ---- */

static void use_record(const struct record *record)
{
    require(record->slot == SLOT);
    size_t length = strlen(record->id) + strlen(record->hostname) + strlen(record->template_name) +
                    strlen(record->isolation) + strlen(record->storage) + strlen(record->snapshot);
    for (size_t i = 0; i < FRONT_LAUNCHER_VOLUMES; i++)
        length += strlen(record->volumes[i]);
    for (const char *text = record->env; *text; text += strlen(text) + 1)
        length += strlen(text);
    require(length < sizeof *record);
}

static void write_raw(const char *folder, const char *name, const void *data, size_t size)
{
    struct error err = {0};
    AUTO_FREE char *path = memory_printf("%s/%s", folder, name);
    require(fd_write_file(path, 0600, data, size, &err));
}

static void read_record(const char *folder, const char *data, size_t size, bool is_summed)
{
    struct record record = {.slot = SLOT}, read;
    struct error err = {0};
    if (is_summed) {
        memcpy(&record, data, size < sizeof record ? size : sizeof record);
        record.slot = SLOT;
        record.uid_base = slots_uid(SLOT);
        require(record_write(folder, &record, &err));
    } else {
        write_raw(folder, "7", data, size);
    }
    if (record_read(folder, SLOT, &read, &err))
        use_record(&read);
    else
        require(err.message[0]);
    uint32_t slots[4];
    require(record_list(folder, slots, 4) <= 4);
}

static void read_network(const char *folder, const char *data, size_t size, bool is_summed)
{
    struct network_record record = {.slot = SLOT}, read;
    struct error err = {0};
    if (is_summed) {
        memcpy(&record, data, size < sizeof record ? size : sizeof record);
        record.slot = SLOT;
        strcpy(record.id, "sbx_x");
        require(record_write_network(folder, &record, &err));
    } else {
        write_raw(folder, "7.network", data, size);
    }
    if (record_read_network(folder, SLOT, "sbx_x", &read, &err))
        require(strlen(read.network.names) < sizeof read.network.names &&
                read.network.net_count <= FRONT_LAUNCHER_NETS);
}

/* ---- journals ---- */

/* Each line with its sum, or the bytes as they are. */
static void write_journal(int folder, const char *name, const char *data, size_t size, bool is_summed)
{
    struct error err = {0};
    if (!is_summed) {
        AUTO_FD int fd = openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        require(fd >= 0 && fd_write_all(fd, data, size, &err));
        return;
    }
    AUTO(journal_file) *file = journal_file_open(folder, name, NULL, NULL, &err);
    require(file != NULL);
    while (size > 0) {
        const char *end = memchr(data, '\n', size);
        size_t length = end ? (size_t)(end - data) : size;
        if (length > 0 && length <= JOURNAL_RECORD_MAX && memchr(data, '\0', length) == NULL)
            (void)journal_file_append(file, data, length, &err);
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
}

static void use_marks(struct marks *marks)
{
    struct capability_claims claims = {.sandbox_id = "sbx_a", .issued_at = 1, .expires_at = INT64_MAX};
    (void)marks_refuses(marks, &claims, clock_wall_ms());
    (void)marks_epoch(marks, "sbx_a");
    json_t *position = marks_position(marks);
    require(json_is_integer(json_object_get(position, "cursor")));
    json_decref(position);
}

static void read_marks(int folder, const char *data, size_t size, bool is_summed)
{
    struct error err = {0};
    write_journal(folder, "marks", data, size, is_summed);
    AUTO(marks) *marks = marks_open(&(struct marks_options){.folder = folder}, &err);
    if (marks == NULL)
        require(err.message[0]);
    else
        use_marks(marks);
}

static void on_done(void *cookie)
{
    sem_post(cookie);
}

static void take_page(int folder, const char *data, size_t size)
{
    struct error err = {0};
    sem_t done;
    sem_init(&done, 0, 0);
    AUTO(marks) *marks = marks_open(&(struct marks_options){.folder = folder}, &err);
    json_t *page = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    require(marks != NULL);
    if (page && marks_take(marks, page, on_done, &done, &err)) {
        while (sem_wait(&done) != 0)
            continue;
        use_marks(marks);
    }
    json_decref(page);
    marks_free(TAKE(marks));
    sem_destroy(&done);
    marks = marks_open(&(struct marks_options){.folder = folder}, &err); /* what was taken is read again */
    require(marks != NULL);
}

static void read_spool(int folder, const char *data, size_t size, bool is_summed)
{
    static const char *const NAMES[] = {"spool-head", "spool-1", "spool-ends", "spool-3"};
    struct error err = {0};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES && size > 0; i++) {
        const char *end = memchr(data, '\0', size);
        size_t length = end ? (size_t)(end - data) : size;
        write_journal(folder, NAMES[i], data, length, is_summed);
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
    AUTO(spool) *spool =
        spool_open(&(struct spool_options){.folder = folder, .bytes_max = 1 << 20, .sync_always = true}, &err);
    require(spool != NULL);
    struct spool_record record = {.action = "exec", .outcome = "ok", .sandbox_id = "sbx_a"};
    require(spool_add(spool, &record, &err));
    (void)spool_knows_end(spool, "sbx_a", "cmd");
    json_t *next = spool_next(spool, 10);
    require(next == NULL || json_is_array(json_object_get(next, "records")));
    if (next)
        spool_shipped(spool, json_string_value(json_object_get(next, "spool")), 1);
    json_decref(next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/dev/shm/parley-fuzz-XXXXXX";
    struct error err = {0};
    if (size == 0)
        return 0;
    log_set_level((enum log_level)(LOG_ERROR + 1)); /* nothing */
    require(mkdtemp(path) != NULL);
    AUTO_FD int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FREE char *copy = memory_copy(data + 1, size - 1);
    bool is_summed = data[0] & 1;
    switch (data[0] / 2 % 5) {
    case 0:
        read_record(path, copy, size - 1, is_summed);
        break;
    case 1:
        read_network(path, copy, size - 1, is_summed);
        break;
    case 2:
        read_marks(folder, copy, size - 1, is_summed);
        break;
    case 3:
        take_page(folder, copy, size - 1);
        break;
    default:
        read_spool(folder, copy, size - 1, is_summed);
    }
    require(fd_remove_tree(path, &err));
    return 0;
}
