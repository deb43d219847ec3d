/* execution_harvest.c - what a program left below ./artifacts: listed once, then opened one by one. Only regular files
 * count; the helper follows no link out of the work folder. */
#include "sandboxd/sandbox/executions/executions_internal.h"

#include "shared/base/memory.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH_MAX = 64, LOOK_AT_MAX = 20000 };
static const char PLACE[] = "artifacts";

struct execution_harvest {
    struct sandboxes *all;
    char sandbox_id[FRONT_LAUNCHER_ID_BYTES];
    char *folder; /* the work folder */
    struct execution_result *result;
    struct text *marks;
    char **names; /* found, not yet opened */
    size_t name_count, next_name;
    uint64_t inline_bytes;
    size_t kept;
    bool has_file; /* of the one that is opened now */
    size_t odd_names, no_files, beyond, refused;
    bool is_truncated;
    struct files_call *call;
    void (*done)(void *cookie);
    void *cookie;
};

static void harvest_free(struct execution_harvest *harvest)
{
    for (size_t i = 0; i < harvest->name_count; i++)
        free(harvest->names[i]);
    free(harvest->names);
    free(harvest->folder);
    free(harvest);
}

static void mark(struct execution_harvest *harvest, size_t count, const char *why)
{
    if (count > 0)
        text_append_format(harvest->marks, "[parley] %zu left out of the artifacts: %s\n", count, why);
}

static void write_marks(struct execution_harvest *harvest)
{
    mark(harvest, harvest->odd_names, "the name is not UTF-8");
    mark(harvest, harvest->no_files, "no regular file (a link, a pipe, a socket)");
    mark(harvest, harvest->refused, "it cannot be read (hard links, rights, or it changed meanwhile)");
    mark(harvest, harvest->beyond, "too many, or too many large ones");
    if (harvest->is_truncated)
        text_append_format(harvest->marks, "[parley] artifacts: more than %d entries, the rest was not looked at\n",
                           LOOK_AT_MAX);
}

static void finish(struct execution_harvest *harvest)
{
    void (*done)(void *cookie) = harvest->done;
    void *cookie = harvest->cookie;
    write_marks(harvest);
    harvest_free(harvest);
    done(cookie);
}

void execution_harvest_cancel(struct execution_harvest *harvest)
{
    if (!harvest)
        return;
    files_cancel(harvest->call);
    write_marks(harvest);
    harvest_free(harvest);
}

void execution_result_done(struct sandboxes *all, const char *sandbox_id, struct execution_result *result)
{
    for (size_t i = 0; i < result->artifact_count; i++) {
        if (result->artifacts[i].file >= 0) {
            close(result->artifacts[i].file);
            files_file_closed(all, sandbox_id);
        }
        free(result->artifacts[i].name);
        free(result->artifacts[i].data);
    }
    free(TAKE(result->artifacts));
    result->artifact_count = 0;
    for (int i = 0; i < OUTPUT_STREAMS; i++)
        text_done(&result->streams[i]);
}

/* ---- opening ---- */

static bool read_whole(int file, char *to, size_t size)
{
    for (size_t got = 0; got < size;) {
        ssize_t some = pread(file, to + got, size - got, (off_t)got);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return false;
        got += (size_t)some;
    }
    return true;
}

static void add(struct execution_harvest *harvest, const struct execution_artifact *artifact)
{
    struct execution_result *result = harvest->result;
    size_t count = result->artifact_count++;
    if ((count & (count - 1)) == 0)
        result->artifacts = memory_resize(result->artifacts, (count ? count * 2 : 1) * sizeof *result->artifacts);
    result->artifacts[count] = *artifact;
}

static void drop_file(struct execution_harvest *harvest, int file)
{
    close(file);
    files_file_closed(harvest->all, harvest->sandbox_id);
}

/* Small ones are read at once: they were just written, and lie in memory. */
static void take_file(struct execution_harvest *harvest, int file, uint64_t size)
{
    struct execution_artifact artifact = {.name = harvest->names[harvest->next_name], .size = size, .file = -1};
    bool is_small = size <= EXECUTION_INLINE_BYTES && harvest->inline_bytes + size <= EXECUTION_INLINE_ALL_BYTES;
    if (is_small) {
        artifact.data = memory_new(size + 1);
        bool is_read = read_whole(file, artifact.data, size);
        drop_file(harvest, file);
        if (!is_read) {
            harvest->refused++;
            free(artifact.data);
            return;
        }
        harvest->inline_bytes += size;
    } else if (harvest->kept < EXECUTION_KEPT_MAX) {
        harvest->kept++;
        artifact.file = file;
    } else {
        harvest->beyond++;
        drop_file(harvest, file);
        return;
    }
    harvest->names[harvest->next_name] = NULL;
    add(harvest, &artifact);
}

static void open_next(struct execution_harvest *harvest);

static void on_opened(void *cookie, const struct files_record *record, int descriptor)
{
    struct execution_harvest *harvest = cookie;
    if (descriptor < 0)
        return;
    harvest->has_file = true;
    take_file(harvest, descriptor, record->version.size);
}

static void on_open_over(void *cookie, const struct files_record *done UNUSED, const struct error *err UNUSED)
{
    struct execution_harvest *harvest = cookie;
    harvest->call = NULL;
    harvest->refused += !harvest->has_file;
    harvest->next_name++;
    open_next(harvest);
}

static void open_next(struct execution_harvest *harvest)
{
    static const struct files_events EVENTS = {.record = on_opened, .over = on_open_over};
    if (harvest->next_name == harvest->name_count) {
        finish(harvest);
        return;
    }
    AUTO_FREE char *path = memory_printf("%s/%s/%s", harvest->folder, PLACE, harvest->names[harvest->next_name]);
    struct files_request request = {.operation = FILES_OPEN, .root = harvest->folder, .path = path};
    harvest->has_file = false;
    harvest->call = files_start(harvest->all, harvest->sandbox_id, &request, -1, &EVENTS, harvest);
}

/* ---- listing ---- */

static void on_listed(void *cookie, const struct files_record *record, int descriptor)
{
    struct execution_harvest *harvest = cookie;
    const struct files_bytes *path = &record->path;
    if (descriptor >= 0)
        close(descriptor);
    if (record->type == FILES_FOLDER || path->size == 0)
        return;
    if (record->type != FILES_REGULAR)
        harvest->no_files++;
    else if (text_utf8_prefix(path->data, path->size) != path->size)
        harvest->odd_names++;
    else if (harvest->name_count == EXECUTION_ARTIFACTS_MAX)
        harvest->beyond++;
    else
        harvest->names[harvest->name_count++] = memory_copy(path->data, path->size);
}

/* Without such a folder there is none; a link out of the work folder is refused and told. */
static void on_list_over(void *cookie, const struct files_record *done, const struct error *err)
{
    struct execution_harvest *harvest = cookie;
    harvest->call = NULL;
    harvest->is_truncated = done && done->is_truncated;
    if (err && err->kind != ERROR_NOT_FOUND)
        text_append_format(harvest->marks, "[parley] artifacts: %s\n", err->message);
    open_next(harvest);
}

struct execution_harvest *execution_harvest_start(struct sandboxes *all, const char *sandbox_id, const char *folder,
                                                  struct execution_result *result, struct text *marks,
                                                  void (*done)(void *cookie), void *cookie)
{
    static const struct files_events EVENTS = {.record = on_listed, .over = on_list_over};
    struct execution_harvest *harvest = memory_new(sizeof *harvest);
    *harvest = (struct execution_harvest){
        .all = all, .result = result, .marks = marks, .done = done, .cookie = cookie, .folder = memory_string(folder)};
    if (!text_copy(harvest->sandbox_id, sizeof harvest->sandbox_id, sandbox_id))
        harvest->sandbox_id[0] = 0;
    harvest->names = memory_array(EXECUTION_ARTIFACTS_MAX, sizeof *harvest->names);
    AUTO_FREE char *path = memory_printf("%s/%s", folder, PLACE);
    struct files_request request = {
        .operation = FILES_LIST, .depth = DEPTH_MAX, .limit = LOOK_AT_MAX, .root = folder, .path = path};
    harvest->call = files_start(all, sandbox_id, &request, -1, &EVENTS, harvest);
    return harvest;
}
