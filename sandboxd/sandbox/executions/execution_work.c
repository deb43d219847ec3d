/* execution_work.c - the work folder: files into it, and its removal. */
#include "sandboxd/sandbox/executions/executions_internal.h"

#include "sandboxd/sandbox/sandbox_internal.h"
#include "shared/base/clock.h"
#include "shared/base/log.h"
#include "shared/base/memory.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- writing ---- */

struct execution_write {
    struct files_call *call;
    struct loop_watch *pipe; /* our end, while bytes wait for the helper */
    const struct execution_file *file;
    size_t sent;
    void (*done)(void *cookie, const struct error *err);
    void *cookie;
};

static void write_free(struct execution_write *write)
{
    loop_watch_free(write->pipe);
    free(write);
}

void execution_write_cancel(struct execution_write *write)
{
    if (!write)
        return;
    files_cancel(write->call);
    write_free(write);
}

static void on_entry(void *cookie UNUSED, const struct files_record *record UNUSED, int descriptor)
{
    if (descriptor >= 0)
        close(descriptor);
}

static void on_written(void *cookie, const struct files_record *done UNUSED, const struct error *err)
{
    struct execution_write *write = cookie;
    void (*told)(void *, const struct error *) = write->done;
    void *whom = write->cookie;
    write_free(write);
    told(whom, err);
}

/* What the pipe takes now; false when it is to be asked again later. A helper that reads no more tells why itself. */
static bool pour(struct execution_write *writing, int pipe)
{
    while (writing->sent < writing->file->size) {
        ssize_t got = write(pipe, writing->file->data + writing->sent, writing->file->size - writing->sent);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return false;
        if (got < 0)
            return true;
        writing->sent += (size_t)got;
    }
    return true;
}

static void on_writable(void *cookie)
{
    struct execution_write *write = cookie;
    if (!pour(write, loop_watch_fd(write->pipe))) {
        loop_watch_writable(write->pipe, on_writable, write);
        return;
    }
    loop_watch_free(TAKE(write->pipe));
    if (write->sent == write->file->size)
        files_commit(write->call, write->file->size);
}

struct execution_write *execution_write_start(struct sandboxes *all, const char *sandbox_id, const char *folder,
                                              const struct execution_file *file, bool is_first,
                                              void (*done)(void *cookie, const struct error *err), void *cookie)
{
    static const struct files_events EVENTS = {.record = on_entry, .over = on_written};
    int ends[2] = {-1, -1};
    struct error err = {0};
    bool is_open = files_pipe(ends, 1, &err);
    AUTO_FREE char *path = memory_printf("%s/%s", folder, file->path);
    struct execution_write *write = memory_new(sizeof *write);
    *write = (struct execution_write){.file = file, .done = done, .cookie = cookie};
    /* The first makes the folder, of a name that nobody could know; the others cannot leave it. */
    struct files_request request = {
        .operation = FILES_WRITE, .flags = FILES_PARENTS, .root = is_first ? "" : folder, .path = path};
    bool is_poured = is_open && pour(write, ends[1]);
    if (is_poured)
        close(TAKE_FD(ends[1]));
    write->call = files_start(all, sandbox_id, &request, ends[0], &EVENTS, write); /* without a pipe: INVALID */
    if (is_poured && write->sent == file->size)
        files_commit(write->call, file->size);
    if (ends[1] < 0)
        return write;
    write->pipe = loop_watch_new(loop_current(), ends[1]);
    loop_watch_writable(write->pipe, on_writable, write);
    return write;
}

/* ---- removing ---- */

enum { ATTEMPTS = 5, SWEEP_MAX = 256, LOOK_AT_MAX = 10000 };
static const uint64_t PAUSE_NS =
    UINT64_C(100000000); /* before the second attempt; each later one after four times that */

/* One folder, or with `stale` those that are found in its place, one after another. */
struct execution_removal {
    struct execution_removal *next;
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    char folder[EXECUTION_FOLDER_BYTES];
    char (*stale)[EXECUTION_FOLDER_BYTES];
    size_t stale_count;
    struct files_call *call;
    struct loop_timer *timer;
    unsigned attempts;
};

static void remove_next(void *cookie);

static struct execution_removal **removals(struct sandboxes *all)
{
    return &all->removals[loop_index(loop_current())];
}

static void removal_free(struct execution_removal *removal)
{
    struct execution_removal **at = removals(removal->all);
    while (*at != removal)
        at = &(*at)->next;
    *at = removal->next;
    files_cancel(removal->call);
    loop_timer_cancel(removal->timer);
    free(removal->stale);
    free(removal);
}

void execution_removals_drop(struct sandboxes *all)
{
    while (*removals(all))
        removal_free(*removals(all));
}

static struct execution_removal *removal_new(struct sandboxes *all, const char *sandbox_id)
{
    struct execution_removal *removal = memory_new(sizeof *removal);
    removal->all = all;
    if (!text_copy(removal->sandbox_id, sizeof removal->sandbox_id, sandbox_id))
        removal->sandbox_id[0] = 0;
    removal->next = *removals(all);
    *removals(all) = removal;
    return removal;
}

static bool is_over(const struct error *err)
{
    return !err || err->kind == ERROR_NOT_FOUND || err->kind == ERROR_GONE;
}

/* What the program left running is being killed, and may still have made something. */
static void on_removed(void *cookie, const struct files_record *done UNUSED, const struct error *err)
{
    struct execution_removal *removal = cookie;
    removal->call = NULL;
    if (!is_over(err) && removal->attempts < ATTEMPTS) {
        uint64_t pause = PAUSE_NS << (2 * (removal->attempts - 1));
        removal->timer = loop_timer_start(loop_current(), clock_boot_ns() + pause, remove_next, removal);
        return;
    }
    if (!is_over(err))
        log_warn("sandbox", "a work folder was not removed: %s sandbox=%s", err->message, removal->sandbox_id);
    if (removal->stale_count > 0) {
        memcpy(removal->folder, removal->stale[--removal->stale_count], sizeof removal->folder);
        removal->attempts = 0;
        remove_next(removal);
        return;
    }
    removal_free(removal);
}

static void remove_next(void *cookie)
{
    static const struct files_events EVENTS = {.record = on_entry, .over = on_removed};
    struct execution_removal *removal = cookie;
    struct files_request request = {.operation = FILES_REMOVE, .flags = FILES_RECURSIVE, .path = removal->folder};
    removal->timer = NULL;
    removal->attempts++;
    removal->call = files_start(removal->all, removal->sandbox_id, &request, -1, &EVENTS, removal);
}

void execution_remove(struct sandboxes *all, const char *sandbox_id, const char *folder)
{
    struct execution_removal *removal = removal_new(all, sandbox_id);
    if (text_copy(removal->folder, sizeof removal->folder, folder))
        remove_next(removal);
    else
        removal_free(removal);
}

/* ---- what fronts before this one have left ---- */

static void on_listed(void *cookie, const struct files_record *record, int descriptor)
{
    struct execution_removal *removal = cookie;
    char name[EXECUTION_FOLDER_BYTES - sizeof EXECUTION_FOLDER], ours[32];
    on_entry(NULL, record, descriptor);
    (void)snprintf(ours, sizeof ours, EXECUTION_NAME "%s-", execution_book_tag(removal->all->executions));
    if (record->type != FILES_FOLDER || record->path.size >= sizeof name || removal->stale_count == SWEEP_MAX)
        return;
    memcpy(name, record->path.data, record->path.size);
    name[record->path.size] = 0;
    if (!text_starts_with(name, EXECUTION_NAME) || text_starts_with(name, ours))
        return;
    removal->stale = memory_resize(removal->stale, (removal->stale_count + 1) * sizeof *removal->stale);
    (void)snprintf(removal->stale[removal->stale_count++], EXECUTION_FOLDER_BYTES, EXECUTION_FOLDER "/%s", name);
}

static void on_list_over(void *cookie, const struct files_record *done UNUSED, const struct error *err UNUSED)
{
    struct execution_removal *removal = cookie;
    struct error none = {.kind = ERROR_NOT_FOUND};
    on_removed(removal, NULL, &none); /* goes on with the first that was found */
}

void execution_sweep(struct sandboxes *all, const char *sandbox_id)
{
    static const struct files_events EVENTS = {.record = on_listed, .over = on_list_over};
    struct execution_removal *removal = removal_new(all, sandbox_id);
    struct files_request request = {
        .operation = FILES_LIST, .depth = 1, .limit = LOOK_AT_MAX, .path = EXECUTION_FOLDER};
    removal->call = files_start(all, sandbox_id, &request, -1, &EVENTS, removal);
}
